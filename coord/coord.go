// Package coord is the API of Holdfast: locks by key, exclusive among the goroutines of this
// process and among all processes that use the same namespace of the same arbiter.
// [github.com/holdfast-go/holdfast.Open] opens a coordinator for the usual case, Redis and a
// cluster. Here it is with all parts named:
//
//	locks, err := coord.New(ctx, redisarbiter.New(client, nil), &coord.Options{
//		Namespace: "shop",
//		Cluster:   &coord.Cluster{Membership: gossip.Start}, // nil: each key is locked at the arbiter
//	})
//	...
//	defer func() { // gives everything back; waits for locks in use until ctx ends
//		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
//		defer cancel()
//		locks.Close(ctx)
//	}()
//	l, err := locks.Lock(ctx, "order/4711")
//	if err != nil {
//		return err
//	}
//	defer l.Unlock()
//
// # Methods of a Coordinator
//
// docs/which.md of the repository names the purpose of each.
//
//   - One key: [Coordinator.Do], [Coordinator.Lock], [Coordinator.TryLock],
//     [Coordinator.LockFor], [Coordinator.DoNested].
//   - Readers together, a writer alone: [Coordinator.RDo], [Coordinator.RLock],
//     [Coordinator.TryRLock], [Coordinator.RDoNested].
//   - Several keys: [Coordinator.DoAll], [Coordinator.LockAll], [Coordinator.TryLockAll]; with
//     some of them only read: [Coordinator.DoClaims], [Coordinator.LockClaims],
//     [Coordinator.TryLockClaims].
//   - Several callers at a time: [Coordinator.Semaphore].
//   - Results that all processes share: [Share], [Unshare], and [Coordinator.Results].
//   - News of a key: [Coordinator.Announce], [Coordinator.Watch].
//   - The process: [Coordinator.Settled], [Coordinator.Drain], [Coordinator.Close],
//     [Coordinator.Namespace].
//   - The cluster: [Coordinator.Nodes], [Coordinator.Owner], [Coordinator.NodeContext],
//     [Coordinator.RotateSecret].
//   - For operators: [Coordinator.Inspect], [Coordinator.Held], [Coordinator.Top],
//     [Coordinator.Processes], [Coordinator.Partitions], [Coordinator.Report],
//     [Coordinator.Stats], [Coordinator.Break], [Coordinator.DrainNode],
//     [Coordinator.ExpectLong].
//
// # One lock's journey
//
// The words:
//
//   - arbiter: the store that holds the truth, such as Redis
//   - session: one life of a process at the arbiter
//   - partition: one of the shares that keys are divided into, by a hash; in a cluster a node
//     owns each, and grants its keys from memory
//   - hold: a key that the arbiter or an owner gave to a process, with a block of tokens
//   - turn: a caller's part of a hold, with one token: a lock
//   - contender: the one request that a process has at the arbiter for a key
//   - Grace: the time after a failover in which the arbiter grants nothing new, and holders
//     reclaim their holds
//
// [Coordinator.Lock] queues the caller for its key in this process. If the process has a hold on
// the key, the caller's turn comes in memory, with the next fencing token of the hold. If not,
// and another node owns the key's partition, the process asks that node over a stream; if it is
// to own the partition itself, it takes it. Without an owner one contender for all the callers of
// that key asks the arbiter for a hold. If another process has the key, the contender waits
// there, and the other process is told that a caller waits. [Lock.Unlock] passes the turn to the
// next caller, keeps the hold for one that is to come, or gives it back.
//
// Meanwhile one session keeps all of it alive: it is renewed every [Options.RenewEvery], and the
// process verifies its holds: one read for each partition with locks held at the arbiter, and one
// for each 256 partitions owned. Every grant is checked against the clock at the moment it is made.
// When the arbiter has not acknowledged the session or a hold for too long, the locks are lost and
// their contexts end. That is before the arbiter gives them to another process.
//
// No lease can protect from a process that stops between that check and its write. [Lock.Unlock]
// may even return nil to it, and the loss show only later. So do not rely on that nil: every lock
// has a fencing token, [Lock.Fence], that rises with every grant of the key: let the resource
// refuse a token lower than the highest it has seen.
package coord

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/handoff"
	"github.com/holdfast-go/holdfast/internal/logs"
	"github.com/holdfast-go/holdfast/internal/workers"
)

// A Coordinator grants locks. It is safe for concurrent use. One per process and namespace is
// enough, and best.
type Coordinator struct {
	began    time.Time // of its moments
	opts     Options
	cluster  *cluster // nil without one
	parts    []partition
	sessions sessions
	sooner   soonest // when holds lapse next
	flights  flights // calls that may grant something, for an early end of Grace

	remote  remote
	debts   debts
	callers callers
	tells   tells
	life    life
}

// remote has the arbiter of a coordinator, and its last answers.
type remote struct {
	arbiter       fallback.Arbiter
	ns            fallback.Namespace                 // set before the first session
	namespace     atomic.Pointer[fallback.Namespace] // ns, for callers that may be earlier than the first session
	confirmations confirmations
	prompt        atomic.Bool  // ns heeds deadlines by itself
	queues        atomic.Bool  // lock calls wait for connections
	health        health       // how it has answered of late
	server        server       // that answered the last renewal; of keepSessions only
	graceEnds     atomic.Int64 // when, as the last renewal says, in nanoseconds since began; 0 outside of Grace
	graceSeenEnds atomic.Int64 // the same of partitions, as answers about them said; 0 once they were all seen to be out of it
	advised       advised
	cleaner       cleaner
}

// server is one of the arbiter's, with the table of sessions.
type server struct {
	name  string
	met   time.Time // when it first answered
	grace bool      // it was in Grace
}

// silent reports whether an arbiter delivers no messages.
func silent(ns fallback.Namespace) bool {
	m, ok := ns.(fallback.Mute)
	return ok && m.Mute()
}

// debts has the holds that a coordinator still has to give back, to offer to an owner, or to deny.
type debts struct {
	outlived   bool         // partitions could not be given back; of Close only
	releases   releaser     // holds that were given back, for the arbiter
	disclaimed disclaimed   // rows that this node may have written again with partitions that it gave back; of Close only
	doubts     doubts       // requests that may be executed yet, though their calls have failed
	lingers    lingerer     // keys that no caller uses, with their holds
	offers     atomic.Int64 // holds that may be offered to their owners until the next verify
}

// callers has the state that all callers of a process share.
type callers struct {
	limits     handoff.Limits // Options.Handoff
	waiters    sync.Pool      // of *lease.Waiter
	shares     shares
	holder     string // distinguishes names of holds from those of other processes
	reads      reads
	pools      pools
	stuck      stuck
	requests   atomic.Uint64 // numbers of requests
	reciprocal uint64        // of the number of partitions: see remainder
}

// tells is the side for operators: counts, records, the journal.
type tells struct {
	stats    counters
	reports  reports
	expected expected // keys that callers have or want for long
	news     news
	events   *journal
	limited  *slog.Logger // for records that callers may cause in storms
}

// life has the goroutines of a coordinator, and the events that end them.
type life struct {
	pool     workers.Pool    // goroutines that call the arbiter
	ctx      context.Context // ends, with cause ErrClosed, when every lock has been given back or Close's ctx ended
	stop     context.CancelCauseFunc
	work     sync.WaitGroup  // every goroutine that the coordinator started
	last     mutex[lastRank] // protects over
	over     bool            // nothing is begun in the background any more
	closing  chan struct{}   // closed at the beginning of Close
	closes   atomic.Bool     // Close was called
	closed   chan struct{}   // closed at its end
	closeErr error
}

// New attaches to the arbiter and opens a session. It blocks until that is done or has failed, or
// until ctx ends. If ctx has no deadline and the server does not answer, New gives up after 10 s,
// or five times Options.CallTimeout if that is longer; where it waits for other sessions
// ([fallback.ErrWait]), after Grace and a few seconds. ctx limits only the start: the coordinator
// lives until [Coordinator.Close]. opts may be nil.
//
// With Options.StartUnavailable, New returns at once and attaches in the background. With
// Options.Observe it opens no session.
//
// Errors: of the options, which name the field; [fallback.ErrRefused] and [fallback.ErrMismatch],
// which name the setting; [ErrUnavailable] if the arbiter cannot be reached, with the cause of ctx
// if ctx ended.
func New(ctx context.Context, arbiter fallback.Arbiter, opts *Options) (*Coordinator, error) {
	if arbiter == nil {
		return nil, errors.New("coord: the arbiter is nil")
	}
	o := opts.filled()
	if err := o.validate(); err != nil {
		return nil, err
	}
	events := new(journal)
	o.Logger = slog.New(noting{o.Logger.Handler(), events})
	c := &Coordinator{
		tells:   tells{events: events},
		remote:  remote{arbiter: arbiter},
		opts:    o,
		callers: callers{limits: o.Handoff.limits(), holder: rand.Text()[:13]},
		life:    life{closing: make(chan struct{}), closed: make(chan struct{})},

		sooner: soonest{signal: make(chan struct{}, 1)},
	}
	c.divide(o.Partitions)
	c.began = c.now()
	c.remote.health.pace.Store(slow)
	c.life.ctx, c.life.stop = context.WithCancelCause(context.Background())
	c.callers.waiters.New = newWaiter
	c.callers.shares.init()
	c.callers.stuck.wake = make(chan struct{}, 1)
	c.sessions.init()
	c.debts.releases.init()
	c.debts.lingers.init()
	c.tells.reports.init()
	c.tells.limited = logs.Limit(o.Logger)
	if o.Observe {
		return newObserver(ctx, c)
	}
	cfg := c.leaseConfig()
	for i := range c.parts {
		c.parts[i].init(c, cfg, uint32(i))
	}
	if o.Cluster != nil {
		if err := c.startCluster(""); err != nil {
			c.life.stop(ErrClosed)
			return nil, err
		}
	}
	first, err := c.firstSession(ctx)
	if err != nil {
		c.life.stop(ErrClosed)
		if c.cluster != nil {
			_ = c.cluster.net.Close()
			_ = c.cluster.ring.Leave(canceled)
			c.cluster.hide() // nothing was granted
		}
		c.awaitGoroutines()
		if c.remote.ns != nil {
			err = errors.Join(err, c.remote.ns.Close())
		}
		return nil, err
	}
	c.startServices(first)
	return c, nil
}

// starting is how long New may try. Formatting a namespace takes a server longer than any other
// call.
func (o *Options) starting() time.Duration { return max(10*time.Second, 5*o.CallTimeout) }

// waiting is how long New may try once it is told to wait. The end of a session is known after its
// time to live, by the store's clock or this process's. That time is less than Grace.
func (c *Coordinator) waiting() time.Duration {
	grace := c.opts.Grace
	if c.remote.ns != nil {
		grace = max(grace, c.remote.ns.Grace())
	}
	return max(c.opts.starting(), grace+2*longerGrace+c.opts.CallTimeout)
}

// Namespace returns the namespace of the coordinator's keys, see Options.Namespace.
func (c *Coordinator) Namespace() string { return c.opts.Namespace }

// firstSession opens the session that New waits for. It returns nil without an error if New is not
// to wait.
func (c *Coordinator) firstSession(ctx context.Context) (*session, error) {
	if c.opts.StartUnavailable {
		return nil, nil
	}
	given, cancel := ctx, context.CancelFunc(func() {})
	limit := func(d time.Duration) {
		cancel()
		ctx, cancel = context.WithTimeout(given, d)
	}
	defer func() { cancel() }()
	_, limited := ctx.Deadline()
	if !limited {
		limit(c.opts.starting())
	}
	var err error
	for tries := 0; tries < 3; tries++ {
		s, e := c.openSession(ctx)
		if e == nil {
			return s, nil
		}
		if errors.Is(e, fallback.ErrWait) && ctx.Err() == nil { // in vain until others have renewed, or are gone
			if tries = 0; !limited {
				limited = true
				limit(c.waiting())
			}
			select {
			case <-time.After(longerGrace):
			case <-ctx.Done():
			}
		}
		if err == nil || ctx.Err() == nil { // else the last one says only that there was no time left
			err = e
		}
		switch {
		case errors.Is(err, fallback.ErrMismatch), errors.Is(err, fallback.ErrRefused) && !errors.Is(err, fallback.ErrWait):
			return nil, fmt.Errorf("coord: New: %w", err)
		case ctx.Err() != nil:
			return nil, fmt.Errorf("coord: New: %w%s: %w: %w", ErrUnavailable, c.atServers(), context.Cause(ctx), err)
		}
	}
	return nil, fmt.Errorf("coord: New: %w%s: %w", ErrUnavailable, c.atServers(), err)
}

// longerGrace is how long to wait for others that take over a longer Grace, before they are looked
// at again. The arbiter's replicas know the request by then.
const longerGrace = time.Second

// whyClosed returns why no locks are granted any more.
func (c *Coordinator) whyClosed() error {
	if c.opts.Observe {
		return ErrObserver
	}
	return ErrClosed
}

// canceled is a context that has ended.
var canceled = endedContext(context.Background(), ErrClosed)
