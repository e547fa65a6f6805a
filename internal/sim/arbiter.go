package sim

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/guard"
	"github.com/holdfast-go/holdfast/internal/model/spec"
)

var errLost = errors.New("sim: connection to the arbiter lost")

// server is the arbiter that all nodes share: it can be made to fail over to an earlier state.
type server struct {
	*fallback.Memory
	look    fallback.Namespace // for the judge
	grace   time.Duration
	servers int    // that there have been
	books   *books // in the place of Memory: processes are observers

	swap    sync.RWMutex     // held by calls while they are executed; protects the fields below
	deposed *fallback.Memory // the primary before, for nodes that still believe in it; nil: none does
	apart   *fallback.Memory // the same, of the server of some partitions, which failed over by itself
	since   time.Time        // when it became another server; zero: never since the namespace was new
	before  time.Time        // the same of deposed
	rewound time.Time        // when it got older data under the same identity
	parted  time.Time        // when the server of some partitions became another one; zero: never
	tabled  [2]time.Time     // the same of the server of the sessions, by itself: and the time before
	clock   time.Duration    // of the last server that there was, by how much it is ahead
	next    time.Duration    // of the next one
	ticked  time.Time        // when the servers' clocks stepped last
	skewed  *int             // servers with another clock than the one before

	mu   sync.Mutex // protects the fields below
	rng  *rand.Rand
	down bool // no node reaches it
}

func newServer(rng *rand.Rand, grace time.Duration, observed, opened bool) *server {
	s := &server{Memory: fallback.NewMemory(), rng: rng, grace: grace}
	if opened {
		s.OpenOnReplicas()
	}
	s.failover(nil, false)
	var err error
	attach := s.Attach
	if observed {
		s.books = newBooks()
		attach = func(ctx context.Context, x fallback.Settings) (fallback.Namespace, error) {
			return s.observe(ctx, nil, x, true)
		}
	}
	if _, err = attach(context.Background(), s.settings()); err == nil {
		longest := s.settings() // that a process uses: see world.ttl
		longest.Grace = grace * 11 / 10
		s.look, err = attach(context.Background(), longest)
	}
	if err != nil {
		panic(err)
	}
	return s
}

func (s *server) settings() fallback.Settings {
	return fallback.Settings{Namespace: namespace, Partitions: partitions, Grace: s.grace, Lease: time.Millisecond}
}

// failover makes the arbiter another server, with the state of the snapshot, or with nothing for a
// nil one. If deposed, the one before goes on, for those clients that are told to believe in it.
func (s *server) failover(to *fallback.Snapshot, deposed bool) {
	if s.books != nil {
		s.failoverBook(nil)
		return
	}
	s.swap.Lock()
	defer s.swap.Unlock()
	if deposed {
		s.deposed = s.Memory.Fork()
		s.before = s.since
	}
	s.Memory.Restore(to)
	s.another()
	s.servers++
	if s.servers > 1 {
		s.since = time.Now()
	}
}

// rewind gives the arbiter older data, as RESTORE of a backup does: only the data themselves tell
// it.
func (s *server) rewind(to *fallback.Snapshot) {
	s.swap.Lock()
	defer s.swap.Unlock()
	s.Memory.Rewind(to)
	s.rewound = time.Now()
}

// startWith makes the arbiter another server with the data of a backup. Sessions that have counted
// may be missing in it.
func (s *server) startWith(backup *fallback.Snapshot) {
	s.swap.Lock()
	defer s.swap.Unlock()
	s.deposed, s.before = s.Memory.Fork(), s.since
	s.Memory.Rewind(backup)
	s.Memory.Restore(s.Memory.Snapshot())
	s.servers++
	s.since = time.Now()
}

func (s *server) rewindSessions(to *fallback.Snapshot) {
	s.swap.Lock()
	defer s.swap.Unlock()
	s.Memory.RewindSessions(to)
}

func (s *server) setDown(down bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.down = down
}

// describe returns the arbiter's record and rows for a key, and its sessions, as text.
func (s *server) describe(key string) string {
	n := s.look
	if s.books == nil {
		var err error
		if n, err = s.Memory.Attach(context.Background(), s.settings()); err != nil {
			return err.Error()
		}
		defer n.Close()
	}
	p := uint32(xxhash.Sum64String(key) % partitions)
	state := n.Verify(context.Background(), []fallback.Read{{Partition: p, Keys: []string{key}, Busy: 1}})[0]
	all, _ := n.List(context.Background())
	return fmt.Sprintf("          arbiter: %+v; %+v; sessions %v", state.Record, state.Rows, all.Sessions)
}

// weather is the state of the way from one node to the arbiter.
type weather struct {
	away      bool             // nothing arrives
	latency   time.Duration    // at most, of one direction
	late      time.Duration    // answers are on their way for so much longer
	lost      float64          // share of requests that do not arrive
	unheard   float64          // share of answers that do not arrive
	repeated  float64          // share of requests that are executed twice
	echo      time.Duration    // how much later, at most, they are executed the second time
	unmessage float64          // share of messages that do not arrive
	shard     [partitions]bool // nothing about these partitions arrives
	deposed   bool             // it believes in the primary before
	apart     bool             // it believes in the server before of some partitions
	table     bool             // it believes in the server before of the sessions, and of the others
}

// client is the arbiter as one node sees it.
type client struct {
	s     *server
	w     *world
	of    *start
	clock *clock // of the node

	misled atomic.Int64 // how often it took a deposed server for the present one

	mu      sync.Mutex // protects the fields below
	weather weather
	rough   time.Time              // until when requests were lost, executed again, or late
	dead    bool                   // the node is
	hear    func(fallback.Message) // delivers a message to its present session, nil if it has none
}

func (c *client) set(f func(*weather)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.note()
	f(&c.weather)
}

// note keeps how long requests were lost, executed again, or late.
func (c *client) note() {
	w := &c.weather
	if w.away || w.lost > 0 || w.unheard > 0 || w.repeated > 0 || w.latency > usual || w.late > 0 || w.shard != [partitions]bool{} || c.dead {
		c.rough = time.Now().Add(w.echo + w.latency + w.late)
	}
}

// wasRough reports whether a request that the node has made since then may be lost, executed again,
// or late.
func (c *client) wasRough(since time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.note()
	return c.rough.After(since)
}

// Attach implements [fallback.Arbiter].
func (c *client) Attach(ctx context.Context, s fallback.Settings) (fallback.Namespace, error) {
	n, err := through(c, ctx, func(ctx context.Context) (fallback.Namespace, error) {
		if c.s.books != nil {
			return c.s.observe(ctx, c, s, false)
		}
		return c.s.Memory.Attach(ctx, s)
	})
	if err != nil {
		return nil, err
	}
	return &space{Namespace: n, c: c}, nil
}

// space is a namespace as one node sees it.
type space struct {
	fallback.Namespace
	c    *client
	mine sync.Map // IDs of the process's sessions
	seen sync.Map // releases of rows and waiters that it was told of: the count of those made
}

// deposed reports whether the node believes in the primary before.
func (n *space) deposed() bool {
	n.c.mu.Lock()
	defer n.c.mu.Unlock()
	return n.c.weather.deposed || n.c.weather.table
}

// at is the namespace at the server that the node believes in.
func (n *space) at() fallback.Namespace {
	if n.c.s.books != nil || !n.deposed() {
		return n.Namespace
	}
	return n.of(n.c.s.deposed)
}

// of is the namespace at another server.
func (n *space) of(m *fallback.Memory) fallback.Namespace {
	settings := n.c.s.settings()
	settings.Grace = n.Namespace.Grace() // as the process uses it
	old, err := m.Attach(context.Background(), settings)
	if err != nil {
		panic(err)
	}
	return old
}

// calls notes a request of the node to the arbiter, when the node sends it.
func (n *space) calls(p uint32, e spec.Event) {
	if !n.c.of.dead.Load() {
		n.c.w.traces.step(p, e)
	}
}

// callsAbout is calls about a hold.
func (n *space) callsAbout(p uint32, kind spec.Kind, name string, row fallback.Row) {
	if !n.c.of.dead.Load() {
		n.c.w.traces.about(p, kind, name, row)
	}
}

// one is through for calls with an error only.
func (n *space) one(ctx context.Context, do func(context.Context) error) error {
	_, err := through(n.c, ctx, func(ctx context.Context) (struct{}, error) { return struct{}{}, do(ctx) })
	return err
}

func (n *space) Open(ctx context.Context, id string, r fallback.Registration) (fallback.Renewal, error) {
	n.c.w.traces.opened(n.c.of, id)
	n.c.w.h.opens(id, n.c.of)
	n.mine.Store(id, nil)
	return through(n.c, ctx, func(ctx context.Context) (fallback.Renewal, error) {
		a, err := n.at().Open(ctx, id, r)
		if err == nil && n.c.w.cfg.Opened && n.deposed() && guard.OnReplicas {
			return fallback.Renewal{}, errors.New("sim: the replicas of the server before follow another one")
		}
		return a, err
	})
}

func (n *space) Renew(ctx context.Context, id string, r fallback.Registration) (fallback.Renewal, error) {
	return through(n.c, ctx, func(ctx context.Context) (fallback.Renewal, error) { return n.at().Renew(ctx, id, r) })
}

func (n *space) Dead(ctx context.Context, id string, by fallback.Stamp) (fallback.Liveness, error) {
	return through(n.c, ctx, func(ctx context.Context) (fallback.Liveness, error) {
		old := n.deposed()
		l, err := n.at().Dead(ctx, id, by)
		old = executedIn(ctx).orOld(old)
		if err == nil && l.Dead {
			n.c.w.taken(executedIn(ctx), old, "%.4s is said to be dead", id)
			n.c.w.saidDead(id)
			n.c.w.traces.dead(id)
			if n.c.s.books != nil {
				n.c.w.watched.Add(1)
			}
		}
		return l, err
	})
}

// Bury implements [fallback.Burier].
func (n *space) Bury(ctx context.Context, id string, version uint32, voters []string) (fallback.Burial, error) {
	return through(n.c, ctx, func(ctx context.Context) (fallback.Burial, error) {
		old := n.deposed()
		b, err := n.at().(fallback.Burier).Bury(ctx, id, version, voters)
		old = executedIn(ctx).orOld(old)
		if err == nil && b.Dead {
			n.c.w.taken(executedIn(ctx), old, "%.4s is buried", id)
			n.c.w.saidDead(id)
			n.c.w.hasBuried(id)
			n.c.w.traces.dead(id)
		}
		return b, err
	})
}

func (n *space) List(ctx context.Context) (fallback.Listing, error) {
	return through(n.c, ctx, func(ctx context.Context) (fallback.Listing, error) { return n.at().List(ctx) })
}

func (n *space) Rotate(ctx context.Context) error {
	return n.one(ctx, func(ctx context.Context) error { return n.at().Rotate(ctx) })
}

func (n *space) CloseSession(ctx context.Context, id string) error {
	return n.one(ctx, func(ctx context.Context) error { return n.at().CloseSession(ctx, id) })
}

func (n *space) Load(ctx context.Context, p uint32) (fallback.Record, error) {
	return about(n.c, ctx, p, func(ctx context.Context) (fallback.Record, error) {
		at, _ := n.about(p)
		return at.Load(ctx, p)
	})
}

func (n *space) Acquire(ctx context.Context, p uint32, me string, x fallback.Expect) (fallback.Acquisition, error) {
	return about(n.c, ctx, p, func(ctx context.Context) (fallback.Acquisition, error) {
		at, old := n.about(p)
		a, err := at.Acquire(ctx, p, me, x)
		old = executedIn(ctx).orOld(old)
		if err == nil && a.Verdict == fallback.Granted {
			n.c.w.granted(executedIn(ctx), old, "partition %d is given to %.4s", p, me)
			n.c.w.seen(p, a.Record.Epoch)
			n.c.w.acquired(p, a.Record.Epoch, me)
			if rows := rowsOf(a.Rows); old {
				n.c.w.traces.elsewhere(p, a.Record.Epoch, me, rows...)
			} else {
				n.c.w.traces.step(p, spec.Event{Kind: spec.Acquired, Session: me, Epoch: a.Record.Epoch, Rows: rows})
			}
		}
		return a, err
	})
}

func (n *space) Demote(ctx context.Context, p uint32, me string, epoch uint32, holds map[string]fallback.Row) (fallback.Demotion, error) {
	n.calls(p, spec.Event{Kind: spec.Demoted, Session: me, Epoch: epoch, Rows: rowsOf(holds)})
	return about(n.c, ctx, p, func(ctx context.Context) (fallback.Demotion, error) {
		at, old := n.about(p)
		d, err := at.Demote(ctx, p, me, epoch, holds)
		old = executedIn(ctx).orOld(old)
		if err == nil && d.Verdict == fallback.Granted {
			n.c.w.granted(executedIn(ctx), old, "partition %d is given back by %.4s", p, me)
		}
		return d, err
	})
}

func (n *space) DemoteUnserved(ctx context.Context, p uint32, me string, epoch uint32) (fallback.Demotion, error) {
	n.calls(p, spec.Event{Kind: spec.Forsworn, Session: me, Epoch: epoch})
	return about(n.c, ctx, p, func(ctx context.Context) (fallback.Demotion, error) {
		at, old := n.about(p)
		d, err := at.DemoteUnserved(ctx, p, me, epoch)
		old = executedIn(ctx).orOld(old)
		if err == nil && d.Verdict == fallback.Granted {
			n.c.w.granted(executedIn(ctx), old, "partition %d is given back, unserved, by %.4s", p, me)
		}
		return d, err
	})
}

func (n *space) Witness(ctx context.Context, p uint32, seen fallback.Token) (fallback.Record, error) {
	return about(n.c, ctx, p, func(ctx context.Context) (fallback.Record, error) {
		at, _ := n.about(p)
		return at.Witness(ctx, p, seen)
	})
}

func (n *space) Revoke(ctx context.Context, p uint32, epoch uint32, by string) error {
	return n.one(ctx, func(ctx context.Context) error {
		at, _ := n.about(p)
		return at.Revoke(ctx, p, epoch, by)
	})
}

func (n *space) Lock(ctx context.Context, r fallback.LockRequest) (fallback.LockAnswer, error) {
	return about(n.c, ctx, r.Partition, func(ctx context.Context) (fallback.LockAnswer, error) {
		at, old := n.about(r.Partition)
		a, err := at.Lock(ctx, r)
		old = executedIn(ctx).orOld(old)
		if err == nil {
			n.c.w.h.names(r.Key, a, r.Me.Session)
		}
		if err == nil && a.Verdict == fallback.Granted {
			n.c.w.granted(executedIn(ctx), old, "%q is given to %.4s", r.Key, r.Me.Session)
			n.c.w.seen(r.Partition, a.Token.Epoch())
			if row := (fallback.Row{Identity: r.Me, Token: a.Token}); old {
				n.c.w.traces.elsewhere(r.Partition, 0, "", row)
			} else {
				n.c.w.traces.about(r.Partition, spec.Locked, r.Key, row)
			}
		}
		return a, err
	})
}

func (n *space) Unlock(ctx context.Context, r []fallback.Release) []error {
	n.cleans(r)
	for _, x := range r {
		n.callsAbout(x.Partition, spec.Unlocked, x.Key, fallback.Row{Identity: x.Identity})
	}
	return each(n.c, ctx, r, func(r fallback.Release) uint32 { return r.Partition },
		func(err error) error { return err },
		func(ctx context.Context, r []fallback.Release) []error {
			return parted(n, r, func(r fallback.Release) uint32 { return r.Partition },
				func(at fallback.Namespace, r []fallback.Release) []error { return at.Unlock(ctx, r) })
		})
}
