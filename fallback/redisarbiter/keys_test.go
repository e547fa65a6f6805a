package redisarbiter_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/fallback/redisarbiter"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/takes"
)

// TestNothingIsLeftBehind uses every operation and gives everything back. That no other keys are
// touched is seen by TestRedisConforms, whose user may not.
func TestNothingIsLeftBehind(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	c := s.Client(t)
	n := attach(t, c, cold)
	open(t, n, "alice")
	var releases []fallback.Release
	for p := range uint32(plain.Partitions) {
		for i := range uint64(5) {
			key := fmt.Sprint("key\x00{} ", i)
			lock(t, n, p, key, id("alice", i))
			for w := range uint64(3) {
				q := fallback.LockRequest{Partition: p, Key: key, Me: id("waiter", 10*i+w), Block: 1, Wait: true}
				if _, err := n.Lock(t.Context(), q); err != nil {
					t.Fatal(err)
				}
				releases = append(releases, fallback.Release{Partition: p, Key: key, Identity: q.Me})
			}
			releases = append(releases, fallback.Release{Partition: p, Key: key, Identity: id("alice", i)})
		}
	}
	r, err := n.Load(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	a, err := n.Acquire(t.Context(), 0, "alice", fallback.Expect{Epoch: r.Epoch})
	if err != nil {
		t.Fatal(err)
	}
	adopted := fallback.Row{Identity: id("bob", 1), Token: fallback.MakeToken(a.Record.Epoch, 1)}
	if _, err := redisarbiter.Adopt(t.Context(), n, 0, "adopted", adopted); err != nil {
		t.Fatal(err)
	}
	releases = append(releases, fallback.Release{Key: "adopted", Identity: adopted.Identity})
	if _, err := n.DemoteUnserved(t.Context(), 0, "alice", a.Record.Epoch); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(n.Unlock(t.Context(), releases)...); err != nil {
		t.Fatal(err)
	}
	if err := n.CloseSession(t.Context(), "alice"); err != nil {
		t.Fatal(err)
	}

	keys := c.Keys(t.Context(), "*").Val()
	slices.Sort(keys)
	if want := []string{"{ns:p0}", "{ns:p1}", "{ns:p2}", "{ns:p3}", "{ns:s}"}; !slices.Equal(keys, want) {
		t.Errorf("keys: got %q, want %q", keys, want)
	}
	for _, k := range keys {
		want := []string{"i", "m", "u"}
		if k == "{ns:s}" {
			want = []string{"f", "g", "i", "k", "u"}
		}
		fields := c.HKeys(t.Context(), k).Val()
		if slices.Sort(fields); !slices.Equal(fields, want) {
			t.Errorf("fields of %s: got %q, want %q", k, fields, want)
		}
		if ttl := c.TTL(t.Context(), k).Val(); ttl != -1 {
			t.Errorf("%s expires in %v", k, ttl)
		}
	}
}

// A queue whose waiters are all gone, with none left to unlock them, is the only thing that goes by
// itself.
func TestOnlyQueuesExpire(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	c := s.Client(t)
	n := attach(t, c, cold)
	lock(t, n, 0, "k", id("alice", 1))
	if _, err := n.Lock(t.Context(), fallback.LockRequest{Key: "k", Me: id("ghost", 1), Block: 1, Wait: true}); err != nil {
		t.Fatal(err)
	}
	open(t, n, "alice")
	for _, k := range c.Keys(t.Context(), "*").Val() {
		ttl := c.TTL(t.Context(), k).Val()
		if strings.Contains(k, ":w:") {
			if ttl <= plain.Grace {
				t.Errorf("%q expires in %v, but a waiter may ask again after a Grace of %v", k, ttl, plain.Grace)
			}
		} else if ttl != -1 {
			t.Errorf("%q expires in %v", k, ttl)
		}
	}
}

// Any client may publish.
func TestGarbageOnChannelIsIgnored(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	c := s.Client(t)
	n := attach(t, c, cold)
	messages := make(chan fallback.Message, 100)
	stop, err := n.Listen(t.Context(), "alice", func(m fallback.Message) { messages <- m })
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	for _, text := range []string{"", " ", "w", "w1", "w 1", "wx k", "w-1 k", "w1 ", "a", "a99999999999999999999 k", "r1", "r1 x", "r-1 1", "r4294967296 1", "g", "x1 k", "\x00", "hello world"} {
		if got := c.Publish(t.Context(), "{ns:c}:alice", text).Val(); got != 1 {
			t.Fatalf("%d listeners", got)
		}
	}
	lock(t, n, 0, "k", id("alice", 7))
	lock(t, n, 0, "k", id("bob", 1))
	select {
	case m := <-messages:
		if m != (fallback.Message{Kind: fallback.Ask, Key: "k", Request: 7}) {
			t.Errorf("message: got %+v, want to be asked", m)
		}
	case <-time.After(patience):
		t.Error("no message after the garbage")
	}
}

// Processes that were started with different settings: whichever is first, all others are told.
func TestAttachAtOnceWithDifferentSettings(t *testing.T) {
	takes.Seconds(t)
	t.Parallel()
	s := redistest.Start(t)
	c := s.Client(t)
	for round := range 10 {
		var attached, mismatched [2]atomic.Int64
		var wg sync.WaitGroup
		for i := range 8 {
			settings := fallback.Settings{Namespace: fmt.Sprint("ns", round), Partitions: 300 + i%2, Grace: time.Hour}
			wg.Go(func() {
				n, err := redisarbiter.New(c, cold).Attach(t.Context(), settings)
				switch {
				case err == nil:
					defer n.Close()
					attached[i%2].Add(1)
					r, err := n.Load(t.Context(), uint32(settings.Partitions-1))
					if err != nil || r.Grace != 0 {
						t.Errorf("the last partition: got %+v, %v, want it to be formatted", r, err)
					}
				case errors.Is(err, fallback.ErrMismatch):
					mismatched[i%2].Add(1)
				default:
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if x, y := attached[0].Load(), attached[1].Load(); x+y != 4 || x*y != 0 ||
			mismatched[0].Load() != 4-x || mismatched[1].Load() != 4-y {
			t.Errorf("%d attached with one setting and %d with another", x, y)
		}
	}
}

// trips counts round trips.
type trips struct{ n atomic.Int64 }

func (c *trips) DialHook(next redis.DialHook) redis.DialHook { return next }

func (c *trips) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		c.n.Add(1)
		return next(ctx, cmd)
	}
}

func (c *trips) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		c.n.Add(1)
		return next(ctx, cmds)
	}
}

// calls returns how many commands the server has executed, those in scripts included.
func calls(t *testing.T, c *redis.Client) (n int) {
	t.Helper()
	text, err := c.Info(t.Context(), "commandstats").Result()
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range redisarbiter.ParseInfo(text) {
		var one int
		if _, err := fmt.Sscanf(v, "calls=%d,", &one); err != nil {
			t.Fatal(err)
		}
		n += one
	}
	return n
}

// The price of each operation: one round trip, and on the server the commands given, with EVALSHA
// itself.
func TestEveryOperationIsOneRoundTrip(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	c := s.Client(t)
	n := attach(t, c, shared(c))
	var count trips
	c.AddHook(&count)
	watcher := s.Client(t) // whose INFO does not count

	request := uint64(0)
	var epoch uint32
	load := func() fallback.Record {
		r, err := n.Load(t.Context(), 0)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	var row fallback.Row
	for _, tt := range []struct {
		name     string
		commands int
		prepare  func()
		run      func() error
	}{
		{"Lock of a free key", 5, func() { request++ }, func() error {
			return wrong(nil, lock(t, n, 0, fmt.Sprint("key ", request), id("alice", request)).Verdict == fallback.Granted)
		}},
		{"Lock of a held key", 5, nil, func() error {
			return wrong(nil, lock(t, n, 0, "key 1", id("bob", 1)).Verdict == fallback.Held)
		}},
		{"Lock that queues", 9, func() { request++ }, func() error {
			_, err := n.Lock(t.Context(), fallback.LockRequest{Key: "key 1", Me: id("waiter", request), Block: 1, Wait: true})
			return err
		}},
		{"Unlock without waiters", 5, func() { request++; lock(t, n, 0, "k", id("alice", request)) }, func() error {
			return errors.Join(n.Unlock(t.Context(), []fallback.Release{{Key: "k", Identity: id("alice", request)}})...)
		}},
		{"Unlock with waiters", 10, func() {
			request++
			lock(t, n, 0, fmt.Sprint("waited for ", request), id("alice", request))
			if _, err := n.Lock(t.Context(), fallback.LockRequest{Key: fmt.Sprint("waited for ", request), Me: id("waiter", request), Block: 1, Wait: true}); err != nil {
				t.Fatal(err)
			}
		}, func() error {
			return errors.Join(n.Unlock(t.Context(), []fallback.Release{{Key: fmt.Sprint("waited for ", request), Identity: id("alice", request)}})...)
		}},
		{"Unlock of four holds in four partitions", 4 * 5, func() {
			for p := range uint32(4) {
				lock(t, n, p, "kk", id("alice", 1))
			}
		}, func() error {
			var all []fallback.Release
			for p := range uint32(4) {
				all = append(all, fallback.Release{Partition: p, Key: "kk", Identity: id("alice", 1)})
			}
			return errors.Join(n.Unlock(t.Context(), all)...)
		}},
		{"Load", 5, nil, func() error { load(); return nil }},
		{"Verify of four partitions", 4 * 6, nil, func() error {
			_, err := redisarbiter.Verify(t.Context(), n, []fallback.Read{{Keys: []string{"a", "b"}}, {Partition: 1, Keys: []string{"a"}}, {Partition: 2, Keys: []string{"a"}}, {Partition: 3, Keys: []string{"a"}}})
			return err
		}},
		{"Verify of four partitions without keys", 7, nil, func() error {
			_, err := redisarbiter.Verify(t.Context(), n, []fallback.Read{{}, {Partition: 1}, {Partition: 2}, {Partition: 3}})
			return err
		}},
		{"Acquire", 7, func() { epoch = load().Epoch }, func() error {
			a, err := n.Acquire(t.Context(), 0, "alice", fallback.Expect{Epoch: epoch, Owner: "alice", OwnerDead: true})
			epoch = a.Record.Epoch
			return wrong(err, a.Verdict == fallback.Granted)
		}},
		{"Adopt", 7, func() {
			request++
			row = fallback.Row{Identity: id("bob", request), Token: fallback.MakeToken(epoch, uint32(request))}
		}, func() error {
			_, err := redisarbiter.Adopt(t.Context(), n, 0, "adopted", row)
			return err
		}},
		{"Revoke", 7, nil, func() error { return n.Revoke(t.Context(), 0, epoch, "bob") }},
		{"ReclaimOwner", 5, nil, func() error { _, err := redisarbiter.ReclaimOwner(t.Context(), n, 0, "alice", epoch); return err }},
		{"ReclaimRow", 6, nil, func() error { _, err := redisarbiter.ReclaimRow(t.Context(), n, 0, "adopted", row); return err }},
		{"DemoteUnserved", 7, func() {
			for range 2 {
				a, err := n.Acquire(t.Context(), 0, "alice", fallback.Expect{Epoch: load().Epoch})
				if err == nil && a.Verdict == fallback.Granted {
					epoch = a.Record.Epoch
				}
			}
		}, func() error {
			_, err := n.DemoteUnserved(t.Context(), 0, "alice", epoch)
			return err
		}},
		{"Open", 10, func() { request++ }, func() error {
			_, err := n.Open(t.Context(), fmt.Sprint("session ", request), fallback.Registration{TTL: time.Hour})
			return err
		}},
		{"Renew", 8, nil, func() error {
			_, err := n.Renew(t.Context(), fmt.Sprint("session ", request), fallback.Registration{TTL: time.Hour})
			return err
		}},
		{"Dead", 6, nil, func() error { _, err := n.Dead(t.Context(), "session 1", fallback.Stamp{}); return err }},
		{"Bury", 6, nil, func() error { _, err := n.(fallback.Burier).Bury(t.Context(), "session 1", 1, nil); return err }},
		{"CloseSession", 6, nil, func() error { return n.CloseSession(t.Context(), "session 1") }},
	} {
		for i := range 2 { // the first time loads the script
			if tt.prepare != nil {
				tt.prepare()
			}
			trips, commands := count.n.Load(), calls(t, watcher)
			if err := tt.run(); err != nil {
				t.Errorf("%s: %v", tt.name, err)
			}
			trips, commands = count.n.Load()-trips, calls(t, watcher)-commands-1
			if i == 0 {
				continue
			}
			if trips != 1 {
				t.Errorf("%s: %d round trips", tt.name, trips)
			}
			if commands != tt.commands {
				t.Errorf("%s: %d commands on the server, want %d", tt.name, commands, tt.commands)
			}
		}
	}
}

// After a failover each node reads each partition: that is a command for each, also in Grace.
func TestAReadOfManyPartitionsIsACommandForEach(t *testing.T) {
	t.Parallel()
	for _, opts := range []*redisarbiter.Options{cold, nil} {
		s := redistest.Start(t)
		settings := plain
		settings.Partitions, settings.Grace = 256, time.Hour
		n, watcher := attachTo(t, s.Client(t), opts, settings), s.Client(t)
		reads := make([]fallback.Read, settings.Partitions)
		for i := range reads {
			reads[i].Partition = uint32(i)
		}
		for _, max := range []int{6 * len(reads), 10 + len(reads)} { // the first time some records are written
			before := calls(t, watcher)
			for i, state := range n.Verify(t.Context(), reads) {
				if in := state.Record.Grace > 0; state.Err != nil || in != (opts == nil) {
					t.Fatalf("partition %d: %+v", i, state)
				}
			}
			if commands := calls(t, watcher) - before - 1; commands > max {
				t.Errorf("in Grace %t: %d commands for %d partitions, want %d at most", opts == nil, commands, len(reads), max)
			}
		}
	}
}
