package main

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/internal/lately"
	"github.com/holdfast-go/holdfast/internal/unfound"
	"github.com/holdfast-go/holdfast/ring"
)

func (d *doctor) members(ctx context.Context, x *survey) {
	if x.unlisted != nil {
		d.fail("processes", "see what is said of the arbiter", "%v", x.unlisted)
		return
	}
	all, rest := x.all, others(x.processes)
	if len(all) == 0 && len(rest) == 0 {
		d.fail("processes", "look at their logs for `no session`; if none runs, start the application",
			"no process has a session: they do not run, or use another server or namespace, or the arbiter refuses them (a password or an ACL that was changed, replicas that are away)")
		return
	}
	if len(all) > 0 && len(rest) > 0 {
		d.warn("processes", "set Cluster in all processes, or in none: a process without makes owners give partitions back",
			"%s of a cluster, and %d not, such as %s (%s)", plural(len(all), "process is a node", "processes are nodes"), len(rest), who(&rest[0]), where(&rest[0]))
	}
	l := x.list()
	d.sessionless(all, l)
	d.secrets(all)
	d.takeovers(all)
	versions := make(map[string]bool)
	for i := range all {
		n := &all[i]
		d.member(ctx, n, l)
		if n.Report != nil {
			versions[n.Report.Version] = true
		}
	}
	d.deaths(all)
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
	what := "node " + x.name(n.ID, n.Name)
	r := n.Report
	if r == nil {
		d.mute(ctx, n, x)
		return
	}
	bad := false
	if off := time.Since(r.Clock); off.Abs() > 5*time.Second {
		d.warn(what, "run NTP there, and let it slew the clock: a step forward by more than some seconds ends the node's session, and all its locks. Times in logs and tables are off",
			"its clock differs by %v from this host's", off.Round(time.Second))
		bad = true
	}
	seen, linked, joins := make(map[string]bool), 0, false
	for _, m := range r.Nodes {
		if m.State == "dead" {
			continue // the gossip is slower than the arbiter
		}
		if x.nodes[m.ID] {
			seen[m.ID] = true
		}
		switch {
		case m.Self, x.silent[m.ID] && !m.Linked: // mute tells of it
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
			d.warn(what, do, "it has no stream to %s", x.name(m.ID, m.Name))
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
	if n, unseen := len(seen)+r.MoreNodes, x.unseen(seen); n < x.of && len(unseen) > 0 {
		text := fmt.Sprintf("it sees %d of %d nodes", n, x.of)
		if r.MoreNodes == 0 { // else the list may have left them out
			text += ", and not " + few(unseen)
		}
		d.warn(what, "open the gossip port by UDP and TCP between the nodes (docs/network.md)", "%s", text)
		bad = true
	}
	for _, text := range r.Troubles {
		if !x.ofSilent(text) {
			d.warn(what, "do what it says at its end", "%s", text)
			bad = true
		}
	}
	if r.State == "leaving" {
		d.warn(what, "nothing, if that is meant; else start it anew", "it gives its partitions away: Drain was called, or it closes")
		bad = true
	} else if !r.Settled && !bad && !joins && len(x.silent) == 0 { // while one is silent, that is why
		d.warn(what, "wait a few seconds", "it has not settled: %s", r.Missing)
		bad = true
	}
	if d.lostSessions(what, r) {
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
	d.failedRenewals(what, r)
	if !bad {
		d.ok(what, "%s, %s, %s, %s, up %v", where(&r.Process), plural(r.Owned, "partition", "partitions"), plural(linked, "stream", "streams"),
			plural(r.Locked, "locked key", "locked keys"), lasting(r.Up))
	}
}

// lostSessions tells how often a node has lost its session. It warns, and reports that, unless the
// last time is over for long.
func (d *doctor) lostSessions(what string, r *coord.NodeReport) (warned bool) {
	if r.Sessions < 2 {
		return false
	}
	text := fmt.Sprintf("it has lost its session, and all its locks, %s in %v", plural(r.Sessions-1, "time", "times"), lasting(r.Up))
	ago, known := lately.LostSession(r)
	if known {
		text += fmt.Sprintf(", the last time %v ago", lasting(ago))
	}
	if known && ago > lately.Recent {
		d.ok(what, "%s", text)
		return false
	}
	d.warn(what, "look at its log for \"session lost\": pauses of the process (CPU limits), the network, the arbiter", "%s", text)
	return true
}

// failedRenewals tells of renewals that failed. It warns unless all have succeeded for a while.
func (d *doctor) failedRenewals(what string, r *coord.NodeReport) {
	failed := r.Failed["renew"]
	if failed == 0 {
		return
	}
	text := fmt.Sprintf("%d of %s failed since its start", failed, plural(int(r.Calls["renew"]), "renewal", "renewals"))
	i := slices.IndexFunc(r.Failures, func(f coord.CallFailure) bool { return f.Op == "renew" })
	if i >= 0 {
		ago := r.Clock.Sub(r.Failures[i].Time)
		if text += fmt.Sprintf(", the last one %v ago", lasting(ago)); ago > recentRenewal {
			d.ok(what, "%s, and none since", text)
			return
		}
	}
	d.warn(what, "look after the arbiter and the network to it", "%s", text)
}

// recentRenewal is for how long doctor warns of a renewal that failed.
const recentRenewal = time.Minute

// deaths warns of nodes that have been declared dead lately, as the others remember.
func (d *doctor) deaths(all []nodeView) {
	dead, by, answers := make(map[string]lately.Death), make(map[string][]string), make(map[string]bool)
	for _, n := range all {
		if n.Report == nil {
			continue
		}
		answers[n.ID] = true
		for _, x := range lately.Deaths(n.Report) {
			if x.Ago > lately.Recent {
				continue
			}
			first, told := dead[x.Session]
			if !told || x.Ago > first.Ago { // the first that was told so
				dead[x.Session] = x
			}
			by[x.Session] = append(by[x.Session], n.Name)
		}
	}
	for _, session := range slices.SortedFunc(maps.Keys(dead), func(a, b string) int { return cmp.Or(cmp.Compare(dead[a].Ago, dead[b].Ago), cmp.Compare(a, b)) }) {
		x := dead[session]
		what := ring.Process(x.Node)
		if x.Process != "" {
			what += " (" + x.Process + ")"
		}
		text, do := fmt.Sprintf("it was declared dead %v ago (by %s), and its keys went to others", lasting(x.Ago), few(slices.Sorted(slices.Values(by[session])))),
			"if you did not end it: look whether it runs and gets CPU, and at its log"
		if x.Ended {
			text, do = text+"; its process had ended", "if you did not end it: look why it has, for example for its memory, and at its log"
		} else if answers[x.Node] {
			text, do = text+"; it has a session again", "it stood still, or was cut off: look at its CPU limits and its log (docs/runbook.md, HoldfastSessionLost)"
		}
		d.warn("node "+what, do, "%s", text)
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
		reason := u.Reason
		if strings.Contains(reason, noStream) {
			reason = noStream // what is said of the node has the error
		}
		d.warn("locks", "see what is said of the nodes", "%s could not be asked for all that they know, such as %s: %s", plural(n, "process", "processes"), who(&u.Process), reason)
	}
	var k coord.KeySummary
	if len(list.Keys) > 0 {
		k = list.Keys[0]
	}
	if wait := time.Since(k.Waiting); !k.Waiting.IsZero() && wait > d.longWait && !k.Expected {
		text := fmt.Sprintf("%s for key %q, the first for %v; ", plural(k.Waiters, "caller waits", "callers wait"), k.Key, lasting(wait))
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
