package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/internal/await"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/peer"
)

// Doctor says that all partitions have a living owner only where they have, that owners go on
// granting only where there are some, and to wait only where that may help.
func TestDoctor_Partitions(t *testing.T) {
	anna := &coord.Process{Name: "anna", ID: "anna/1"}
	owned, orphan := coord.PartitionInfo{Owner: anna}, coord.PartitionInfo{Owner: &coord.Process{Session: "ended"}}
	killed := coord.PartitionInfo{Owner: &coord.Process{Name: "berta", ID: "berta/1", Host: "vm", PID: 7}}
	node := func(id string, report *coord.NodeReport) nodeView {
		name, _, _ := strings.Cut(id, "/")
		return nodeView{NodeInfo: coord.NodeInfo{Name: name, ID: id, Takeover: 3 * time.Second}, Report: report}
	}
	graced := func(p coord.PartitionInfo) coord.PartitionInfo { p.Grace = 9 * time.Second; return p }
	well, none := node("anna/1", &coord.NodeReport{Owned: 2}), node("anna/1", &coord.NodeReport{})
	apart := node("anna/1", &coord.NodeReport{Owned: 1, Troubles: []string{"a node is not reachable, for 41s"}})
	for name, x := range map[string]struct {
		first, second coord.PartitionInfo
		nodes         []nodeView
		want          string
		text, do      string // of the last finding
	}{
		"all is well":       {owned, owned, []nodeView{well}, "ok partitions", "all of 2 have a living owner", ""},
		"without an owner":  {owned, coord.PartitionInfo{}, []nodeView{node("anna/1", &coord.NodeReport{Owned: 1})}, "warn partitions", "1 of 2 partitions has no owner", "wait a few seconds"},
		"and out of reach":  {owned, coord.PartitionInfo{}, []nodeView{apart}, "warn partitions", "1 of 2 partitions has no owner", "see what is said of the nodes"},
		"and one is silent": {owned, coord.PartitionInfo{}, []nodeView{well, node("berta/1", nil)}, "warn partitions", "1 of 2 partitions has no owner", "see what is said of the nodes"},
		"Grace":             {owned, graced(owned), []nodeView{well}, "warn Grace, ok partitions", "", ""},
		"Grace, and owners that reclaim": {
			graced(coord.PartitionInfo{}), graced(coord.PartitionInfo{}), []nodeView{well}, "warn Grace", "9s are left", "owners do",
		},
		"Grace and some owners": {
			owned, graced(coord.PartitionInfo{}), []nodeView{node("anna/1", &coord.NodeReport{Owned: 1})}, "warn Grace", "1 of 2 partitions has no owner that answers", "owners do",
		},
		"Grace and no owner": {
			graced(coord.PartitionInfo{}), graced(coord.PartitionInfo{}), []nodeView{none}, "warn Grace", "no process owns keys: all locks that are not held already wait for another 9s", "wait",
		},
		"one that is not read":  {owned, coord.PartitionInfo{Error: "timeout"}, []nodeView{well}, "fail partitions", "timeout", ""},
		"the owner has crashed": {owned, orphan, []nodeView{well}, "warn partitions", "1 partition belongs to sessions that have ended", ""},
		"the owner answers nobody": {
			owned, killed, []nodeView{well, node("berta/1", nil)}, "warn partitions",
			"1 of 2 partitions belongs to berta, which does not answer: if it has ended or stands still, its keys wait until it is found dead (Cluster.Takeover, 3s)", "",
		},
		"the owner refuses this command": {owned, killed, []nodeView{well, {NodeInfo: node("berta/1", nil).NodeInfo, err: peer.ErrSharedKeys}}, "ok partitions", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			d := &doctor{}
			d.owners([]coord.PartitionInfo{x.first, x.second}, x.nodes)
			var got []string
			for _, f := range d.all {
				got = append(got, f.Level+" "+f.What)
			}
			last := d.all[len(d.all)-1]
			if strings.Join(got, ", ") != x.want || !strings.Contains(last.Text, x.text) || !strings.Contains(last.Do, x.do) {
				t.Errorf("%+v, want %s, %q, to do %q", d.all, x.want, x.text, x.do)
			}
			if name == "Grace and no owner" && strings.Contains(last.Text+last.Do, "owners") {
				t.Errorf("of no owner: %+v", last)
			}
		})
	}
}

// A node's report of the nodes that it hears. One that has no session, or has lost it, is told
// once, as such; one that names a session that the arbiter does not know is of a copy of the data;
// one whose session the arbiter knows by now is none; and nodes that did not fit into a report are
// there.
func TestDoctor_WhatANodeHears(t *testing.T) {
	report := func(name string, more int, others ...coord.NodeInfo) nodeView {
		self := coord.NodeInfo{Name: name, ID: name, Session: name, State: "active", Self: true}
		return nodeView{NodeInfo: self, Report: &coord.NodeReport{
			Process: coord.Process{Name: name}, Clock: time.Now(), State: "active", Sessions: 1, Nodes: append(others, self), MoreNodes: more, Settled: len(others) == 0,
		}}
	}
	dora := func(state, session, refused string) coord.NodeInfo {
		return coord.NodeInfo{Name: "dora", ID: "dora", State: state, Session: session, Linked: refused == "", Refused: refused}
	}
	const stranger, other = `peer: refused by the other side: "not a member"`, "peer: refused: not a member: coord: node \"dora\": the arbiter lists no session of it: it may have just started"
	lost, copied := dora("unlisted", "", ""), dora("unlisted", "theirs", "")
	for name, x := range map[string]struct {
		all  []nodeView
		of   int
		want string
		do   string // of the last finding
	}{
		"a session lost":           {[]nodeView{report("anna", 0, lost), report("berta", 0, lost)}, 1, "fail node dora, ok node anna, ok node berta", ""},
		"a session lost, and dead": {[]nodeView{report("anna", 0, dora("dead", "", ""))}, 1, "fail node dora, warn node anna", "wait"},
		"lost, and listed yet":     {[]nodeView{report("anna", 0, dora("joining", "", ""))}, 1, "fail node dora, ok node anna", ""},
		"a node that has crashed":  {[]nodeView{report("anna", 0, dora("dead", "hers", ""))}, 1, "warn node anna", "wait"},
		"a copy of the data":       {[]nodeView{report("anna", 0, copied)}, 1, "fail node anna", "rotate-secret"},
		"not asked since":          {[]nodeView{report("anna", 0, dora("unlisted", "berta", ""))}, 1, "warn node anna", "wait a few seconds"},
		"not known there":          {[]nodeView{report("anna", 0, dora("active", "berta", stranger))}, 1, "warn node anna", "dora does not reach the arbiter, or uses another one"},
		"not known here":           {[]nodeView{report("anna", 0, dora("active", "berta", other))}, 1, "warn node anna", "anna does not reach the arbiter, or uses another one"},
		"another key":              {[]nodeView{report("anna", 0, dora("active", "berta", "another key"))}, 1, "fail node anna", "the same Cluster.PeerKeys"},
		"a list that is cut":       {[]nodeView{report("anna", 119)}, 120, "ok node anna", ""},
		"a node that is unseen":    {[]nodeView{report("anna", 118)}, 120, "warn node anna", "gossip port"},
		"unseen, and one lost":     {[]nodeView{report("anna", 118, lost)}, 120, "fail node dora, warn node anna", "gossip port"},
	} {
		d, l := &doctor{}, &listing{of: x.of, nodes: map[string]bool{"anna": true, "berta": true}, sessions: map[string]bool{"anna": true, "berta": true}}
		d.sessionless(x.all, l)
		for i := range x.all {
			d.member(t.Context(), &x.all[i], l)
		}
		var got []string
		for _, f := range d.all {
			got = append(got, f.Level+" "+f.What)
			if strings.HasPrefix(f.Text, "it sees ") && f.Text != "it sees 119 of 120 nodes" {
				t.Errorf("%s: %s", name, f.Text)
			}
			if copies := strings.Contains(f.Do, "rotate-secret"); copies != (name == "a copy of the data") {
				t.Errorf("%s: %+v", name, f)
			}
		}
		if strings.Join(got, ", ") != x.want || !strings.Contains(d.all[len(d.all)-1].Do, x.do) {
			t.Errorf("%s: %v, want %s, to do %q", name, d.all, x.want, x.do)
		}
	}
}

// Nodes with another Cluster.Takeover are told, and which of them no node guards.
func TestDoctor_Takeovers(t *testing.T) {
	for want, all := range map[string]map[string]time.Duration{
		"": {"anna": 3 * time.Second, "berta": 3 * time.Second},
		"3s at anna, berta; 5s at clara. No node guards clara:":                   {"anna": 3 * time.Second, "berta": 3 * time.Second, "clara": 5 * time.Second},
		"3s at anna, berta; 5s at clara, dora":                                    {"anna": 3 * time.Second, "berta": 3 * time.Second, "clara": 5 * time.Second, "dora": 5 * time.Second},
		"none at anna, berta, clara and 1 more; 3s at emma. No node guards anna,": {"anna": 0, "berta": 0, "clara": 0, "dora": 0, "emma": 3 * time.Second},
	} {
		d := &doctor{}
		var list []nodeView
		for name, of := range all {
			list = append(list, nodeView{NodeInfo: coord.NodeInfo{Name: name, Takeover: of}})
		}
		d.takeovers(list)
		if want == "" && len(d.all) > 0 || want != "" && (len(d.all) != 1 || d.all[0].Level != "warn" || !strings.Contains(d.all[0].Text, want)) {
			t.Errorf("%v: %v, want %q", all, d.all, want)
		}
		if len(d.all) > 0 && strings.Contains(d.all[0].Text, "guards") != strings.Contains(want, "guards") {
			t.Errorf("%v: %v", all, d.all)
		}
	}
}

// The advice on a key that callers wait for depends on the information about its holder.
func TestDoctor_WhatHoldsAKey(t *testing.T) {
	for _, x := range []struct {
		holder     *coord.Process
		unanswered int
		want       string
	}{{&coord.Process{}, 1, "stack dump"}, {nil, 1, "could not be asked may hold it"}, {nil, 0, "look again"}} {
		if do := whatHolds(&coord.KeySummary{Holder: x.holder}, x.unanswered); !strings.Contains(do, x.want) || strings.Contains(do, "stack dump") != (x.holder != nil) {
			t.Errorf("%+v: %s", x, do)
		}
	}
}

// Package coord ends so the error of a node without a stream, for a reason that is not known.
func TestDoctor_KnowsThatThereIsNoStream(t *testing.T) {
	anna := newNamespace(t).node("anna")
	if _, err := anna.Report(t.Context(), "berta"); err == nil || !strings.HasSuffix(err.Error(), noStream) {
		t.Errorf("%v does not end with %q", err, noStream)
	}
}

// A node that does not reach the arbiter is told as such, from the moment on and until all is well
// again: neither keys nor ports are the cause.
func TestDoctor_ANodeThatDoesNotReachTheArbiter(t *testing.T) {
	n := newNamespace(t)
	anna, clara := n.node("anna"), n.node("clara")
	p := redistest.StartProxy(t, n.server.Addr)
	c := redis.NewClient(&redis.Options{Addr: p.Addr, ContextTimeoutEnabled: true})
	t.Cleanup(func() { _ = c.Close() })
	berta := (&namespace{t: t, server: n.server, client: c}).node("berta")
	settled(t, anna, berta, clara)
	says := func(text string) bool {
		t.Helper()
		_, out := n.start("doctor").ends()
		for _, wrong := range []string{"PeerKeys", "rotate-secret", "it may stand still"} {
			if strings.Contains(out, wrong) {
				t.Fatalf("doctor says %q of a node that does not reach the arbiter: %s", wrong, out)
			}
		}
		return strings.Contains(out, text)
	}
	p.Point("")
	await.Within(t, time.Minute, "doctor says that the node has no session", func() bool { return says("FAIL  node berta: it has no session at the arbiter") })
	for !slices.ContainsFunc(anna.Nodes(), func(i coord.NodeInfo) bool { return i.Name == "berta" && i.State == "unlisted" }) {
		if !says("FAIL  node berta: it has no session at the arbiter") {
			t.Fatal("doctor forgets it")
		}
	}
	p.Point(n.server.Addr)
	await.Within(t, time.Minute, "berta is there again", func() bool {
		return says("WARN  node berta: it has lost its session") && says("OK    node anna") && says("OK    node clara")
	})
}

// The users of an application's processes are closed at the server, first of one, then of all.
func TestDoctor_ProcessesThatTheServerRefuses(t *testing.T) {
	n := newNamespace(t)
	do := func(args ...any) {
		t.Helper()
		if err := n.client.Do(t.Context(), args...).Err(); err != nil {
			t.Fatal(err)
		}
	}
	var nodes []*coord.Coordinator
	for _, name := range []string{"anna", "berta"} {
		do("acl", "setuser", name, "on", ">p", "allkeys", "allchannels", "allcommands")
		c := redis.NewClient(&redis.Options{Addr: n.server.Addr, Username: name, Password: "p", ContextTimeoutEnabled: true})
		t.Cleanup(func() { _ = c.Close() })
		nodes = append(nodes, (&namespace{t: t, server: n.server, client: c}).node(name))
	}
	settled(t, nodes...)
	refuse := func(name string) {
		do("acl", "setuser", name, "off")
		do("client", "kill", "user", name)
	}
	says := func(text string) string {
		t.Helper()
		out := ""
		await.Within(t, time.Minute, text, func() bool {
			x := n.start("doctor")
			_, out = x.ends()
			return strings.Contains(out, text) && x.cmd.ProcessState.ExitCode() == 1
		})
		return out
	}
	refuse("berta")
	if out := says("FAIL  node berta: it has no session at the arbiter"); strings.Contains(out, "RotateSecret") || strings.Contains(out, "copy of the data") {
		t.Error(out)
	}
	refuse("anna")
	out := says("FAIL  processes: no process has a session")
	if !strings.Contains(out, "their logs for `no session`") || strings.Contains(out, "was killed") {
		t.Error(out)
	}
	if out := n.start("doctor", "--url", fmt.Sprintf("redis://anna:p@%s", n.server.Addr)).want(1); !strings.Contains(out, "they were changed at the server") {
		t.Error(out)
	}
}
