package coord_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/fallback/redisarbiter"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/takes"
)

// An arbiter with a part that does not answer.

// sick is an arbiter with a partition that takes no releases.
type sick struct {
	fallback.Arbiter
	part atomic.Int64
}
type sickSpace struct {
	fallback.Namespace
	a *sick
}

func (a *sick) Attach(ctx context.Context, s fallback.Settings) (fallback.Namespace, error) {
	n, err := a.Arbiter.Attach(ctx, s)
	return &sickSpace{n, a}, err
}

func (n *sickSpace) Unlock(ctx context.Context, rs []fallback.Release) []error {
	errs := make([]error, len(rs))
	var ok []fallback.Release
	for i, r := range rs {
		if int64(r.Partition) != n.a.part.Load() {
			ok = append(ok, r)
		} else {
			errs[i] = context.DeadlineExceeded
		}
	}
	_ = n.Namespace.Unlock(ctx, ok)
	if len(ok) < len(rs) {
		<-ctx.Done()
		return errs
	}
	return nil
}

func TestAReleaseThatFailsHoldsUpNoOther(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		x := &sick{Arbiter: a}
		x.part.Store(-1)
		here, there := startDefault(t, x, nil), startDefault(t, a, nil)
		unlock(t, lock(t, here, "sick"))
		x.part.Store(int64(xxhash.Sum64String("sick") % 1021))
		time.Sleep(time.Second)
		before := here.Stats().Calls[coord.OpUnlock]
		var worst time.Duration
		for i := range 200 {
			k := fmt.Sprint("k", i)
			l := lock(t, here, k)
			unlock(t, l)
			time.Sleep(20 * time.Millisecond) // the lingering ends
			if i%10 == 0 {
				begin := time.Now()
				m := lock(t, there, k)
				worst = max(worst, time.Since(begin))
				unlock(t, m)
			}
		}
		time.Sleep(10 * time.Second)
		if n := here.Stats().Calls[coord.OpUnlock] - before; n > 400 || worst > 100*time.Millisecond {
			t.Errorf("200 locks of healthy partitions needed %d releases; a free key was handed over after up to %v", n, worst)
		}
		x.part.Store(-1)
	})
}

func TestTryLockDoesNotWaitForAWordOnTheHolder(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		net := &faulty{Arbiter: a}
		holder, c := start(t, a, nil), start(t, net, nil)
		l := lock(t, holder, "k")
		net.set(func(op string) fault {
			switch op {
			case "lock":
				return fault{request: 900 * time.Millisecond}
			case "dead":
				return fault{lost: true}
			}
			return fault{}
		})
		defer net.mend()
		begin := time.Now()
		_, err := c.TryLock(t.Context(), "k")
		if d := time.Since(begin); d > time.Second {
			t.Errorf("TryLock took %v, CallTimeout is 1s: %v; calls %v", d, err, c.Stats().Calls)
		}
		unlock(t, l)
	})
}

func TestAWakeIsHeardWhileAWordOnTheHolderIsAwaited(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		net := &faulty{Arbiter: a}
		holder, c := start(t, a, nil), start(t, net, nil)
		net.set(func(op string) fault {
			if op == "dead" {
				return fault{lost: true}
			}
			return fault{}
		})
		defer net.mend()
		l := lock(t, holder, "k")
		go func() {
			time.Sleep(10 * time.Millisecond)
			unlock(t, l)
		}()
		begin := time.Now()
		unlock(t, lock(t, c, "k"))
		if d := time.Since(begin); d > 100*time.Millisecond {
			t.Errorf("the key was free after 10 ms and taken after %v", d)
		}
	})
}

// No message reaches the process that uses the key all the time: it finds out when it verifies.
func TestAProcessThatGetsNoMessagesIsRecalled(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		net := &faulty{Arbiter: a}
		here, there := start(t, net, nil), start(t, a, nil)
		net.cut("message")
		stop := hog(t, here, "k")
		defer stop()
		time.Sleep(100 * time.Millisecond)
		begin := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 2*2500*time.Millisecond)
		defer cancel()
		if l, err := there.Lock(ctx, "k"); err != nil {
			t.Errorf("after %v: %v", time.Since(begin), err)
		} else {
			unlock(t, l)
		}
	})
}

// After an outage that was longer than the lease, the new session looks at the partitions.
func TestGraceBeginsEverywhereAfterALongOutage(t *testing.T) {
	takes.Seconds(t)
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		net := &faulty{Arbiter: a}
		c := startDefault(t, net, nil)
		net.cut()
		time.Sleep(30 * time.Second)
		a.Restore(a.Snapshot())
		net.mend()
		time.Sleep(time.Minute)
		begin := time.Now()
		unlock(t, lock(t, c, "k"))
		if d := time.Since(begin); d > time.Second {
			t.Errorf("a minute after the failover the first lock took %v: Grace had not begun", d)
		}
	})
}

func TestGraceBeginsEverywhereAfterASecondFailover(t *testing.T) {
	takes.Seconds(t)
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		net := &faulty{Arbiter: a}
		c := startDefault(t, net, nil)
		var late atomic.Bool
		late.Store(true)
		net.set(func(op string) fault {
			if op == "renew" && late.Load() {
				return fault{answer: 100 * time.Millisecond}
			}
			return fault{}
		})
		time.Sleep(time.Second)
		a.Restore(a.Snapshot())
		time.Sleep(2 * time.Second) // noticed by the renewal, swept
		late.Store(false)
		a.Restore(a.Snapshot())
		time.Sleep(time.Minute)
		begin := time.Now()
		unlock(t, lock(t, c, "k"))
		if d := time.Since(begin); d > time.Second {
			t.Errorf("a minute after the second failover the first lock took %v: Grace had not begun", d)
		}
	})
}

func TestTryLockOfAnOwnedPartitionIsOneCall(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		c := start(t, a, nil)
		ns, _ := a.Attach(t.Context(), fallback.Settings{Namespace: "holdfast", Partitions: few, Grace: 12 * time.Second})
		p := uint32(xxhash.Sum64String("k") % few)
		_, _ = ns.Open(t.Context(), "owner", fallback.Registration{TTL: time.Hour})
		r := must(ns.Load(t.Context(), p))
		must(ns.Acquire(t.Context(), p, "owner", fallback.Expect{Epoch: r.Epoch}))
		_, err := c.TryLock(t.Context(), "k")
		s := c.Stats()
		if n := s.Calls[coord.OpLock]; n > 1 || !errors.Is(err, coord.ErrUnavailable) {
			t.Errorf("TryLock: %v after %d calls: %v", err, n, s.Calls)
		}
	})
}

func TestNewGivesUpOnASilentServer(t *testing.T) {
	takes.Seconds(t)
	s := redistest.Start(t)
	a := stubborn(t, s)
	_ = s.Signal(syscall.SIGSTOP)
	defer s.Signal(syscall.SIGCONT)
	begin := time.Now()
	_, err := coord.New(context.Background(), a, &coord.Options{SessionTTL: time.Second, Grace: 2 * time.Second})
	if d := time.Since(begin); err == nil || d > patient || !strings.Contains(err.Error(), " at "+s.Addr) {
		t.Errorf("New: %v after %v, of %s", err, d, s.Addr)
	}
}

// away is an arbiter that does not answer, and knows its servers.
type away struct{}

func (away) Attach(context.Context, fallback.Settings) (fallback.Namespace, error) {
	return nil, errors.New("no route")
}

func (away) Describe(context.Context, string) (fallback.Settings, error) {
	return fallback.Settings{}, errors.New("no route")
}

func (away) Servers() []string { return []string{"redis://shop:secret@10.0.0.1:6379", "10.0.0.2:6379"} }

// An error of New says which servers do not answer, and no password.
func TestNewNamesTheServersThatDoNotAnswer(t *testing.T) {
	for _, observe := range []bool{false, true} {
		_, err := coord.New(t.Context(), away{}, &coord.Options{Observe: observe})
		const want = "coord: New: coord: arbiter unavailable at 10.0.0.1:6379, 10.0.0.2:6379: no route"
		if !errors.Is(err, coord.ErrUnavailable) || err.Error() != want {
			t.Errorf("Observe %t: got %v, want %s", observe, err, want)
		}
	}
}

func TestNewGivesUpWhenItsContextEnds(t *testing.T) {
	s := redistest.Start(t)
	a := stubborn(t, s)
	_ = s.Signal(syscall.SIGSTOP)
	defer s.Signal(syscall.SIGCONT)
	why := errors.New("the service is told to stop")
	ctx, cancel := context.WithCancelCause(t.Context())
	time.AfterFunc(50*time.Millisecond, func() { cancel(why) })
	begin := time.Now()
	_, err := coord.New(ctx, a, &coord.Options{SessionTTL: 2 * time.Minute, RenewEvery: 30 * time.Second}) // would try for a minute
	if d := time.Since(begin); !errors.Is(err, coord.ErrUnavailable) || !errors.Is(err, why) || d > patient {
		t.Errorf("New: %v after %v", err, d)
	}
}

func TestNewWithStartUnavailableWaitsForNothing(t *testing.T) {
	s := redistest.Start(t)
	a := stubborn(t, s)
	_ = s.Signal(syscall.SIGSTOP)
	begin := time.Now()
	c, err := coord.New(t.Context(), a, &coord.Options{StartUnavailable: true, SessionTTL: 2 * time.Minute, RenewEvery: 30 * time.Second})
	if d := time.Since(begin); err != nil || d > patient {
		t.Fatalf("New: %v after %v", err, d)
	}
	_ = s.Signal(syscall.SIGCONT)
	l, err := c.Lock(t.Context(), "k")
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Unlock(); err != nil {
		t.Error(err)
	}
	if err := c.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestCloseGivesUpOnASilentServer(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	c, err := coord.New(context.Background(), stubborn(t, s), &coord.Options{SessionTTL: time.Second, Grace: 2 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	l := lock(t, c, "k")
	_ = s.Signal(syscall.SIGSTOP)
	defer s.Signal(syscall.SIGCONT)
	_ = l.Unlock()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	begin := time.Now()
	err = c.Close(ctx)
	if d := time.Since(begin); err == nil || d > patient {
		t.Errorf("Close: %v after %v", err, d)
	}
}

// patient is far longer than the calls may take, and far less than the client waits.
const patient = 20 * time.Second

// stubborn is an arbiter whose client waits for a minute, whatever it is told.
func stubborn(t *testing.T, s *redistest.Server) fallback.Arbiter {
	client := redis.NewClient(&redis.Options{Addr: s.Addr, ReadTimeout: time.Minute, DialTimeout: time.Minute})
	t.Cleanup(func() { _ = client.Close() })
	return redisarbiter.New(client, &redisarbiter.Options{ColdStart: true})
}

// With a SessionTTL of 35 s, and no other setting, the arbiter may be away for 25 s whenever that
// begins and however calls fail.
func TestSession_OutlivesAnOutageOf25Seconds(t *testing.T) {
	takes.Seconds(t)
	for how, f := range map[string]fault{"refused": {err: errCut}, "no answer": {lost: true}} {
		for after := time.Duration(0); after < 2500*time.Millisecond; after += 300 * time.Millisecond {
			bubble(t, func(t *testing.T, a *fallback.Memory) {
				net := &faulty{Arbiter: a}
				c := start(t, net, &coord.Options{SessionTTL: 35 * time.Second})
				l := lock(t, c, "k")
				time.Sleep(after)
				net.set(func(string) fault { return f })
				time.Sleep(25 * time.Second)
				net.mend()
				time.Sleep(time.Minute)
				if err := l.Unlock(); err != nil {
					t.Errorf("%s, %v after the start: %v", how, after, err)
				}
			})
		}
	}
}

// A server that has just taken over renews a session if enough of it is left: the server before
// must be silent when it expires there. That is a second, by default.
func TestSession_IsRenewedInTimeAtAnotherServer(t *testing.T) {
	for _, tt := range []struct {
		name              string
		failover, answers time.Duration // after the last renewal; its lease is 9 s
		lives             bool
	}{
		{"1.4 s are left", 7400 * time.Millisecond, 7400 * time.Millisecond, true},
		{"half a second is left", 8400 * time.Millisecond, 8400 * time.Millisecond, false},
		{"half a second, and the server before is silent", 4900 * time.Millisecond, 8400 * time.Millisecond, true},
		{"half a second, and the server before may answer", 7 * time.Second, 8400 * time.Millisecond, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, func(t *testing.T, a *fallback.Memory) {
				net := &faulty{Arbiter: a}
				h := newRecords()
				c := start(t, net, named("one", h))
				start(t, a, named("two", newRecords())) // renews each 2.5 s, and sees the new server then
				l := lock(t, c, "k")
				net.set(func(string) fault { return fault{err: errCut} })
				time.Sleep(tt.failover)
				a.Restore(a.Snapshot())
				time.Sleep(tt.answers - tt.failover)
				net.mend()
				time.Sleep(10 * time.Second)
				if err := l.Unlock(); (err == nil) != tt.lives {
					t.Errorf("Unlock: %v", err)
				}
				if got := h.about("holdfast: session lost, and all locks with it"); (len(got) == 0) != tt.lives {
					t.Errorf("%v", got)
				}
			})
		})
	}
}
