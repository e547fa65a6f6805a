package election_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/election"
	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/crash"
)

// floor is where shards are worked on.
type floor struct {
	t      *testing.T
	mu     sync.Mutex // protects the fields below
	at     map[int]string
	fences map[int]coord.Fence
	moves  int
	dead   map[string]bool // processes that crashed: they may overlap with others
}

func newFloor(t *testing.T) *floor {
	return &floor{t: t, at: make(map[int]string), fences: make(map[int]coord.Fence), dead: make(map[string]bool)}
}

// worker is a process that takes shards.
type worker struct {
	stop context.CancelFunc
	done chan error
}

func (f *floor) start(c *coord.Coordinator, id string, n int, wind time.Duration) worker {
	e, err := election.New(c, "feed", &election.Options{ID: id})
	if err != nil {
		f.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(f.t.Context())
	w := worker{cancel, make(chan error, 1)}
	go func() {
		w.done <- e.Assign(ctx, n, func(ctx context.Context, s election.Shard) error {
			f.mu.Lock()
			if was, taken := f.at[s.Number]; taken && !f.dead[was] {
				f.t.Errorf("%s got shard %d while %s had it", id, s.Number, was)
			}
			if f.fences[s.Number] >= s.Fence || s.Of != n {
				f.t.Errorf("%+v after fence %d", s, f.fences[s.Number])
			}
			f.at[s.Number], f.fences[s.Number] = id, s.Fence
			f.moves++
			f.mu.Unlock()
			<-ctx.Done()
			time.Sleep(wind) // it takes a while to come to an end
			f.mu.Lock()
			defer f.mu.Unlock()
			if f.at[s.Number] == id {
				delete(f.at, s.Number)
			}
			return context.Cause(ctx)
		})
	}()
	return w
}

// counts returns how many shards each process has, in order, and the moves since the last time.
func (f *floor) counts() (counts []int, moves int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	by := make(map[string]int)
	for _, id := range f.at {
		by[id]++
	}
	for _, n := range by {
		counts = append(counts, n)
	}
	slices.Sort(counts)
	moves, f.moves = f.moves, 0
	return counts, moves
}

func (f *floor) want(what string, moves int, counts ...int) {
	f.t.Helper()
	got, moved := f.counts()
	if !slices.Equal(got, counts) || moved != moves {
		f.t.Errorf("%s: %v after %d moves, want %v after %d", what, got, moved, counts, moves)
	}
}

func TestAssign_BalancedAndWithoutOverlap(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		f := newFloor(t)
		var all []worker
		add := func() {
			all = append(all, f.start(start(t, a, nil), fmt.Sprint("p", len(all)), 10, 100*time.Millisecond))
			time.Sleep(time.Minute)
		}
		add()
		f.want("one process", 10, 10)
		add()
		f.want("two", 5, 5, 5)
		add()
		f.want("three", 3, 3, 3, 4)
		time.Sleep(5 * time.Minute)
		f.want("five minutes later", 0, 3, 3, 4)
		leave := func(w worker) {
			w.stop()
			if err := <-w.done; err != nil {
				t.Errorf("Assign: %v", err)
			}
			time.Sleep(500 * time.Millisecond) // less than Pause: it is not a matter of timers
		}
		had, _ := f.counts()
		leave(all[0]) // it makes the plans
		got, moved := f.counts()
		if !slices.Equal(got, []int{5, 5}) || moved > had[2] {
			t.Errorf("without the first: %v after %d moves", got, moved)
		}
		leave(all[2])
		f.want("without the last", 5, 10)
		leave(all[1])
		f.want("none", 0)
	})
}

// The shards of a crashed process move when its session has lapsed; the others stay.
func TestAssign_ACrash(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		f := newFloor(t)
		cut := &crash.Arbiter{Memory: a}
		crashes := f.start(start(t, cut, nil), "crashes", 9, 0)
		time.Sleep(10 * time.Second) // it makes the plans
		others := []worker{f.start(start(t, a, nil), "b", 9, 0), f.start(start(t, a, nil), "c", 9, 0)}
		time.Sleep(time.Minute)
		f.counts()
		f.mu.Lock()
		f.dead["crashes"] = true
		f.mu.Unlock()
		cut.Cut()
		time.Sleep(15 * time.Second)
		got, moved := f.counts()
		if !slices.Equal(got, []int{4, 5}) || moved != 3 {
			t.Errorf("%v after %d moves", got, moved)
		}
		f.mu.Lock()
		delete(f.dead, "crashes")
		f.mu.Unlock()
		cut.Mend()
		time.Sleep(time.Minute)
		f.want("when it is back", 3, 3, 3, 3)
		for _, w := range append(others, crashes) {
			w.stop()
			<-w.done
		}
	})
}

// Members tell again and again that they are there. Each time puts a plan off by no more than
// Pause.
func TestAssign_PlansThoughMembersRefresh(t *testing.T) {
	for _, tt := range []struct {
		name    string
		members int
		opts    election.Options
	}{
		{"one, a long Pause", 1, election.Options{Pause: 15 * time.Second}},
		{"three, a short Keep", 3, election.Options{Keep: 3 * time.Second}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, func(t *testing.T, a *fallback.Memory) {
				var assigned sync.Map
				var work sync.WaitGroup
				ctx, cancel := context.WithCancel(t.Context())
				for i := range tt.members {
					o := tt.opts
					o.ID = fmt.Sprint("worker", i)
					e, err := election.New(start(t, a, nil), "feed", &o)
					if err != nil {
						t.Fatal(err)
					}
					work.Go(func() {
						_ = e.Assign(ctx, 6, func(ctx context.Context, s election.Shard) error {
							assigned.Store(s.Number, true)
							<-ctx.Done()
							return context.Cause(ctx)
						})
					})
					time.Sleep(o.Keep / 9)
				}
				time.Sleep(time.Minute)
				n := 0
				for range assigned.Range {
					n++
				}
				if n != 6 {
					t.Errorf("%d of 6 shards are assigned", n)
				}
				cancel()
				work.Wait()
			})
		})
	}
}

func TestAssign_CallsAgainWhatReturns(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		e := join(t, start(t, a, nil), nil)
		ctx, cancel := context.WithCancel(t.Context())
		calls := 0
		if err := e.Assign(ctx, 1, func(context.Context, election.Shard) error {
			if calls++; calls == 3 {
				cancel()
			}
			return nil
		}); err != nil || calls != 3 {
			t.Errorf("%v, %d calls", err, calls)
		}
		for _, n := range []int{0, -1, election.MaxShards + 1} {
			if err := e.Assign(ctx, n, nil); err == nil || !strings.Contains(err.Error(), "must be 1 to 4096") {
				t.Errorf("%d: %v", n, err)
			}
		}
	})
}

func TestBalance(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	var p []string
	for range 2000 {
		n := 1 + r.IntN(40)
		var members []string
		for i := range 1 + r.IntN(8) {
			if len(members) == 0 || r.IntN(2) == 0 {
				members = append(members, fmt.Sprint("m", i))
			}
		}
		next := election.Balance(p, members, n)
		count := make(map[string]int)
		for _, m := range next {
			count[m]++
		}
		if len(next) != n || len(count) > len(members) {
			t.Fatalf("%d shards of %d, %d members of %d", len(next), n, len(count), len(members))
		}
		// Each member keeps all its shards, or as many as its share. The members with the most
		// shards get the shares that are larger by one.
		most, extra := 0, n%len(members)
		var had []int
		for _, m := range members {
			if d := count[m] - n/len(members); d < 0 || d > 1 {
				t.Fatalf("%s has %d of %d among %d", m, count[m], n, len(members))
			}
			h := 0
			for i := range min(n, len(p)) {
				if p[i] == m {
					h++
				}
			}
			had = append(had, h)
		}
		slices.SortFunc(had, func(a, b int) int { return b - a })
		for i, h := range had {
			quota := n / len(members)
			if i < extra {
				quota++
			}
			most += min(h, quota)
		}
		stayed := 0
		for i := range min(n, len(p)) {
			if p[i] == next[i] {
				stayed++
			}
		}
		if stayed != most {
			t.Fatalf("%d stayed, %d could have", stayed, most)
		}
		p = next
	}
}

func FuzzPlan(f *testing.F) {
	f.Add([]byte(`{"members":["a","b"],"shards":[0,1,1]}`))
	f.Add([]byte(`{"members":["a"],"shards":[1]}`))
	f.Add([]byte(`{"members":null,"shards":[-1]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		p, ok := election.DecodePlan(text)
		if !ok {
			return
		}
		again, ok := election.DecodePlan([]byte(election.EncodePlan(p)))
		if !ok || len(again) != len(p) {
			t.Errorf("%v became %v", p, again)
		}
	})
}

// A plan that is too long to be published is told once, and made again when members have left.
func TestAssign_APlanThatIsTooLong(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		const members, shards = 46, 46
		var log bytes.Buffer
		var assigned sync.Map
		var work sync.WaitGroup
		logger := slog.New(slog.NewTextHandler(&log, nil))
		c := start(t, a, nil)
		take := func(ctx context.Context, i int) {
			// In JSON each of these characters has six bytes.
			e := join(t, c, &election.Options{ID: fmt.Sprintf("%02d%s", i, strings.Repeat("<", 250)), Logger: logger})
			work.Go(func() {
				_ = e.Assign(ctx, shards, func(ctx context.Context, s election.Shard) error {
					assigned.Store(s.Number, i)
					<-ctx.Done()
					assigned.Delete(s.Number)
					return context.Cause(ctx)
				})
			})
		}
		had := func() (n int) {
			for range assigned.Range {
				n++
			}
			return n
		}
		ctx, cancel := context.WithCancel(t.Context())
		for i := range 2 {
			take(ctx, i)
		}
		time.Sleep(time.Minute)
		late, leave := context.WithCancel(ctx)
		for i := 2; i < members; i++ {
			take(late, i)
		}
		time.Sleep(time.Minute)
		if text := log.String(); strings.Count(text, "a plan of shards is refused") != 1 || !strings.Contains(text, "must have 65536 at most") {
			t.Errorf("the log: %.2000s", text)
		}
		if n := had(); n != shards {
			t.Errorf("%d shards are assigned while the plan is too long", n)
		}
		leave()
		time.Sleep(time.Minute)
		if n, text := had(), log.String(); n != shards || strings.Count(text, "plan of shards") != 1 {
			t.Errorf("%d shards are assigned when members have left: %.2000s", n, text)
		}
		cancel()
		work.Wait()
	})
}

// A function that returns the loss of a lock of its own is called again after a pause.
func TestAssign_TheLossOfAnotherLock(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		e, runs, began := join(t, start(t, a, nil), nil), 0, time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		err := e.Assign(ctx, 1, func(ctx context.Context, _ election.Shard) error {
			if runs++; runs > 1000 {
				<-ctx.Done()
			}
			return &coord.LossError{Key: "another", Cause: coord.Broken}
		})
		if err != nil || runs < 3 || runs > 20 {
			t.Errorf("%d runs in %v: %v", runs, time.Since(began), err)
		}
	})
}

// refusing is an arbiter that refuses to lock the keys with the prefix while it is set, as a server
// whose memory is full.
type refusing struct {
	fallback.Arbiter
	prefix string
	on     atomic.Bool
}

func (r *refusing) Attach(ctx context.Context, s fallback.Settings) (fallback.Namespace, error) {
	n, err := r.Arbiter.Attach(ctx, s)
	return refusingSpace{n, r}, err
}

type refusingSpace struct {
	fallback.Namespace
	r *refusing
}

func (n refusingSpace) Lock(ctx context.Context, r fallback.LockRequest) (fallback.LockAnswer, error) {
	if n.r.on.Load() && strings.HasPrefix(r.Key, n.r.prefix) {
		return fallback.LockAnswer{}, fmt.Errorf("%w: full", fallback.ErrRefused)
	}
	return n.Namespace.Lock(ctx, r)
}

// A shard's lock that cannot be had is told once, and not as a function that has returned.
func TestAssign_TheLockOfAShardIsRefused(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		var log bytes.Buffer
		full := &refusing{Arbiter: a, prefix: "election/billing#shards/"}
		full.on.Store(true)
		results, err := start(t, a, nil).Results()
		if err != nil {
			t.Fatal(err)
		}
		e := join(t, start(t, full, nil), &election.Options{Store: results, Logger: slog.New(slog.NewTextHandler(&log, nil))})
		ctx, cancel := context.WithCancel(t.Context())
		calls, done := make(chan struct{}, 1), make(chan error, 1)
		go func() {
			done <- e.Assign(ctx, 1, func(ctx context.Context, _ election.Shard) error {
				calls <- struct{}{}
				<-ctx.Done()
				return context.Cause(ctx)
			})
		}()
		time.Sleep(time.Minute)
		full.on.Store(false)
		<-calls
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if text := log.String(); strings.Contains(text, "has returned") || strings.Count(text, "lock of a shard cannot be had") != 1 {
			t.Error(text)
		}
	})
}

// panics is a store that panics when the plan of shards is read.
type panics struct{ coord.ShareStore }

func (p panics) Get(ctx context.Context, key string) (coord.Shared, error) {
	if key == "election/feed#shards" {
		panic("the store")
	}
	return p.ShareStore.Get(ctx, key)
}

// A process that recovers from a panic of its store above Assign takes part in nothing any more.
func TestAssign_AStoreThatPanics(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		f := newFloor(t)
		sound := f.start(start(t, a, nil), "sound", 4, 0)
		time.Sleep(10 * time.Second) // it makes the plans
		c := start(t, a, nil)
		results, err := c.Results()
		if err != nil {
			t.Fatal(err)
		}
		e, err := election.New(c, "feed", &election.Options{ID: "panics", Store: panics{results}})
		if err != nil {
			t.Fatal(err)
		}
		func() {
			defer func() {
				if recover() != "the store" {
					t.Error("there was no panic")
				}
			}()
			t.Error(e.Assign(t.Context(), 4, func(context.Context, election.Shard) error { return nil }))
		}()
		time.Sleep(10 * time.Second)
		f.want("after the panic", 4, 4)
		if waiting, err := c.Inspect(t.Context(), "election/feed#shards"); err != nil || len(waiting.Waiters) != 0 {
			t.Errorf("it would make plans: %+v, %v", waiting, err)
		}
		sound.stop()
		if err := <-sound.done; err != nil {
			t.Error(err)
		}
	})
}
