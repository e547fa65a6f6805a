package migrate_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/coordtest"
	"github.com/holdfast-go/holdfast/internal/leak"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/migrate"
	"github.com/holdfast-go/holdfast/migrate/internal/patience"
)

func TestMain(m *testing.M) {
	if text := os.Getenv(workerEnv); text != "" {
		if err := work(text); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	leak.Main(m)
}

// world is a server, and a store that sees overlaps.
type world struct {
	t        *testing.T
	server   *redistest.Server
	memory   *fallback.Memory
	inside   atomic.Int32
	overlaps atomic.Int32
}

func start(t *testing.T, a fallback.Arbiter) *coord.Coordinator { return coordtest.Start(t, a, nil) }

// process locks again and again until stop, which returns how often.
func (w *world) process(x library, kind string) (stop func() int) {
	w.t.Helper()
	lock, end, err := x.open(context.WithoutCancel(w.t.Context()), kind, w.server.Addr, func(*redis.Client) fallback.Arbiter { return w.memory })
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(end)
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
		stops = append(stops, w.process(x, kinds[0]))
	}
	for i, kind := range kinds {
		for j := range stops {
			time.Sleep(60 * time.Millisecond)
			if i > 0 {
				stops[j]()
				stops[j] = w.process(x, kind)
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

// There and back, with the old library on the other side. Both comes between old and new.
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

// The old keys are taken away, and Unlock comes before a renewal has noticed. One of three is not
// the lock.
func TestUnlock_OldKeysLostSinceTheLastRenewal(t *testing.T) {
	client := redistest.Start(t).Client(t)
	c := start(t, fallback.NewMemory())
	for name, x := range map[string]struct {
		keys func(key string) []string
		lose []string
		want error
	}{
		"the key":           {nil, []string{"k"}, migrate.ErrOldLost},
		"two keys of three": {migrate.RueidislockKeys("", 0), []string{"rueidislock:0:k", "rueidislock:2:k"}, migrate.ErrOldLost},
		"one key of three":  {migrate.RueidislockKeys("", 0), []string{"rueidislock:1:k"}, nil},
		"none":              {nil, nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			b, err := migrate.New(c, client, &migrate.Options{OldKeys: x.keys})
			if err != nil {
				t.Fatal(err)
			}
			l, err := b.Lock(t.Context(), "k")
			if err != nil {
				t.Fatal(err)
			}
			for _, key := range x.lose {
				if n, err := client.Del(t.Context(), key).Result(); n != 1 || err != nil {
					t.Fatalf("the old key is not there: %v", err)
				}
			}
			if err := l.Unlock(); !errors.Is(err, x.want) {
				t.Errorf("Unlock: %v, want %v", err, x.want)
			}
			if err := b.Do(t.Context(), "k", func(context.Context, *migrate.Lock) error {
				return client.Del(t.Context(), append(x.lose, "nothing")...).Err()
			}); !errors.Is(err, x.want) {
				t.Errorf("Do: %v, want %v", err, x.want)
			}
		})
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

// A shim's last pause ends its wait, and no context of its caller's: the error is that of one more
// try.
func TestBoth_TheLastPauseIsOver(t *testing.T) {
	client := redistest.Start(t).Client(t)
	b, err := migrate.New(start(t, fallback.NewMemory()), client, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := client.Set(t.Context(), "k", "an old process", 0).Err(); err != nil {
		t.Fatal(err)
	}
	once := func() func() time.Duration {
		pauses := []time.Duration{50 * time.Millisecond, 0}
		return func() (next time.Duration) {
			next, pauses = pauses[0], pauses[1:]
			return next
		}
	}
	_, err = patience.Lock(t.Context(), patience.Both(b), "k", once())
	if !errors.Is(err, coord.ErrLocked) || errors.Is(err, context.Canceled) {
		t.Errorf("a key that is locked: %v", err)
	}
	for _, over := range []error{errors.New("over"), fmt.Errorf("over: %w", context.DeadlineExceeded)} {
		ctx, cancel := context.WithTimeoutCause(t.Context(), 50*time.Millisecond, over)
		defer cancel()
		if _, err = b.Lock(ctx, "k"); !errors.Is(err, coord.ErrLocked) || !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, over) {
			t.Errorf("a context with a cause: %v", err)
		}
	}
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
	until := time.Now().Add(100 * time.Millisecond)
	ctx, cancel := context.WithDeadline(t.Context(), until)
	defer cancel()
	if err := b.Do(ctx, "k", func(ctx context.Context, _ *migrate.Lock) error {
		if d, _ := ctx.Deadline(); !d.Equal(until) {
			t.Errorf("the deadline is %v, want %v", d, until)
		}
		<-ctx.Done()
		return ctx.Err()
	}); err != context.DeadlineExceeded {
		t.Errorf("after the deadline: %v", err)
	}
}

func TestNew_Refuses(t *testing.T) {
	c, client := start(t, fallback.NewMemory()), redistest.Start(t).Client(t)
	for want, opts := range map[string]*migrate.Options{"TTL": {TTL: 1}, "Retry": {Retry: -1}, "Retry is 20ns": {Retry: 20}} {
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
