package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/internal/unfound"
)

func (d *doctor) partitions(ctx context.Context, c *coord.Coordinator) {
	all, err := c.Partitions(ctx)
	if err != nil {
		d.fail("partitions", "see what is said of the arbiter", "%v", err)
		return
	}
	d.owners(all, len(c.Nodes()))
}

// owners reports problems of the partitions' owners, and of the arbiter's grants in partitions.
func (d *doctor) owners(all []coord.PartitionInfo, nodes int) {
	grace, orphans, shared, broken := time.Duration(0), 0, 0, ""
	for _, p := range all {
		grace = max(grace, p.Grace)
		switch {
		case p.Error != "":
			broken = p.Error
		case p.Owner == nil:
			shared++
		case p.Owner.Name == "" && p.Owner.ID == "":
			orphans++
		}
	}
	if broken != "" {
		d.fail("partitions", "one of several servers may be away", "not all can be read: %s", broken)
	}
	if grace > 0 {
		d.warn("Grace", "wait: after a failover or a restart the arbiter grants nothing new until locks of before have lapsed; owners do",
			"%v are left in which the arbiter grants nothing new", lasting(grace))
	}
	if orphans > 0 {
		d.warn("partitions", "wait for Cluster.Takeover (3 s) or SessionTTL (10 s); if it lasts, look at the log of the nodes that are left",
			"%d partitions belong to sessions that have ended: their process has ended, or cannot renew", orphans)
	}
	if nodes > 0 && shared > 0 && grace == 0 {
		d.warn("partitions", "wait a few seconds; if it lasts, the nodes do not agree who is there: see what is said of them below",
			"%d of %d partitions have no owner: their keys are locked at the arbiter", shared, len(all))
	} else if nodes > 0 && orphans == 0 && shared == 0 && broken == "" {
		d.ok("partitions", "all of %d have a living owner", len(all))
	}
}

func (d *doctor) members(ctx context.Context, c *coord.Coordinator) {
	all := nodes(ctx, c)
	askAgain(ctx, c, all)
	processes, err := c.Processes(ctx) // after that, so that it has each session that a node has heard of
	if err != nil {
		d.fail("processes", "see what is said of the arbiter", "%v", err)
		return
	}
	rest := others(processes)
	if len(all) == 0 && len(rest) == 0 {
		d.fail("processes", "look at their logs for `no session`; if none runs, start the application",
			"no process has a session: they do not run, or use another server or namespace, or the arbiter refuses them (a password or an ACL that was changed, replicas that are away)")
		return
	}
	if len(all) > 0 && len(rest) > 0 {
		d.warn("processes", "set Cluster in all processes, or in none: a process without makes owners give partitions back",
			"%d processes are nodes of a cluster, and %d are not, such as %s (%s)", len(all), len(rest), who(&rest[0]), where(&rest[0]))
	}
	x := listing{len(all), make(map[string]bool), make(map[string]bool)}
	for _, n := range all {
		x.nodes[n.ID] = true
	}
	for _, p := range processes {
		x.sessions[p.Session] = true
	}
	d.sessionless(all, &x)
	d.secrets(all)
	d.takeovers(all)
	versions := make(map[string]bool)
	for _, n := range all {
		d.member(ctx, &n, &x)
		if n.Report != nil {
			versions[n.Report.Version] = true
		}
	}
	if len(all) == 0 {
		d.ok("processes", "%d without a cluster, which cannot be asked what they hold: the page of each tells (package debug)", len(rest))
	}
	if len(versions) > 1 {
		var list []string
		for v := range versions {
			list = append(list, v)
		}
		slices.Sort(list)
		d.warn("versions", "finish the deployment", "nodes have different versions: %s", strings.Join(list, ", "))
	}
}

// A listing has the nodes and the sessions that the arbiter lists.
type listing struct {
	of       int             // nodes
	nodes    map[string]bool // by ID
	sessions map[string]bool
}

// sessionless tells once of each node that others hear, and that has no session: it has lost it, or
// has had none yet. A crashed node still names the session that it had. A node of a copy of the
// data names a session that this arbiter has not.
func (d *doctor) sessionless(all []nodeView, x *listing) {
	hear := make(map[string][]string)
	for _, n := range all {
		if n.Report == nil {
			continue
		}
		for _, m := range n.Report.Nodes {
			if !m.Self && m.Session == "" && !x.nodes[m.ID] {
				hear[m.Name] = append(hear[m.Name], n.Name)
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(hear)) {
		d.fail("node "+name, "look at its log for `no session`: the error beside it says why, such as an address, the network or a password (it may have just started)",
			"it has no session at the arbiter, and grants no locks; it is there, as %s tells", hear[name][0])
	}
}

// member looks at one node.
func (d *doctor) member(ctx context.Context, n *nodeView, x *listing) {
	what := "node " + n.Name
	r := n.Report
	if r == nil {
		d.mute(ctx, n)
		return
	}
	bad := false
	if off := time.Since(r.Clock); off.Abs() > 5*time.Second {
		d.warn(what, "run NTP there, and let it slew the clock: a step forward by more than some seconds ends the node's session, and all its locks. Times in logs and tables are off",
			"its clock differs by %v from this host's", off.Round(time.Second))
		bad = true
	}
	seen, linked, joins := 0, 0, false
	for _, m := range r.Nodes {
		if m.State == "dead" {
			continue // the gossip is slower than the arbiter
		}
		if x.nodes[m.ID] {
			seen++
		}
		switch {
		case m.Self:
		case m.Linked:
			linked++
		case unfound.Is(m.Refused):
			one, other := unfound.By(n.Name, m.Name, m.Refused)
			d.warn(what, fmt.Sprintf("wait a few seconds, as after an outage; if it lasts, %s does not reach the arbiter, or uses another one, such as a copy of the data: "+
				"look at its log, and at the arbiter's address there", one), "%s does not find %s at its arbiter, and refuses it: %s", one, other, m.Refused)
			bad = true
		case m.Refused != "":
			d.fail(what, "give both the same Cluster.PeerKeys, GossipKeys and PeerTLS, and the same version; the odd one is that of which all others say so",
				"it and %s refuse each other: %s", m.Name, m.Refused)
			bad = true
		case m.State != "unlisted" && m.Session != "":
			do := fmt.Sprintf("wait a few seconds, as it may have just ended or come; if it lasts, open the peer port %s for %s, or set Cluster.PeerAdvertise at %s",
				m.Peer, where(&r.Process), m.Name)
			if slices.ContainsFunc(r.Troubles, func(text string) bool { return strings.Contains(text, m.ID) }) {
				do = "see below why"
			}
			d.warn(what, do, "it has no stream to %s", m.Name)
			bad = true
		}
		switch {
		case m.Session == "": // sessionless tells of it
			joins = true
		case m.State != "unlisted", x.sessions[m.Session]: // this node has not asked since
		default:
			d.fail(what, "a process gossips here that uses another arbiter, such as a copy of the data: point it to this one, or run "+
				"holdfast rotate-secret (with GossipKeys: change those)", "it hears %s, whose session the arbiter does not know", m.Name)
			bad = true
		}
	}
	if seen += r.MoreNodes; seen < x.of {
		d.warn(what, "open the gossip port by UDP and TCP between the nodes (docs/network.md)", "it sees %d of %d nodes", seen, x.of)
		bad = true
	}
	for _, text := range r.Troubles {
		d.warn(what, "do what it says at its end", "%s", text)
		bad = true
	}
	if r.State == "leaving" {
		d.warn(what, "nothing, if that is meant; else start it anew", "it gives its partitions away: Drain was called, or it closes")
		bad = true
	} else if !r.Settled && !bad && !joins {
		d.warn(what, "wait a few seconds", "it has not settled: %s", r.Missing)
		bad = true
	}
	if r.Sessions > 1 {
		d.warn(what, "look at its log for \"session lost\": pauses of the process (CPU limits), the network, the arbiter",
			"it has lost its session, and all its locks, %d times in %v", r.Sessions-1, lasting(r.Up))
		bad = true
	}
	if r.Renewal > slowRenewal {
		d.warn(what, "look after the arbiter (slowlog, CPU, swap), the network between the two, and the node's CPU",
			"the arbiter is slow: a renewal of its session took %v", lasting(r.Renewal))
		bad = true
	}
	for _, f := range r.Failing() {
		d.warn(what, "do what the error says; look after the arbiter and the network to it",
			"calls of the arbiter fail: %s, the last one %v ago: %s", f.Op, lasting(r.Clock.Sub(f.Time)), f.Error)
		bad = true
	}
	if failed := r.Failed["renew"]; failed > 0 {
		d.warn(what, "look after the arbiter and the network to it", "%d of %d renewals failed since its start", failed, r.Calls["renew"])
	}
	if !bad {
		d.ok(what, "%s, %d partitions, %d streams, %d locked keys, up %v", where(&r.Process), r.Owned, linked, r.Locked, lasting(r.Up))
	}
}

// locks looks for stuck keys.
func (d *doctor) locks(ctx context.Context, c *coord.Coordinator) {
	if len(c.Nodes()) == 0 {
		return
	}
	list, err := c.Top(ctx, 1, coord.LongestWait)
	if err != nil {
		d.fail("locks", "see what is said of the nodes", "%v", err)
		return
	}
	if n := len(list.Unanswered); n > 0 {
		u := &list.Unanswered[0]
		d.warn("locks", "see what is said of the nodes", "%d processes could not be asked for all that they know, such as %s: %s", n, who(&u.Process), u.Reason)
	}
	var k coord.KeySummary
	if len(list.Keys) > 0 {
		k = list.Keys[0]
	}
	if wait := time.Since(k.Waiting); !k.Waiting.IsZero() && wait > d.longWait && !k.Expected {
		text := fmt.Sprintf("%d callers wait for key %q, the first for %v; ", k.Waiters, k.Key, lasting(wait))
		if k.Holder == nil {
			text += "no process that answers holds it"
		} else {
			text += fmt.Sprintf("it is held by %s (%s)", who(k.Holder), where(k.Holder))
		}
		if k.Label != "" {
			text += fmt.Sprintf(", label %q,", k.Label)
		}
		if !k.Since.IsZero() {
			text += " for " + since(k.Since)
		}
		d.warn("locks", whatHolds(&k, len(list.Unanswered)), "%s", text)
	} else if len(list.Unanswered) == 0 {
		d.ok("locks", "no caller waits for %v", d.longWait)
	}
	d.heldFor(ctx, c)
	if list, err = c.Top(ctx, 1, coord.MostWaitedFor); err != nil || len(list.Keys) == 0 {
		return
	}
	if k = list.Keys[0]; k.Waiters >= hot && !k.Expected {
		d.warn("locks", "let fewer callers want one key: split it, do several orders in one turn, or use RLock where they only read (docs/runbook.md, HoldfastWaits)",
			"key %q is hot: %d callers wait for it", k.Key, k.Waiters)
	}
}

// whatHolds returns the advice on a key that callers wait for.
func whatHolds(k *coord.KeySummary, unanswered int) string {
	switch {
	case k.Holder != nil:
		return "look what that process does (a stack dump); holdfast inspect tells more, holdfast break frees the key"
	case unanswered > 0:
		return "a process that could not be asked may hold it: see what is said of the nodes; holdfast inspect tells what the key's owner knows"
	}
	return "look again: it may have just been given back; if that lasts, its owner or the arbiter does not grant it: see what is said of the partitions, of Grace and of the nodes, " +
		"and what holdfast inspect tells"
}

// heldFor looks for a lock that is held on and on while callers come, wait, and give up: none of
// them waits for long.
func (d *doctor) heldFor(ctx context.Context, c *coord.Coordinator) {
	list, err := c.Top(ctx, mostWanted, coord.LongestWanted)
	if err != nil {
		return // the error was told
	}
	for _, k := range list.Keys {
		held, waits := !k.Since.IsZero() && time.Since(k.Since) > longHold*d.longWait, !k.Waiting.IsZero() && time.Since(k.Waiting) > d.longWait
		if k.Holder == nil || !k.Wanted || k.Expected || !held || waits { // long waits were told
			continue
		}
		text := fmt.Sprintf("key %q has been held for %s by %s (%s)", k.Key, since(k.Since), who(k.Holder), where(k.Holder))
		if k.Label != "" {
			text += fmt.Sprintf(", label %q", k.Label)
		}
		d.warn("locks", "look what that process does (a stack dump); holdfast inspect tells more, holdfast break frees the key (docs/runbook.md, HoldfastHeld)",
			"%s; others have wanted it since, and may have given up", text)
		return
	}
}

// longHold is how many long waits a wanted lock is held before doctor reports it. mostWanted is the
// most wanted locks that it looks at.
const (
	longHold   = 12
	mostWanted = 100
)

// slowRenewal is doctor's limit for the renewal of a node's session.
const slowRenewal = 250 * time.Millisecond

// hot is the number of waiters that makes a key hot for doctor.
const hot = 50
