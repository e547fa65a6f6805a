package fallback_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/fallback/arbitertest"
	"github.com/holdfast-go/holdfast/internal/takes"
	"github.com/holdfast-go/holdfast/internal/virtual"
)

func TestRecordsConform(t *testing.T) {
	t.Parallel()
	shared := newTalkingLedger()
	arbitertest.Run(t, arbitertest.Fixture{
		New: func(*testing.T) fallback.Arbiter { return fallback.NewRecords(shared, nil) },
		NewServer: func(*testing.T) arbitertest.Server {
			l := newTalkingLedger()
			var saved map[string]fallback.Versioned
			return arbitertest.Server{
				Arbiter: fallback.NewRecords(l, nil),
				Save:    func() { saved = l.snapshot() },
				Crash:   func() { l.restore(saved) },
			}
		},
	})
}

func TestRecordsConform_WithoutMessages(t *testing.T) {
	t.Parallel()
	shared := newLedger()
	arbitertest.Run(t, arbitertest.Fixture{New: func(*testing.T) fallback.Arbiter { return fallback.NewRecords(shared, nil) }})
}

// A store need not read two records at one moment.
func TestRecordsConform_EachRecordAtAMomentOfItsOwn(t *testing.T) {
	takes.Seconds(t)
	t.Parallel()
	for name, opts := range map[string]*fallback.RecordsOptions{"clock": {}, "NoClock": {NoClock: true}, "both": {NoClock: true, Durable: true, ColdStart: true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			shared := newLedger()
			f := arbitertest.Fixture{New: func(*testing.T) fallback.Arbiter { return fallback.NewRecords(scattered{shared}, opts) }}
			if !opts.Durable {
				f.NewServer = func(*testing.T) arbitertest.Server {
					l := newLedger()
					var saved map[string]fallback.Versioned
					return arbitertest.Server{
						Arbiter: fallback.NewRecords(scattered{l}, opts),
						Save:    func() { saved = l.snapshot() },
						Crash:   func() { l.restore(saved) },
					}
				}
			}
			arbitertest.Run(t, f)
		})
	}
}

// Arbiters with observers are processes of their own: each has its own sightings.
func TestRecordsConform_ByObserversClocks(t *testing.T) {
	takes.Seconds(t)
	t.Parallel()
	for name, opts := range map[string]*fallback.RecordsOptions{
		"NoClock": {NoClock: true}, "Durable": {Durable: true, ColdStart: true}, "both": {NoClock: true, Durable: true, ColdStart: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			shared := newTalkingLedger()
			if opts.NoClock {
				shared.ahead = -30 * 365 * 24 * time.Hour // it is not looked at
			}
			f := arbitertest.Fixture{New: func(*testing.T) fallback.Arbiter { return fallback.NewRecords(shared, opts) }}
			if !opts.Durable {
				f.NewServer = func(*testing.T) arbitertest.Server {
					l := newTalkingLedger()
					var saved map[string]fallback.Versioned
					return arbitertest.Server{
						Arbiter: fallback.NewRecords(l, opts),
						Save:    func() { saved = l.snapshot() },
						Crash:   func() { l.restore(saved) },
					}
				}
			}
			arbitertest.Run(t, f)
		})
	}
}

func TestRecordsConform_Durable(t *testing.T) {
	takes.Seconds(t)
	t.Parallel()
	arbitertest.RunDurable(t, func(*testing.T) arbitertest.Cluster {
		l := newLedger()
		l.kept = 0
		kill := func(*testing.T) {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.fail = fmt.Errorf("%w: no leader", fallback.ErrNotSent)
			time.AfterFunc(time.Millisecond, func() {
				l.mu.Lock()
				defer l.mu.Unlock()
				l.fail = nil
			})
		}
		return arbitertest.Cluster{
			New: func(*testing.T) fallback.Arbiter {
				return fallback.NewRecords(l, &fallback.RecordsOptions{Durable: true, NoClock: true, ColdStart: true})
			},
			Kill: kill, Restart: kill,
			Cut:   func(*testing.T) func() { return func() {} },
			Empty: func(*testing.T) { l.rewind(map[string]fallback.Versioned{}) },
			Delete: func(_ *testing.T, key string) {
				l.mu.Lock()
				defer l.mu.Unlock()
				delete(l.records, key)
			},
			Careful: func(*testing.T) fallback.Arbiter {
				return fallback.NewRecords(l, &fallback.RecordsOptions{Durable: true, NoClock: true})
			},
		}
	})
}

// attachRecords attaches to the namespace "ns" of a ledger.
func attachRecords(t *testing.T, l fallback.Records, opts *fallback.RecordsOptions) fallback.Namespace {
	t.Helper()
	s := plain
	s.Grace = quiet
	n, err := fallback.NewRecords(l, opts).Attach(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// A race is two calls on records and an event, in an order. Its letters: a and b let a call go on
// to its next step, e is the event.
type race struct {
	*ledger
	turn map[string]chan struct{} // by call
}

type caller struct{}

func newRace() *race {
	r := &race{newLedger(), map[string]chan struct{}{}}
	r.before = func(ctx context.Context) {
		if name, ok := ctx.Value(caller{}).(string); ok {
			<-r.turn[name]
		}
	}
	return r
}

// run runs the calls in an order, and then to their ends.
func (r *race) run(ctx context.Context, order string, a, b func(context.Context), event func()) {
	r.turn["a"], r.turn["b"] = make(chan struct{}, 100), make(chan struct{}, 100)
	var calls sync.WaitGroup
	calls.Go(func() { a(context.WithValue(ctx, caller{}, "a")) })
	calls.Go(func() { b(context.WithValue(ctx, caller{}, "b")) })
	for _, x := range order {
		synctest.Wait()
		if x == 'e' {
			event()
		} else {
			r.turn[string(x)] <- struct{}{}
		}
	}
	for _, turn := range r.turn {
		close(turn)
	}
	calls.Wait()
}

// orders returns all orders of up to n steps with one event.
func orders(n int) (all []string) {
	for _, x := range strings.Split("aaaa aaab aaba aabb abaa abab abba abbb baaa baab baba babb bbaa bbab bbba bbbb", " ") {
		for at := range n + 1 {
			all = append(all, x[:at]+"e"+x[at:])
		}
	}
	return all
}

// I3: a session that is said to be dead is not alive afterwards, and the other way round, whatever
// comes between Load and Swap.
func TestRecords_NoSessionIsDeadAndAlive(t *testing.T) {
	for _, order := range orders(4) {
		virtual.Test(t, func(t *testing.T) {
			r := newRace()
			n := attachRecords(t, r.ledger, nil)
			if _, err := n.Open(t.Context(), "alice", fallback.Registration{TTL: 5 * time.Second}); err != nil {
				t.Fatal(err)
			}
			var renewal fallback.Renewal
			var liveness fallback.Liveness
			var errs [2]error
			r.run(t.Context(), order, func(ctx context.Context) {
				renewal, errs[0] = n.Renew(ctx, "alice", fallback.Registration{TTL: time.Hour})
			}, func(ctx context.Context) {
				liveness, errs[1] = n.Dead(ctx, "alice", fallback.Stamp{})
			}, func() { time.Sleep(5 * time.Second) })
			if err := errors.Join(errs[:]...); err != nil {
				t.Fatal(err)
			}
			if renewal.Alive && liveness.Dead {
				t.Errorf("order %s: alive by Renew, dead by Dead", order)
			}
		})
	}
}

// raceOfLocks counts the orders in which two callers get a key, while the store fails over to data
// of before.
func raceOfLocks(t *testing.T, naive bool) (both []string) {
	for _, order := range orders(4) {
		virtual.Test(t, func(t *testing.T) {
			r := newRace()
			r.naive = naive
			n := attachRecords(t, r.ledger, nil)
			saved := r.snapshot()
			var answers [2]fallback.LockAnswer
			var errs [2]error
			call := func(i int, me fallback.Identity) func(context.Context) {
				return func(ctx context.Context) {
					answers[i], errs[i] = n.Lock(ctx, fallback.LockRequest{Key: "k", Me: me, Block: 1})
				}
			}
			r.run(t.Context(), order, call(0, id("alice", 1)), call(1, id("bob", 1)), func() { r.restore(saved) })
			if err := errors.Join(errs[:]...); err != nil {
				t.Fatal(err)
			}
			if answers[0].Verdict == fallback.Granted && answers[1].Verdict == fallback.Granted {
				both = append(both, order)
			}
		})
	}
	return both
}

// I1, I7: a record that was read from one server is not written to another one.
func TestRecords_NoTwoHoldersOverAFailover(t *testing.T) {
	if both := raceOfLocks(t, false); len(both) > 0 {
		t.Errorf("two holders in the orders %v", both)
	}
	if both := raceOfLocks(t, true); len(both) == 0 {
		t.Error("a store whose Swap does not look at the server's name does no harm: this test looks at the wrong orders")
	}
}

// A server that was deposed may read without being able to write. A session's death counts once it
// is written.
func TestRecords_ADeposedServerDeclaresNobodyDead(t *testing.T) {
	virtual.Test(t, func(t *testing.T) {
		for _, deposable := range []bool{true, false} {
			l := newLedger()
			n := attachRecords(t, l, &fallback.RecordsOptions{Deposable: deposable})
			dead := func() bool {
				x, err := n.Dead(t.Context(), "nobody", fallback.Stamp{})
				b, err2 := n.(fallback.Burier).Bury(t.Context(), "nobody", 1, nil)
				if err == nil && x.Dead != (err2 == nil && b.Dead) {
					t.Errorf("Dead: %+v, %v, Bury: %+v, %v", x, err, b, err2)
				}
				return x.Dead
			}
			l.fail = errors.New("no replica has it")
			if dead() == deposable {
				t.Errorf("deposable %t: dead at a server that can write nothing: %t", deposable, !deposable)
			}
			l.fail = nil
			if !dead() {
				t.Errorf("deposable %t: not dead", deposable)
			}
		}
	})
}

// left returns the time left of Grace in partition 0, and in the table of sessions.
func left(t *testing.T, n fallback.Namespace) [2]time.Duration {
	t.Helper()
	r, err := n.Load(t.Context(), 0)
	l, err2 := n.Dead(t.Context(), "nobody", fallback.Stamp{})
	if err := errors.Join(err, err2); err != nil {
		t.Fatal(err)
	}
	return [2]time.Duration{r.Grace, l.Grace}
}

func TestRecords_AMissingNamespaceIsNewIfNothingWasLost(t *testing.T) {
	virtual.Test(t, func(t *testing.T) {
		for _, tt := range []struct {
			kept  time.Duration
			cold  bool
			grace time.Duration
		}{
			{0, false, quiet},
			{quiet / 3, false, quiet - quiet/3},
			{quiet, false, 0},
			{time.Hour, false, 0},
			{0, true, 0},
		} {
			l := newLedger()
			l.kept = tt.kept
			n := attachRecords(t, l, &fallback.RecordsOptions{ColdStart: tt.cold})
			if got := left(t, n); got != [2]time.Duration{tt.grace, tt.grace} {
				t.Errorf("kept for %v, cold %t: Grace %v, want %v", tt.kept, tt.cold, got, tt.grace)
			}
		}
	})
}

// Without the table, the rows that are there tell that processes may be at work.
func TestRecords_ALostTableIsInGrace(t *testing.T) {
	virtual.Test(t, func(t *testing.T) {
		l := newLedger()
		n := attachRecords(t, l, nil)
		before := l.snapshot()
		lock(t, n, 1, "k", id("alice", 1))
		delete(l.records, "ns/s")
		other := attachRecords(t, l, &fallback.RecordsOptions{ColdStart: true})
		if got := left(t, other); got != [2]time.Duration{0, quiet} {
			t.Errorf("with a row: Grace %v", got)
		}
		time.Sleep(quiet)
		l.rewind(before)
		delete(l.records, "ns/s")
		// This process knows that there was one.
		if got := left(t, n); got != [2]time.Duration{0, quiet} {
			t.Errorf("for a process that has seen it: Grace %v", got)
		}
		l.rewind(before)
		delete(l.records, "ns/p0")
		if got := left(t, n); got[0] != quiet {
			t.Errorf("a partition that is missing: Grace %v", got)
		}
	})
}

// Another process may be faster each time; then the call ends with its context.
func TestRecords_ACallEndsWithItsContext(t *testing.T) {
	virtual.Test(t, func(t *testing.T) {
		l := newLedger()
		n := attachRecords(t, l, nil)
		steps := 0
		l.before = func(context.Context) {
			if steps++; steps%2 == 0 { // before Swap
				v := l.records["ns/p0"]
				v.Version += "'"
				l.records["ns/p0"] = v
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := n.Lock(ctx, fallback.LockRequest{Key: "k", Me: id("alice", 1), Block: 1})
		if !errors.Is(err, context.DeadlineExceeded) || steps < 10 {
			t.Errorf("%d steps: %v", steps, err)
		}
	})
}

func TestRecords_AClockFarAheadIsRefused(t *testing.T) {
	virtual.Test(t, func(t *testing.T) {
		l := newLedger()
		l.ahead = 400 * 24 * time.Hour
		_, err := fallback.NewRecords(l, nil).Attach(t.Context(), plain)
		if !errors.Is(err, fallback.ErrRefused) || l.opened != 0 {
			t.Errorf("%v; open: %d", err, l.opened)
		}
	})
}

// A session's Grace takes effect for others once no call with a shorter one is on its way, those
// that were given up among them.
func TestRecords_ACallThatWasGivenUpIsOnItsWay(t *testing.T) {
	virtual.Test(t, func(t *testing.T) {
		l := newLedger()
		attach := func(grace time.Duration) fallback.Namespace {
			n, err := fallback.NewRecords(l, nil).Attach(t.Context(), fallback.Settings{Namespace: "ns", Partitions: 1, Grace: grace, Lease: grace - 1})
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
		reg := fallback.Registration{TTL: time.Hour}
		short, long := attach(quiet), attach(2*quiet)
		renew := func() {
			if _, err := short.Renew(t.Context(), "short", reg); err != nil {
				t.Fatal(err)
			}
		}
		opens := func() bool {
			_, err := long.Open(t.Context(), "long", reg)
			if err != nil && !errors.Is(err, fallback.ErrWait) {
				t.Fatal(err)
			}
			return err == nil
		}
		if _, err := short.Open(t.Context(), "short", reg); err != nil {
			t.Fatal(err)
		}
		l.fail = errors.New("connection lost")
		if _, err := short.Lock(t.Context(), fallback.LockRequest{Key: "k", Me: id("short", 1), Block: 1}); !errors.Is(err, l.fail) {
			t.Fatal(err)
		}
		l.fail = nil
		opens()
		for range 3 {
			renew()
			if opens() {
				t.Fatal("a session that needs a longer Grace was opened while a call with a shorter one may be executed")
			}
		}
		time.Sleep(time.Minute + time.Second)
		opens() // by now the Grace that the first call had asked for is forgotten
		renew()
		renew()
		if !opens() {
			t.Error("the session is not opened")
		}
	})
}

// Partitions of three rows each, and of a hundred: they are read by turns.
func BenchmarkRecords_Verify(b *testing.B) {
	const partitions, few, many = 100, 3, 100
	var took [2]time.Duration
	var size [2]int
	var verify [2]func()
	for i, rows := range []int{few, many} {
		l := newLedger()
		n, err := fallback.NewRecords(l, nil).Attach(b.Context(), fallback.Settings{Namespace: "ns", Partitions: partitions, Grace: quiet})
		if err != nil {
			b.Fatal(err)
		}
		reads := make([]fallback.Read, partitions)
		for p := range reads {
			reads[p].Partition = uint32(p)
			for k := range rows {
				_, err := n.Lock(b.Context(), fallback.LockRequest{Partition: uint32(p), Key: fmt.Sprint("key ", k), Me: id("alice", uint64(k)), Block: 1})
				if err != nil {
					b.Fatal(err)
				}
			}
		}
		size[i] = len(l.records["ns/p0"].Value)
		verify[i] = func() {
			for _, s := range n.Verify(b.Context(), reads) {
				if s.Err != nil {
					b.Fatal(s.Err)
				}
			}
		}
	}
	for b.Loop() {
		for i := range verify {
			began := time.Now()
			verify[i]()
			took[i] += time.Since(began)
		}
	}
	b.ReportMetric(0, "ns/op")
	for i, rows := range []int{few, many} {
		b.ReportMetric(float64(took[i].Nanoseconds())/float64(b.N)/partitions, fmt.Sprintf("ns/partition-of-%d", rows))
		b.ReportMetric(float64(size[i]), fmt.Sprintf("bytes/partition-of-%d", rows))
	}
	b.ReportMetric(float64(took[1])/float64(took[0]), "x")
}
