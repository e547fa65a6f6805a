//go:build unix

package zookeeper

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/fallback/arbitertest"
	"github.com/holdfast-go/holdfast/internal/storetest"
	"github.com/holdfast-go/holdfast/internal/takes"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Each arbiter has a connection of its own, as a process has.
func TestZookeeperConforms(t *testing.T) {
	shared := startEnsemble(t, 1)
	arbitertest.Run(t, arbitertest.Fixture{
		New: func(*testing.T) fallback.Arbiter { return New(shared.connect(), isNew) },
	})
}

func TestZookeeperConforms_Durable(t *testing.T) {
	takes.Seconds(t)
	members := 1
	if storetest.Full() {
		members = 3
	}
	arbitertest.RunDurable(t, func(t *testing.T) arbitertest.Cluster { return startEnsemble(t, members).injuries() })
}

func TestZookeeper_NoTwoHoldersOverKills(t *testing.T) {
	storetest.Minutes(t)
	e := startEnsemble(t, 3)
	var lines storetest.Lines
	var injuries []func()
	for range 4 {
		injuries = append(injuries, e.killLeader, e.restart, func() { _, goOn := e.old(); goOn() }, func() {
			heal := e.stopFollower()
			time.AfterFunc(3*time.Second, heal)
		}, func() { lines.Cut(4 * time.Second) })
	}
	storetest.NoTwoHolders(t, func() fallback.Arbiter { return e.arbiterBy(lines.Another(t), isNew) }, injuries...)
}

// Older data are put back while processes hold locks, as README.md says to do it.
func TestZookeeper_NoTwoHoldersOverRestores(t *testing.T) {
	storetest.Minutes(t)
	e := startEnsemble(t, 1)
	var lines storetest.Lines
	var injuries []func()
	for range 4 {
		injuries = append(injuries, lines.Restored(e.copied, e.unmark)...)
	}
	storetest.NoTwoHolders(t, func() fallback.Arbiter { return e.arbiterBy(lines.Another(t), nil) }, injuries...)
}

func TestZookeeper_WhatItCostsAtRest(t *testing.T) {
	storetest.Minutes(t)
	storetest.AtRest(t, newStore(startEnsemble(t, 1).connect(), nil), recordsOptions(isNew))
}

// Old data in the ensemble that wrote them are told by the processes that have seen newer ones. The
// servers refuse the connection, which has seen later changes than they have, if they count from
// before.
func TestZookeeper_ARestoredSnapshotIsNoticed(t *testing.T) {
	takes.Seconds(t)
	e := startEnsemble(t, 1)
	storetest.OldDataAreNoticed(t, New(e.connect(), isNew), e.copied)
}

func TestZookeeper_TokensRiseOverARestore(t *testing.T) {
	takes.Seconds(t)
	e := startEnsemble(t, 1)
	storetest.TokensRise(t, func() fallback.Arbiter { return New(e.connect(), nil) }, e.copied, e.unmark)
}

// Missing data are in Grace for a process that was there before.
func TestZookeeper_AnEmptiedEnsembleIsNoticed(t *testing.T) {
	takes.Seconds(t)
	e := startEnsemble(t, 1)
	back := e.copied()
	n := storetest.Attach(t, New(e.connect(), isNew))
	if _, err := n.Open(t.Context(), "alice", fallback.Registration{TTL: time.Hour}); err != nil {
		t.Fatal(err)
	}
	storetest.Lock(t, n, "k", storetest.Alice)
	back() // to before the first process
	storetest.InGrace(t, n, "k", 0)
	r, err := n.Renew(t.Context(), "alice", fallback.Registration{TTL: time.Hour})
	if err != nil || r.Grace == 0 {
		t.Errorf("Renew: %+v, %v", r, err)
	}
}

// taken asks for a key, which another session has.
func taken(t *testing.T, n fallback.Namespace) fallback.LockAnswer {
	t.Helper()
	a, err := n.Lock(t.Context(), fallback.LockRequest{Key: "k", Me: storetest.Bob, Block: 1})
	if err != nil || a.Verdict != fallback.Held {
		t.Fatalf("Lock: %+v, %v", a, err)
	}
	return a
}

// A leader does not know at once that others have replaced it.
func TestZookeeper_ALeaderAloneAnswersNoRead(t *testing.T) {
	takes.Seconds(t)
	e := startEnsemble(t, 3)
	leader := e.leader(-1)
	n := storetest.Attach(t, New(e.connect(leader), isNew))
	storetest.Lock(t, n, "k", storetest.Alice)
	var goOn []func()
	for i, m := range e.members {
		if i != leader {
			goOn = append(goOn, m.Stop())
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if r, err := n.Load(ctx, 0); err == nil {
		t.Errorf("Load: %+v", r)
	}
	for _, f := range goOn {
		f()
	}
	if a := taken(t, n); a.Holder.Identity != storetest.Alice {
		t.Errorf("the holder is %+v", a.Holder)
	}
}

// A valve is a gate for connections.
type valve struct {
	mu     sync.Mutex // protects the fields below
	closed bool
	conns  []net.Conn
	lose   func(written []byte) bool // after such a request no answer comes, and the connection ends
}

type valved struct {
	net.Conn
	valve *valve
	lost  chan struct{}
}

func (v *valve) dial(network, address string, timeout time.Duration) (net.Conn, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.closed {
		return nil, errors.New("the valve is closed")
	}
	conn, err := net.DialTimeout(network, address, timeout)
	if err != nil {
		return nil, err
	}
	v.conns = append(v.conns, conn)
	return &valved{conn, v, make(chan struct{})}, nil
}

// set closes the valve, or opens it.
func (v *valve) set(closed bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.closed = closed; closed {
		for _, c := range v.conns {
			_ = c.Close()
		}
	}
}

func (c *valved) Write(b []byte) (int, error) {
	c.valve.mu.Lock()
	lose := c.valve.lose != nil && c.valve.lose(b)
	if lose {
		c.valve.lose = nil
	}
	c.valve.mu.Unlock()
	if lose {
		close(c.lost)
	}
	return c.Conn.Write(b)
}

func (c *valved) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	select {
	case <-c.lost:
		_ = c.Conn.Close()
		return 0, errors.New("the answer is lost")
	default:
		return n, err
	}
}

// valvedStore is one whose connection goes through a valve.
func (e *ensemble) valvedStore(timeout time.Duration) (s *store, v *valve, conns func() []*zk.Conn) {
	v = new(valve)
	var mu sync.Mutex
	var made []*zk.Conn
	s = newStore(func() (*zk.Conn, error) {
		conn, err := e.dial(timeout, v.dial)
		mu.Lock()
		defer mu.Unlock()
		made = append(made, conn)
		return conn, err
	}, nil)
	return s, v, func() []*zk.Conn {
		mu.Lock()
		defer mu.Unlock()
		return made
	}
}

// A session of ZooKeeper that has ended takes nothing along.
func TestZookeeper_AnExpiredSessionDoesNotMatter(t *testing.T) {
	takes.Seconds(t)
	e := startEnsemble(t, 1)
	s, v, conns := e.valvedStore(time.Second)
	n := storetest.Attach(t, fallback.NewRecords(s, recordsOptions(isNew)))
	if _, err := n.Open(t.Context(), "alice", fallback.Registration{TTL: time.Hour}); err != nil {
		t.Fatal(err)
	}
	held := storetest.Lock(t, n, "k", storetest.Alice)
	mine := conns()[0]
	if _, err := mine.Create("/ends", nil, zk.FlagEphemeral, zk.WorldACL(zk.PermAll)); err != nil {
		t.Fatal(err)
	}
	was := mine.SessionID()
	other, err := e.dial(5*time.Second, net.DialTimeout)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	there, _, ended, err := other.ExistsW("/ends")
	if err != nil || !there {
		t.Fatal(there, err)
	}
	v.set(true)
	if event := <-ended; event.Type != zk.EventNodeDeleted {
		t.Fatalf("%+v", event)
	}
	v.set(false)
	a := taken(t, n)
	if a.Holder.Identity != storetest.Alice || a.Holder.Token != held.Token || a.Record.Grace != 0 {
		t.Errorf("%+v, want as before: %+v", a, held)
	}
	r, err := n.Renew(t.Context(), "alice", fallback.Registration{TTL: time.Hour})
	if err != nil || !r.Alive || r.Grace != 0 {
		t.Errorf("Renew: %+v, %v", r, err)
	}
	if now := conns(); now[len(now)-1].SessionID() == was {
		t.Error("the session has not ended")
	}
}

// A write whose answer is lost may have been executed, and says so.
func TestZookeeper_ALostAnswerIsUncertain(t *testing.T) {
	e := startEnsemble(t, 1)
	s, v, _ := e.valvedStore(10 * time.Second)
	if err := s.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	look, err := s.Load(t.Context(), []string{"k"})
	if err != nil {
		t.Fatal(err)
	}
	v.mu.Lock()
	v.lose = func(b []byte) bool { return strings.Contains(string(b), "of which the answer is lost") }
	v.mu.Unlock()
	done, err := s.Swap(t.Context(), look.Server, []fallback.Change{{Key: "k", Value: []byte("of which the answer is lost")}})
	if err == nil || errors.Is(err, fallback.ErrNotSent) || errors.Is(err, fallback.ErrRefused) {
		t.Errorf("Swap: %v, %v, want an error that says nothing", done, err)
	}
	if look, err = s.Load(t.Context(), []string{"k"}); err != nil || string(look.Values[0].Value) != "of which the answer is lost" {
		t.Errorf("%+v, %v, want what was written", look, err)
	}
	done, err = s.Swap(t.Context(), look.Server, []fallback.Change{{Key: "k", Value: []byte("again")}})
	if err != nil || done[0] {
		t.Errorf("a second time: %v, %v", done, err)
	}
}

func TestZookeeper_ManyRecordsAtOnce(t *testing.T) {
	s := newStore(startEnsemble(t, 1).connect(), &Options{Root: "/some/where/many"})
	if err := s.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	storetest.Many(t, s, storetest.Names("ns/k", 100), 10_000, nil)
	if done, err := s.Swap(t.Context(), markPrefix+"another", []fallback.Change{{Key: "new"}}); err != nil || done[0] {
		t.Errorf("a swap at another server: %v, %v", done, err)
	}
	storetest.Largest(t, s, "large", maxBytes)
}

func TestZookeeper_Refuses(t *testing.T) {
	e := startEnsemble(t, 1)
	refused := func(connect func() (*zk.Conn, error), opts *Options, why string) {
		t.Helper()
		storetest.Refused(t, New(connect, opts), why)
	}
	refused(nil, nil, "connects")
	refused(e.connect(), &Options{Root: "holdfast"}, "Root")
	refused(e.connect(), &Options{Root: "/holdfast/"}, "Root")
	app := func() (*zk.Conn, error) {
		conn, err := e.connect()()
		if err == nil {
			if err = conn.AddAuth("digest", []byte("app:secret")); err != nil {
				conn.Close()
			}
		}
		return conn, err
	}
	storetest.Attach(t, New(app, &Options{ACL: zk.AuthACL(zk.PermAll)}))
	refused(e.connect(), nil, "rights")
	admin, err := app()
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close()
	if _, err := admin.Create("/foreign", []byte("text"), 0, zk.WorldACL(zk.PermAll)); err != nil {
		t.Fatal(err)
	}
	refused(app, &Options{Root: "/foreign"}, "another program")
	if _, err := admin.Create("/ours", nil, 0, zk.DigestACL(zk.PermRead|zk.PermWrite|zk.PermCreate, "app", "secret")); err != nil {
		t.Fatal(err)
	}
	n := storetest.Attach(t, New(app, &Options{Root: "/ours", ColdStart: true, ACL: zk.DigestACL(zk.PermRead|zk.PermWrite|zk.PermCreate, "app", "secret")}))
	storetest.Lock(t, n, "k", storetest.Alice)
}
