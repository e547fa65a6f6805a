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
)

// Doctor says that all partitions have a living owner only where they have.
func TestDoctor_Partitions(t *testing.T) {
	owned, orphan := coord.PartitionInfo{Owner: &coord.Process{Name: "anna"}}, coord.PartitionInfo{Owner: &coord.Process{Session: "ended"}}
	for name, x := range map[string]struct {
		second coord.PartitionInfo
		want   []string
	}{
		"all is well":           {owned, []string{"ok partitions"}},
		"without an owner":      {coord.PartitionInfo{}, []string{"warn partitions"}},
		"Grace":                 {coord.PartitionInfo{Owner: owned.Owner, Grace: time.Second}, []string{"warn Grace", "ok partitions"}},
		"Grace and no owner":    {coord.PartitionInfo{Grace: time.Second}, []string{"warn Grace"}},
		"one that is not read":  {coord.PartitionInfo{Error: "timeout"}, []string{"fail partitions"}},
		"the owner has crashed": {orphan, []string{"warn partitions"}},
	} {
		t.Run(name, func(t *testing.T) {
			d := &doctor{}
			d.owners([]coord.PartitionInfo{owned, x.second}, 2)
			var got []string
			for _, f := range d.all {
				got = append(got, f.Level+" "+f.What)
			}
			if !slices.Equal(got, x.want) {
				t.Errorf("%v, want %v", got, x.want)
			}
		})
	}
}

// What a node tells of those it hears. One that has lost its session is told once, as such; one
// that names a session that the arbiter does not know is of a copy of the data; and nodes that did
// not fit into a report are there.
func TestDoctor_WhatANodeHears(t *testing.T) {
	report := func(name string, more int, others ...coord.NodeInfo) nodeView {
		self := coord.NodeInfo{Name: name, State: "active", Self: true}
		return nodeView{NodeInfo: self, Report: &coord.NodeReport{
			Process: coord.Process{Name: name}, Clock: time.Now(), State: "active", Sessions: 1, Nodes: append(others, self), MoreNodes: more, Settled: len(others) == 0,
		}}
	}
	lost, copied := coord.NodeInfo{Name: "dora", State: "unlisted"}, coord.NodeInfo{Name: "dora", State: "unlisted", Session: "theirs"}
	for name, x := range map[string]struct {
		all  []nodeView
		of   int
		want string
	}{
		"a session lost":        {[]nodeView{report("anna", 0, lost), report("berta", 0, lost)}, 1, "fail node dora, ok node anna, ok node berta"},
		"a copy of the data":    {[]nodeView{report("anna", 0, copied)}, 1, "fail node anna"},
		"a list that is cut":    {[]nodeView{report("anna", 119)}, 120, "ok node anna"},
		"a node that is unseen": {[]nodeView{report("anna", 118)}, 120, "warn node anna"},
		"unseen, and one lost":  {[]nodeView{report("anna", 118, lost)}, 120, "fail node dora, warn node anna"},
	} {
		d := &doctor{}
		d.sessionless(x.all)
		for i := range x.all {
			d.member(t.Context(), &x.all[i], x.of)
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
		if strings.Join(got, ", ") != x.want {
			t.Errorf("%s: %v, want %s", name, d.all, x.want)
		}
	}
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
