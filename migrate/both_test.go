package migrate_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/coordtest"
	"github.com/holdfast-go/holdfast/internal/leak"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/migrate"
	redislockshim "github.com/holdfast-go/holdfast/migrate/redislock"
	redsyncshim "github.com/holdfast-go/holdfast/migrate/redsync"
	rueidislockshim "github.com/holdfast-go/holdfast/migrate/rueidislock"
)

func TestMain(m *testing.M) { leak.Main(m) }

// locker runs a section under the lock of a key, as a process of one kind does.
type locker func(ctx context.Context, key string, section func()) error

// world is a server, and a store that sees overlaps.
type world struct {
	t        *testing.T
	server   *redistest.Server
	memory   *fallback.Memory
	inside   atomic.Int32
	overlaps atomic.Int32
}

// An old library, and the shim with its names.
type library struct {
	opts *migrate.Options // of the Both
	old  func(t *testing.T, s *redistest.Server) locker
	shim func(c *coord.Coordinator, b *migrate.Both) locker // over b if it is not nil
}

var libraries = map[string]library{
	"redislock": {
		opts: &migrate.Options{Retry: 2 * time.Millisecond},
		old: func(t *testing.T, s *redistest.Server) locker {
			c := redislock.New(s.Client(t))
			return func(ctx context.Context, key string, section func()) error {
				l, err := c.Obtain(ctx, key, 10*time.Second, &redislock.Options{RetryStrategy: redislock.LinearBackoff(2 * time.Millisecond)})
				if err != nil {
					return err
				}
				section()
				return l.Release(context.WithoutCancel(ctx))
			}
		},
		shim: func(c *coord.Coordinator, b *migrate.Both) locker {
			client := redislockshim.New(c)
			if b != nil {
				client = redislockshim.NewBoth(b)
			}
			return func(ctx context.Context, key string, section func()) error {
				l, err := client.Obtain(ctx, key, 10*time.Second, &redislockshim.Options{RetryStrategy: redislockshim.LinearBackoff(2 * time.Millisecond)})
				if err != nil {
					return err
				}
				section()
				return l.Release(ctx)
			}
		},
	},
	"redsync": {
		opts: &migrate.Options{Retry: 2 * time.Millisecond},
		old: func(t *testing.T, s *redistest.Server) locker {
			c := redsync.New(goredis.NewPool(s.Client(t)))
			return func(ctx context.Context, key string, section func()) error {
				return mutex(ctx, c.NewMutex(key, redsync.WithExpiry(10*time.Second), redsync.WithTries(100000), redsync.WithRetryDelay(2*time.Millisecond)), section)
			}
		},
		shim: func(c *coord.Coordinator, b *migrate.Both) locker {
			rs := redsyncshim.New(c)
			if b != nil {
				rs = redsyncshim.NewBoth(b)
			}
			return func(ctx context.Context, key string, section func()) error {
				return mutex(ctx, rs.NewMutex(key, redsyncshim.WithTries(100000), redsyncshim.WithRetryDelay(2*time.Millisecond)), section)
			}
		},
	},
	"rueidislock": {
		opts: &migrate.Options{Retry: 2 * time.Millisecond, OldKeys: migrate.RueidislockKeys("", 0)},
		old: func(t *testing.T, s *redistest.Server) locker {
			l, err := rueidislock.NewLocker(rueidislock.LockerOption{ClientOption: rueidis.ClientOption{InitAddress: []string{s.Addr}}, TryNextAfter: 5 * time.Second})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(l.Close)
			return func(ctx context.Context, key string, section func()) error { return with(ctx, l, key, section) }
		},
		shim: func(c *coord.Coordinator, b *migrate.Both) locker {
			return func(ctx context.Context, key string, section func()) error {
				l, err := rueidislockshim.NewLocker(c)
				if b != nil {
					l, err = rueidislockshim.NewBoth(b)
				}
				if err != nil {
					return err
				}
				return with(ctx, l, key, section)
			}
		},
	},
}

// mutex runs a section under a mutex of redsync.
func mutex(ctx context.Context, m interface {
	LockContext(ctx context.Context) error
	UnlockContext(ctx context.Context) (bool, error)
}, section func()) error {
	if err := m.LockContext(ctx); err != nil {
		return err
	}
	section()
	_, err := m.UnlockContext(context.WithoutCancel(ctx))
	return err
}

// with runs a section under a lock of rueidislock. The end of ctx ends the wait only.
func with(ctx context.Context, l rueidislockshim.Locker, key string, section func()) error {
	held, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	waits := context.AfterFunc(ctx, end)
	_, unlock, err := l.WithContext(held, key)
	if err != nil {
		return err
	}
	defer unlock()
	if waits() {
		section()
	}
	return nil
}

// kind returns how a process of the kind locks.
func (w *world) kind(x library, kind string) locker {
	var both *migrate.Both
	var c *coord.Coordinator
	if kind != "old" {
		c = w.start()
	}
	if strings.HasSuffix(kind, "both") {
		var err error
		if both, err = migrate.New(c, w.server.Client(w.t), x.opts); err != nil {
			w.t.Fatal(err)
		}
	}
	switch kind {
	case "old":
		return x.old(w.t, w.server)
	case "both":
		return func(ctx context.Context, key string, section func()) error {
			return both.Do(ctx, key, func(context.Context, *migrate.Lock) error { section(); return nil })
		}
	case "new":
		return func(ctx context.Context, key string, section func()) error {
			return c.Do(ctx, key, func(context.Context, coord.Lock) error { section(); return nil })
		}
	}
	return x.shim(c, both)
}

func (w *world) start() *coord.Coordinator { return start(w.t, w.memory) }

func start(t *testing.T, a fallback.Arbiter) *coord.Coordinator { return coordtest.Start(t, a, nil) }

// process locks again and again until stop, which returns how often.
func (w *world) process(lock locker) (stop func() int) {
	ctx, cancel := context.WithCancel(w.t.Context())
	done := make(chan int)
	go func() {
		n := 0
		for ctx.Err() == nil {
			err := lock(ctx, "stock", func() {
				if w.inside.Add(1) != 1 {
					w.overlaps.Add(1)
				}
				time.Sleep(200 * time.Microsecond)
				w.inside.Add(-1)
				n++
			})
			if err != nil && ctx.Err() == nil {
				w.t.Errorf("lock: %v", err)
			}
		}
		done <- n
	}()
	return func() int { cancel(); return <-done }
}

// roll replaces the processes one by one, from kind to kind.
func (w *world) roll(x library, kinds ...string) {
	var stops []func() int
	for range 3 {
		stops = append(stops, w.process(w.kind(x, kinds[0])))
	}
	for i, kind := range kinds {
		for j := range stops {
			time.Sleep(60 * time.Millisecond)
			if i > 0 {
				stops[j]()
				stops[j] = w.process(w.kind(x, kind))
			}
		}
	}
	time.Sleep(100 * time.Millisecond)
	total := 0
	for _, stop := range stops {
		total += stop()
	}
	if total == 0 {
		w.t.Errorf("%v: the last processes got no lock", kinds)
	}
}

// There and back, with the old library on the other side. What comes between old and new is Both.
func TestBoth_ARollingChange(t *testing.T) {
	for name, x := range libraries {
		t.Run(name, func(t *testing.T) {
			w := &world{t: t, server: redistest.Start(t), memory: fallback.NewMemory()}
			w.roll(x, "old", "both", "new", "both", "old")
			w.roll(x, "old", "shim over both", "shim", "new", "shim over both", "old")
			if n := w.overlaps.Load(); n != 0 {
				t.Errorf("%d overlaps", n)
			}
			w.roll(x, "old", "new")
			if w.overlaps.Load() == 0 {
				t.Error("no overlaps without Both: the test sees none")
			}
		})
	}
}

// The old key is taken away: the context ends, and Unlock says so.
func TestLock_OldKeyLost(t *testing.T) {
	s := redistest.Start(t)
	client := s.Client(t)
	b, err := migrate.New(start(t, fallback.NewMemory()), client, &migrate.Options{TTL: 300 * time.Millisecond, OldKeys: func(k string) []string { return []string{"old:" + k} }})
	if err != nil {
		t.Fatal(err)
	}
	l, err := b.Lock(t.Context(), "k")
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(time.Second) // it is renewed
	if l.Context().Err() != nil {
		t.Fatalf("lost: %v", context.Cause(l.Context()))
	}
	if n, err := client.Del(t.Context(), "old:k").Result(); n != 1 || err != nil {
		t.Fatalf("the old key is not there: %v", err)
	}
	<-l.Context().Done()
	if err := context.Cause(l.Context()); !errors.Is(err, migrate.ErrOldLost) || !errors.Is(err, coord.ErrLost) {
		t.Errorf("cause: %v", err)
	}
	if err := l.Unlock(); !errors.Is(err, coord.ErrLost) || !errors.Is(l.Unlock(), coord.ErrLost) {
		t.Errorf("Unlock: %v", err)
	}
}

// A server that stops answering does not keep a lock in force.
func TestLock_OldServerGone(t *testing.T) {
	s := redistest.Start(t)
	b, err := migrate.New(start(t, fallback.NewMemory()), s.Client(t), &migrate.Options{TTL: 300 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	l, err := b.Lock(t.Context(), "k")
	if err != nil {
		t.Fatal(err)
	}
	s.Kill()
	<-l.Context().Done()
	if err := l.Unlock(); !errors.Is(err, migrate.ErrOldLost) {
		t.Errorf("Unlock: %v", err)
	}
}

// A wait that has an end leaves nothing behind.
func TestLock_Ends(t *testing.T) {
	s := redistest.Start(t)
	client := s.Client(t)
	c := start(t, fallback.NewMemory())
	b, err := migrate.New(c, client, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := client.Set(t.Context(), "k", "an old process", 0).Err(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	if _, err := b.Lock(ctx, "k"); !errors.Is(err, coord.ErrLocked) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
	if v := client.Get(t.Context(), "k").Val(); v != "an old process" {
		t.Errorf("the old key is %q", v)
	}
	l, err := c.Lock(t.Context(), "k")
	if err != nil {
		t.Fatal(err)
	}
	l.Unlock()
}

func TestBoth_Do(t *testing.T) {
	s := redistest.Start(t)
	b, err := migrate.New(start(t, fallback.NewMemory()), s.Client(t), nil)
	if err != nil {
		t.Fatal(err)
	}
	var work sync.WaitGroup
	var inside atomic.Int32
	for range 4 {
		work.Go(func() {
			failed := errors.New("failed")
			if err := b.Do(t.Context(), "k", func(ctx context.Context, l *migrate.Lock) error {
				if inside.Add(1) != 1 || ctx.Err() != nil || l.Fence() == 0 {
					t.Error("not alone, or without a token")
				}
				inside.Add(-1)
				return failed
			}); err != failed {
				t.Errorf("got %v", err)
			}
		})
	}
	work.Wait()
}

func TestNew_Refuses(t *testing.T) {
	c, client := start(t, fallback.NewMemory()), redistest.Start(t).Client(t)
	for want, opts := range map[string]*migrate.Options{"TTL": {TTL: 1}, "Retry": {Retry: -1}} {
		if _, err := migrate.New(c, client, opts); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
	if _, err := migrate.New(nil, nil, nil); err == nil {
		t.Error("nil was accepted")
	}
}

func ExampleNew() {
	// In the deployment between redislock and Holdfast:
	deploy := func(locks *coord.Coordinator, b *migrate.Both) error {
		return b.Do(context.Background(), "sku/7", func(ctx context.Context, l *migrate.Lock) error {
			fmt.Println("no old and no new process has", l.Key())
			return nil
		})
	}
	_ = deploy
}
