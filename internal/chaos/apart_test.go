//go:build linux

package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/takes"
)

var full = flag.Bool("chaos.full", false, "run every scene of two arbiters")

// Hosts of the second cluster, beside those of the first one.
var otherHosts = []string{"m1", "m2", "r2"}

// apart starts a cluster, whose hosts reach those of another one that beside makes later.
func apart(t *testing.T, change func(cfg *config)) *running {
	return scene(t, func(cfg *config) {
		cfg.Nodes, cfg.Keys, cfg.Others = 2, 4, otherHosts
		cfg.Times = times{TTL: 4 * time.Second, Grace: 6 * time.Second, Keepalive: 400 * time.Millisecond, Debounce: time.Second}
		change(cfg)
	})
}

// beside starts a server for a second cluster. Its nodes can talk with those of the first one. data
// is copied to it.
func (r *running) beside(t *testing.T, data []byte) *running {
	t.Helper()
	q := &running{cfg: r.cfg, dir: filepath.Join(r.dir, "other"), net: r.net, servers: &servers{topology: "single"}}
	home := filepath.Join(q.dir, "r2")
	if err := os.MkdirAll(home, 0o700); err != nil {
		t.Fatal(err)
	}
	if data != nil {
		if err := os.WriteFile(filepath.Join(home, "dump.rdb"), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	h := r.net.Host("r2")
	d := &dataServer{host: h, dir: home}
	var err error
	if d.Server, err = redistest.NewAt(redistest.Place{Addr: h.Addr + redisPort, Command: h.In()}, home); err != nil {
		t.Fatal(err)
	}
	q.servers.data, q.servers.addrs = []*dataServer{d}, []string{d.Addr}
	go q.watch.Run(func(time.Duration) {})
	t.Cleanup(func() {
		q.net = nil // it is the other one's
		if err := q.tearDown(); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			q.show(t)
		}
	})
	if err := q.openResource(t.Context()); err != nil {
		t.Fatal(err)
	}
	return q
}

// works adds nodes, if any are named, and waits until all that are up have locked each key.
func (r *running) works(t *testing.T, names ...string) {
	t.Helper()
	from := now()
	for _, name := range names {
		if err := r.addSeat(name); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := r.recover(t.Context(), from, true); err != nil {
		t.Fatal(err)
	}
	if r.begun == 0 { // before, a copy is in Grace
		r.begun = now()
	}
}

// separate judges both clusters, each by itself: no two holders of a key, and no node has a stream
// to another cluster's.
func separate(t *testing.T, all ...*running) {
	t.Helper()
	for _, r := range all { // on a quick machine all the rest was seen after less
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		err := await(ctx, "150 sections", func() error {
			a, err := r.asks.ask(request{Op: "sum"})
			if err == nil && a.Tally.Ended < 150 {
				err = fmt.Errorf("%d sections", a.Tally.Ended)
			}
			return err
		})
		if cancel(); err != nil {
			t.Error(err)
		}
	}
	for _, r := range all {
		rep, err := r.finish(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range rep.Violations {
			if !strings.HasPrefix(v, "left at Redis") { // sessions of a copy end by time
				t.Error(v)
			}
		}
		if len(rep.history.holds) < 100 {
			t.Errorf("only %d locks", len(rep.history.holds))
		}
		for node, states := range rep.history.states {
			for _, e := range states {
				if e.State.Linked >= len(r.seats) {
					t.Errorf("%s has streams to %d other nodes of %d", node, e.State.Linked, len(r.seats)-1)
					break
				}
			}
		}
	}
}

// says waits until a node's log says something.
func (r *running) says(t *testing.T, what string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := await(ctx, "a log that says: "+what, func() error {
		for _, s := range r.seats {
			if text, err := os.ReadFile(filepath.Join(r.dir, s.host.Name+".log")); err == nil && strings.Contains(string(text), what) {
				return nil
			}
		}
		return os.ErrNotExist
	}); err != nil {
		t.Error(err)
	}
}

// Nodes that use a copy of the data, with its secret and its list of sessions, stay apart from the
// nodes of the original.
func TestApart_ACopyOfTheData(t *testing.T) {
	takes.Seconds(t)
	r := apart(t, func(*config) {})
	r.settle(t)
	client := r.servers.client()
	defer client.Close()
	if err := client.Save(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(filepath.Join(r.dir, "r1", "dump.rdb"))
	if err != nil {
		t.Fatal(err)
	}
	q := r.beside(t, data)
	q.works(t, "m1", "m2")
	r.works(t)
	r.says(t, "the arbiter lists no session of it")
	separate(t, r, q)
}

// Two clusters that have begun on empty servers of their own, and whose nodes have the same Seeds,
// stay apart, and say why.
func TestApart_TheSameSeeds(t *testing.T) {
	takes.Seconds(t)
	if !*full {
		t.Skip("-chaos.full runs it")
	}
	seeds := []string{"n1", "m1"}
	r := apart(t, func(cfg *config) { cfg.Seeds = seeds })
	q := r.beside(t, nil)
	q.works(t, "m1", "m2")
	r.works(t)
	r.says(t, "it has other keys")
	q.says(t, "it has other keys")
	separate(t, r, q)
}

// The address of Redis changes in a rolling restart, so that for a while nodes of one service use
// two arbiters.
func TestApart_AnAddressThatChanges(t *testing.T) {
	takes.Seconds(t)
	if !*full {
		t.Skip("-chaos.full runs it")
	}
	r := apart(t, func(*config) {})
	r.settle(t)
	q := r.beside(t, nil)
	change := &round{Faults: []string{"restarts"}, Begin: now()}
	all := r.seats
	for _, s := range all {
		if err := s.leave(); err != nil {
			t.Fatal(err)
		}
		q.works(t, s.host.Name)
		if r.seats = r.seats[1:]; len(r.seats) > 0 {
			r.works(t)
			r.says(t, "it has other keys: it uses another arbiter")
		}
	}
	r.seats = all
	change.Healed, change.Recovered, change.End = now(), now(), now()
	r.rounds = append(r.rounds, change)
	separate(t, r, q)
}
