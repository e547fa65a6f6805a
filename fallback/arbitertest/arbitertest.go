// Package arbitertest checks that an arbiter keeps the contract of package fallback.
//
// [Run] is for the tests of every implementation of [fallback.Arbiter], third parties' included. It
// knows nothing but the interfaces: it attaches namespaces, plays the nodes that use them, and
// looks at the answers. Numbers of rules and invariants (I1 to I8) are those of docs/protocol.md.
//
//	func TestConformance(t *testing.T) {
//		arbitertest.Run(t, arbitertest.Fixture{
//			New: func(t *testing.T) fallback.Arbiter { return mine.New(startStore(t)) },
//		})
//	}
//
// [RunDurable] is beside it for a store that loses no acknowledged write. Its tests kill members,
// and cut them off.
package arbitertest

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/await"
)

// NamespacePrefix begins the name of every namespace that Run uses, so that a store's permissions
// can be set for them.
const NamespacePrefix = "arbitertest-"

// A Fixture makes the arbiters under test.
type Fixture struct {
	// New returns an arbiter whose new namespaces can be used at once, without Grace. The store
	// behind it may serve several tests at the same time: each has a namespace of its own.
	// Required.
	New func(t *testing.T) fallback.Arbiter

	// NewServer returns an arbiter on a store that serves one test only, because the test will
	// crash it. Nil: whatever is about Grace is skipped, which befits only an arbiter with
	// namespaces that are Unguarded, or Durable: see [RunDurable].
	NewServer func(t *testing.T) Server
}

// A Server is an arbiter on a store that can be made to fail over.
type Server struct {
	// Arbiter is as from Fixture.New.
	Arbiter fallback.Arbiter

	// Save copies the store's state, as a replica does that then stops following. Nil: after a
	// crash this store never has older data, but none, as AlwaysEmpty says. Then tests have the
	// state of such a copy reclaimed at once, which has to lead to the same state.
	Save func()

	// AlwaysEmpty says why Save is nil. Required then.
	AlwaysEmpty string

	// Crash ends the server, and another one takes its place, with the state last saved, or empty
	// if Save was never called. It returns when the new server answers; namespaces that are
	// attached need no other care.
	Crash func()

	// Step steps the clock of the store, as an operator does. Nil: the arbiter does not promise
	// that no step does harm, or has no clock that could be stepped, and the tests of that are
	// skipped.
	Step func(by time.Duration)

	// NoStep says why Step is nil. Optional.
	NoStep string
}

// save is Save, of a store that has it.
func (x Server) save() {
	if x.Save != nil {
		x.Save()
	}
}

// start starts a server for a test.
func (f Fixture) start(t *testing.T) Server {
	t.Helper()
	x := f.NewServer(t)
	if (x.Save == nil) != (x.AlwaysEmpty != "") {
		t.Fatal("the fixture's server has to have Save, or to say why not in AlwaysEmpty")
	}
	return x
}

// patience is the time to wait for an event that must happen: long, because machines that run tests
// can be slow.
const patience = 30 * time.Second

// test is a sentence about arbiters, and its proof.
type test struct {
	name string
	run  func(s *space)
}

// graceTest is a test that crashes the server.
type graceTest struct {
	name  string
	grace time.Duration // Q: an hour unless its end is to be seen
	run   func(s *space, server Server)
}

// Run checks the arbiters that f makes, in parallel subtests, each named by its sentence. It takes
// a few seconds.
func Run(t *testing.T, f Fixture) {
	t.Helper()
	groups := []struct {
		name  string
		tests []test
	}{
		{"Attach", attachTests},
		{"Sessions", sessionTests},
		{"Length of Grace", lengthTests},
		{"Burials", burialTests},
		{"Holds", holdTests},
		{"Modes", modeTests},
		{"Waiting", waitingTests},
		{"Owners", ownerTests},
		{"Results", resultTests},
	}
	for _, g := range groups {
		t.Run(g.name, func(t *testing.T) {
			t.Parallel()
			for _, x := range g.tests {
				t.Run(x.name, func(t *testing.T) {
					t.Parallel()
					x.run(newSpace(t, f.New(t), time.Hour))
				})
			}
		})
	}
	t.Run("Grace", func(t *testing.T) {
		t.Parallel()
		if f.NewServer == nil {
			t.Skip("the fixture has no server to crash")
		}
		for _, x := range graceTests {
			t.Run(x.name, func(t *testing.T) {
				t.Parallel()
				server := f.start(t)
				x.run(newSpace(t, server.Arbiter, x.grace), server)
			})
		}
	})
	t.Run("Clock", func(t *testing.T) {
		t.Parallel()
		if f.NewServer == nil {
			t.Skip("the fixture has no server with a clock")
		}
		for _, x := range clockTests {
			t.Run(x.name, func(t *testing.T) {
				t.Parallel()
				server := f.start(t)
				if server.Step == nil {
					t.Skip(cmp.Or(server.NoStep, "the fixture does not step its clock"))
				}
				x.run(newSpace(t, server.Arbiter, x.grace), server)
			})
		}
	})
}

// space is a namespace under test. Its helpers end the test on an error, and deal with partition 0
// unless they say otherwise.
type space struct {
	fallback.Namespace
	t        *testing.T
	ctx      context.Context
	arbiter  fallback.Arbiter
	settings fallback.Settings
	carried  *carried
}

func newSpace(t *testing.T, a fallback.Arbiter, grace time.Duration) *space {
	t.Helper()
	s := &space{
		t: t, ctx: t.Context(), arbiter: a, carried: new(carried),
		settings: fallback.Settings{Namespace: NamespacePrefix + rand.Text(), Partitions: 4, Grace: grace},
	}
	s.Namespace = s.attach()
	return s
}

// attach attaches to the namespace once more, as another process does.
func (s *space) attach() fallback.Namespace {
	s.t.Helper()
	n := must(s.arbiter.Attach(s.ctx, s.settings))(s)
	s.t.Cleanup(func() {
		if err := n.Close(); err != nil {
			s.t.Errorf("Close: %v", err)
		}
	})
	if c, ok := n.(fallback.Courier); ok && mute(n) {
		c.Carry(s.carried.send)
	}
	return n
}

func mute(n fallback.Namespace) bool {
	m, ok := n.(fallback.Mute)
	return ok && m.Mute()
}

// carried brings the messages of a [fallback.Courier] to the sessions.
type carried struct {
	mu  sync.Mutex // protects all
	all map[string]func(fallback.Message)
}

func (c *carried) send(session string, m fallback.Message) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if handle := c.all[session]; handle != nil {
		handle(m)
	}
}

func (c *carried) listen(session string, handle func(fallback.Message)) (stop func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.all == nil {
		c.all = make(map[string]func(fallback.Message))
	}
	c.all[session] = handle
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.all, session)
	}
}

func id(session string, request uint64) fallback.Identity {
	return fallback.Identity{Session: session, Request: request}
}

// must returns the answer of a call, or ends the test on its error: must(s.Load(ctx, 0))(s).
func must[T any](answer T, err error) func(*space) T {
	return func(s *space) T {
		s.t.Helper()
		if err != nil {
			s.t.Fatal(err)
		}
		return answer
	}
}

// want compares an answer with the expected one.
func want[T any](s *space, what string, got, want T) {
	s.t.Helper()
	if !reflect.DeepEqual(got, want) {
		s.t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

// eventually waits until f says yes.
func eventually(s *space, what string, f func() bool) {
	s.t.Helper()
	await.Within(s.t, patience, what, f)
}

func (s *space) load() fallback.Record {
	s.t.Helper()
	return must(s.Load(s.ctx, 0))(s)
}

// rows reads the rows of keys.
func (s *space) rows(keys ...string) []fallback.Row {
	s.t.Helper()
	states := must(verify(s.ctx, s, []fallback.Read{{Keys: keys}}))(s)
	if len(states) != 1 || len(states[0].Rows) != len(keys) {
		s.t.Fatalf("Verify of %d keys of one partition: %v", len(keys), states)
	}
	return states[0].Rows
}

// ask is Lock, of one token unless the request says otherwise.
func (s *space) ask(r fallback.LockRequest) fallback.LockAnswer {
	s.t.Helper()
	r.Block = max(r.Block, 1)
	return must(s.Lock(s.ctx, r))(s)
}

// wait is Lock by a caller that waits; try by one that does not.
func (s *space) wait(me fallback.Identity, key string) fallback.LockAnswer {
	s.t.Helper()
	return s.ask(fallback.LockRequest{Key: key, Me: me, Wait: true})
}

func (s *space) try(me fallback.Identity, key string) fallback.LockAnswer {
	s.t.Helper()
	return s.ask(fallback.LockRequest{Key: key, Me: me})
}

// take is Lock that must succeed.
func (s *space) take(me fallback.Identity, key string) fallback.Row {
	s.t.Helper()
	a := s.try(me, key)
	if a.Verdict != fallback.Granted {
		s.t.Fatalf("Lock(%q) by %v: got %+v, want granted", key, me, a)
	}
	return fallback.Row{Identity: me, Token: a.Token}
}

func (s *space) unlock(me fallback.Identity, key string) {
	s.t.Helper()
	if err := errors.Join(s.Unlock(s.ctx, []fallback.Release{{Key: key, Identity: me}})...); err != nil {
		s.t.Fatal(err)
	}
}

func (s *space) acquire(me string, x fallback.Expect) fallback.Acquisition {
	s.t.Helper()
	return must(s.Acquire(s.ctx, 0, me, x))(s)
}

// own makes me the owner of a Shared partition and returns the epoch.
func (s *space) own(me string) uint32 {
	s.t.Helper()
	a := s.acquire(me, fallback.Expect{Epoch: s.load().Epoch})
	if a.Verdict != fallback.Granted || a.Record.Owner != me {
		s.t.Fatalf("Acquire by %s: got %+v, want granted", me, a)
	}
	return a.Record.Epoch
}

// demote ends an ownership and keeps the rows.
func (s *space) demote(me string, epoch uint32) {
	s.t.Helper()
	want(s, "DemoteUnserved", must(s.DemoteUnserved(s.ctx, 0, me, epoch))(s).Verdict, fallback.Granted)
}

func (s *space) adopt(key string, row fallback.Row) fallback.Verdict {
	s.t.Helper()
	return s.restore(0, fallback.Claim{Key: key, Row: row, Owned: row.Token.Epoch()})[0]
}

func (s *space) reclaimRow(key string, row fallback.Row) fallback.Verdict {
	s.t.Helper()
	return s.restore(0, fallback.Claim{Key: key, Row: row})[0]
}

func (s *space) restore(p uint32, holds ...fallback.Claim) []fallback.Verdict {
	s.t.Helper()
	r := s.Restore(s.ctx, []fallback.Claims{{Partition: p, Holds: holds}})
	if len(r) != 1 || r[0].Err != nil || len(r[0].Verdicts) != len(holds) {
		s.t.Fatalf("Restore of %d holds: got %+v", len(holds), r)
	}
	s.graceLeft("Restore", p, r[0].Grace)
	return r[0].Verdicts
}

// graceLeft compares the Grace of a partition in an answer with that of a Load after it.
func (s *space) graceLeft(what string, p uint32, told time.Duration) {
	s.t.Helper()
	if now := must(s.Load(s.ctx, p))(s).Grace; now > told || told > s.settings.Grace {
		s.t.Errorf("%s: %v left of Grace, then %v", what, told, now)
	}
}

func (s *space) reclaimOwner(me string, epoch uint32) fallback.Verdict {
	s.t.Helper()
	return s.reclaimOwners(me, fallback.Ownership{Epoch: epoch})[0]
}

func (s *space) reclaimOwners(me string, owned ...fallback.Ownership) (verdicts []fallback.Verdict) {
	s.t.Helper()
	for i, r := range s.ReclaimOwners(s.ctx, me, owned) {
		if r.Err != nil {
			s.t.Fatalf("ReclaimOwners of %v: %v", owned, r.Err)
		}
		s.graceLeft("ReclaimOwners", owned[i].Partition, r.Grace)
		verdicts = append(verdicts, r.Verdict)
	}
	if len(verdicts) != len(owned) {
		s.t.Fatalf("ReclaimOwners of %v: got %v", owned, verdicts)
	}
	return verdicts
}

func (s *space) dead(session string) fallback.Liveness {
	s.t.Helper()
	return must(s.Dead(s.ctx, session, fallback.Stamp{}))(s)
}

func (s *space) list() fallback.Listing {
	s.t.Helper()
	return must(s.List(s.ctx))(s)
}

func (s *space) open(session string, ttl time.Duration) fallback.Renewal {
	s.t.Helper()
	return must(s.Open(s.ctx, session, fallback.Registration{TTL: ttl, Info: "addr of " + session}))(s)
}

func (s *space) renew(session string, ttl time.Duration) fallback.Renewal {
	s.t.Helper()
	return must(s.Renew(s.ctx, session, fallback.Registration{TTL: ttl, Info: "addr of " + session}))(s)
}

// oddKeys are keys that a careless arbiter would take apart.
var oddKeys = []string{
	" ", "a b", " a", "a ", "a\nb", "\r\n", "\x00", "a\x00b", "{", "}", "{a}", "{}{b}", "*", "[a-z]?", "\"'\\", "%s%d", "r:a", "m", "i", ":w:",
	"\xff\xfe\x80", "schlüssel", "鍵", strings.Repeat("k", 1024), strings.Repeat("\x00", 1024),
}

// verify is n.Verify with one error.
func verify(ctx context.Context, n fallback.Namespace, reads []fallback.Read) ([]fallback.State, error) {
	states := n.Verify(ctx, reads)
	for _, s := range states {
		if s.Err != nil {
			return nil, s.Err
		}
	}
	return states, nil
}
