package main

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/internal/unfound"
	"github.com/holdfast-go/holdfast/peer"
	"github.com/holdfast-go/holdfast/ring"
)

// A survey has the answers of the arbiter and of the nodes.
type survey struct {
	partitions []coord.PartitionInfo
	unread     error      // why there are none
	all        []nodeView // the nodes
	processes  []coord.Process
	unlisted   error // why there are none
}

func (x *survey) askNodes(ctx context.Context, c *coord.Coordinator) {
	x.all = nodes(ctx, c)
	askAgain(ctx, c, x.all)
	x.processes, x.unlisted = c.Processes(ctx) // after that, so that it has each session that a node has heard of
}

// isSilent reports whether a node is not reached that may have ended or stand still. One that
// refuses this command runs.
func (n *nodeView) isSilent() bool {
	return n.Report == nil && !errors.Is(n.err, peer.ErrSharedKeys) && !unfound.Is(n.Error)
}

// A listing has the nodes and the sessions that the arbiter lists.
type listing struct {
	of        int             // nodes
	nodes     map[string]bool // by ID
	sessions  map[string]bool
	silent    map[string]bool          // nodes, by ID
	processes map[string]coord.Process // of nodes, by ID
	unlinked  map[string][]string      // of a silent node, by ID: nodes that have no stream to it either
	linked    map[string][]string      // and those that have one
	twins     map[string]bool          // names that several nodes have
}

func (x *survey) list() *listing {
	l := &listing{
		len(x.all), make(map[string]bool), make(map[string]bool), make(map[string]bool), make(map[string]coord.Process), make(map[string][]string),
		make(map[string][]string), make(map[string]bool),
	}
	names := make(map[string]bool)
	for i := range x.all {
		n := &x.all[i]
		l.nodes[n.ID], l.silent[n.ID] = true, n.isSilent()
		if names[n.Name] {
			l.twins[n.Name] = true
		}
		names[n.Name] = true
	}
	for _, p := range x.processes {
		l.sessions[p.Session] = true
		if p.ID != "" {
			l.processes[p.ID] = p
		}
	}
	for id, silent := range l.silent {
		if !silent {
			delete(l.silent, id)
		}
	}
	for _, n := range x.all {
		if n.Report == nil {
			continue
		}
		for _, m := range n.Report.Nodes {
			switch {
			case !l.silent[m.ID]:
			case m.Linked:
				l.linked[m.ID] = append(l.linked[m.ID], l.name(n.ID, n.Name))
			default:
				l.unlinked[m.ID] = append(l.unlinked[m.ID], l.name(n.ID, n.Name))
			}
		}
	}
	return l
}

// where returns the host and PID of a node, "" if they are not known.
func (l *listing) where(id string) string {
	p := l.processes[id]
	return where(&p)
}

// name returns a node's name, with what tells it from others of the same name.
func (l *listing) name(id, name string) string {
	if at := l.where(id); l.twins[name] && at != "" {
		return name + " (" + at + ")"
	}
	return name
}

// unseen returns the names of nodes that answer and are not among these.
func (l *listing) unseen(seen map[string]bool) (names []string) {
	for id := range l.nodes {
		if !seen[id] && !l.silent[id] {
			names = append(names, l.name(id, ring.Process(id)))
		}
	}
	slices.Sort(names)
	return names
}

// ofSilent reports whether a node's trouble is with one that answers nobody.
func (l *listing) ofSilent(text string) bool {
	for id := range l.silent {
		if strings.Contains(text, id) {
			return true
		}
	}
	return false
}

func (d *doctor) partitions(x *survey) {
	if x.unread != nil {
		d.fail("partitions", "see what is said of the arbiter", "%v", x.unread)
		return
	}
	d.owners(x.partitions, x.all)
}

// owners reports problems of the partitions' owners, and of the arbiter's grants in partitions.
func (d *doctor) owners(all []coord.PartitionInfo, nodes []nodeView) {
	silent, apart, owned := make(map[string]*nodeView), false, 0
	for i := range nodes {
		n := &nodes[i]
		switch {
		case n.isSilent():
			silent[n.ID] = n
		case n.Report != nil:
			owned += n.Report.Owned
			apart = apart || len(n.Report.Troubles) > 0
		}
	}
	grace, graced, orphans, shared, quiet, broken := time.Duration(0), 0, 0, 0, make(map[*nodeView]int), ""
	for _, p := range all {
		grace = max(grace, p.Grace)
		living := false
		switch {
		case p.Error != "":
			broken = p.Error
		case p.Owner == nil:
			shared++
		case p.Owner.Name == "" && p.Owner.ID == "":
			orphans++
		case silent[p.Owner.ID] != nil:
			quiet[silent[p.Owner.ID]]++
		default:
			living = true
		}
		if p.Grace > 0 && !living {
			graced++
		}
	}
	if broken != "" {
		d.fail("partitions", "one of several servers may be away", "not all can be read: %s", broken)
	}
	if grace > 0 {
		// Owners reclaim their partitions from a server without its data, and grant meanwhile.
		d.grace(grace, min(graced, max(0, len(all)-owned)), len(all))
	}
	if orphans > 0 {
		d.warn("partitions", "wait for Cluster.Takeover (3 s) or SessionTTL (10 s); if it lasts, look at the log of the nodes that are left",
			"%s to sessions that have ended: their process has ended, or cannot renew", plural(orphans, "partition belongs", "partitions belong"))
	}
	d.quiet(quiet, len(all))
	if len(nodes) > 0 && shared > 0 && grace == 0 {
		do := "wait a few seconds; if it lasts, the nodes do not agree who is there: see what is said of them below"
		if apart || len(silent) > 0 {
			do = "see what is said of the nodes below: while they do not all reach each other, they may not agree who is there, and this lasts"
		}
		d.warn("partitions", do, "%d of %d partitions %s no owner: %s locked at the arbiter", shared, len(all), plural1(shared, "has", "have"),
			plural1(shared, "its keys are", "their keys are"))
	} else if len(nodes) > 0 && orphans == 0 && shared == 0 && len(quiet) == 0 && broken == "" {
		d.ok("partitions", "all of %d have a living owner", len(all))
	}
}

// grace tells of Grace, in which the keys of some partitions wait, as these have no owner.
func (d *doctor) grace(left time.Duration, wait, of int) {
	do := "wait: after a failover or a restart the arbiter grants nothing new until locks of before have lapsed"
	switch wait {
	case 0:
		d.warn("Grace", do+"; owners do", "%v are left in which the arbiter grants nothing new", lasting(left))
	case of:
		d.warn("Grace", do, "no process owns keys: all locks that are not held already wait for another %v", lasting(left))
	default:
		d.warn("Grace", do+"; owners do", "%d of %d partitions %s no owner that answers: locks of %s keys wait for another %v, in which the arbiter grants nothing new",
			wait, of, plural1(wait, "has", "have"), plural1(wait, "its", "their"), lasting(left))
	}
}

// quiet tells of partitions whose owner answers nobody.
func (d *doctor) quiet(partitions map[*nodeView]int, of int) {
	sum, names, last := 0, []string(nil), (*nodeView)(nil)
	for n, count := range partitions {
		sum += count
		names = append(names, n.Name)
		if last == nil || n.Takeover == 0 || last.Takeover > 0 && n.Takeover > last.Takeover {
			last = n
		}
	}
	if sum == 0 {
		return
	}
	d.warn("partitions", "see what is said below of what does not answer", "%d of %d partitions %s to %s, which %s not answer: if it has ended or stands still, %s wait until it is found dead (%s)",
		sum, of, plural1(sum, "belongs", "belong"), few(slices.Sorted(slices.Values(names))), plural1(len(names), "does", "do"), plural1(sum, "its keys", "their keys"), last.foundDead())
}

// foundDead names the setting by which a node that has died is found dead, with its value.
func (n *nodeView) foundDead() string {
	if n.Takeover == 0 {
		return "SessionTTL, 10 s by default"
	}
	return "Cluster.Takeover, " + lasting(n.Takeover)
}
