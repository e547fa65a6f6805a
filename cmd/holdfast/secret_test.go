package main

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/coord"
)

// telling are nodes as they answer, by the keys of their gossip: "?" does not answer, and an empty
// one is of a release before.
func telling(keys ...string) (all []nodeView) {
	for i, key := range keys {
		n := nodeView{NodeInfo: coord.NodeInfo{Name: string(rune('a' + i))}, Error: "no answer"}
		if key != "?" {
			n.Report, n.Error = &coord.NodeReport{Gossip: key}, ""
		}
		all = append(all, n)
	}
	return all
}

// A rotation begins where no other one is under way and the gossip depends on it, and is over once
// all nodes say so.
func TestRotateSecret_BeginsAndEnds(t *testing.T) {
	for name, x := range map[string]struct {
		looks [][]nodeView // the last one lasts
		begun bool
		nodes int
		err   string
	}{
		"all take it":               {[][]nodeView{telling("1", "1"), telling("1", "1"), telling("2", "1"), telling("2", "2")}, true, 2, ""},
		"a node of before":          {[][]nodeView{telling("1", ""), telling("2", "")}, true, 2, ""},
		"a node that is frozen":     {[][]nodeView{telling("1", "?"), telling("2", "?")}, true, 0, "b (no answer)"},
		"one that does not renew":   {[][]nodeView{telling("1", "1", "1"), telling("2", "1", "2")}, true, 0, "yet: b:"},
		"none tells":                {[][]nodeView{telling("?", "")}, true, 0, "none of them tells"},
		"no cluster":                {[][]nodeView{nil}, true, 0, ""},
		"another one under way":     {[][]nodeView{telling("2", "1", "2")}, false, 0, "b encrypts"},
		"keys of the application's": {[][]nodeView{telling("1", coord.OwnGossipKeys)}, false, 0, "node b encrypts with Options.Cluster.GossipKeys"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				begun := false
				n, err := rotated(ctx, func() []nodeView {
					now := x.looks[0]
					x.looks = x.looks[min(1, len(x.looks)-1):]
					return now
				}, func() error { begun = true; return nil })
				if begun != x.begun || n != x.nodes || (err != nil) != (x.err != "") || err != nil && !strings.Contains(err.Error(), x.err) {
					t.Errorf("begun: %t, %d nodes, %v", begun, n, err)
				}
			})
		})
	}
}

// The nodes that are left are those by their last answers, also if the wait ends while they are
// asked again; and an arbiter's refusal is told.
func TestRotateSecret_TheWaitEndsWhileNodesAreAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 250*time.Millisecond)
		defer cancel()
		n := 0
		_, err := rotated(ctx, func() []nodeView {
			if n++; n < 3 {
				return telling("1", "2")[:1]
			}
			<-ctx.Done()
			return telling("?")
		}, func() error { return nil })
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "yet: a:") {
			t.Error(err)
		}
	})
	refused := errors.New("NOPERM")
	if _, err := rotated(t.Context(), func() []nodeView { return telling("1") }, func() error { return refused }); !errors.Is(err, refused) {
		t.Error(err)
	}
}

// The command rotates the secret of a cluster that runs, as its nodes tell, and doctor finds no
// node that is left behind.
func TestRotateSecret_OfACluster(t *testing.T) {
	n := newNamespace(t)
	anna, berta := n.node("anna"), n.node("berta")
	settled(t, anna, berta)
	gossip := func(c *coord.Coordinator) string {
		r, err := c.Report(t.Context(), "")
		if err != nil {
			t.Fatal(err)
		}
		return r.Gossip
	}
	before := gossip(anna)
	if before == "" || before != gossip(berta) {
		t.Fatalf("before: %q and %q", before, gossip(berta))
	}
	if out := n.start("rotate-secret").want(0); !strings.Contains(out, "2 nodes encrypt with the new secret") {
		t.Errorf("rotate-secret: %s", out)
	}
	if now := gossip(anna); now == before || now != gossip(berta) {
		t.Errorf("after: %q and %q, %q before", now, gossip(berta), before)
	}
	if out := n.start("doctor").want(0); strings.Contains(out, "gossip") {
		t.Errorf("doctor: %s", out)
	}
}

// Doctor names the node that does not take part in a rotation.
func TestDoctor_ANodeWithAnotherSecret(t *testing.T) {
	for name, x := range map[string]struct {
		all  []nodeView
		want string
		do   string
	}{
		"one of them":    {telling("2", "1", "2", ""), "b encrypts", "renew"},
		"its own":        {telling("2", "2", coord.OwnGossipKeys), "c encrypts", "GossipKeys"},
		"all well":       {telling("2", "", "2", "?"), "", ""},
		"keys of theirs": {telling(coord.OwnGossipKeys, coord.OwnGossipKeys), "", ""},
	} {
		d := &doctor{}
		d.secrets(x.all)
		if len(d.all) != min(1, len(x.want)) || x.want != "" && (!strings.Contains(d.all[0].Text, x.want) || !strings.Contains(d.all[0].Do, x.do)) {
			t.Errorf("%s: %+v", name, d.all)
		}
	}
}
