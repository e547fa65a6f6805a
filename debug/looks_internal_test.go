package debug

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/coord"
)

// Requests that come while a slow node is asked get its answer, and do not ask it one after
// another; one whose client goes does not wait.
func TestLooks_ASlowNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rounds := 0
		l := newLooks(newRoom(), ofTheOverview, func(context.Context) *Overview {
			rounds++
			time.Sleep(2 * time.Second)
			return &Overview{}
		})
		began := time.Now()
		var all sync.WaitGroup
		for range 20 {
			all.Go(func() {
				if o, ok := l.look(t.Context()); o == nil || !ok {
					t.Error("no answer")
				}
			})
		}
		synctest.Wait()
		gone, leave := context.WithTimeout(t.Context(), time.Second)
		defer leave()
		if _, ok := l.look(gone); ok || time.Since(began) != time.Second {
			t.Errorf("a client that has gone: %v, after %v", ok, time.Since(began))
		}
		all.Wait()
		if late := time.Since(began); rounds != 1 || late != 2*time.Second {
			t.Errorf("%d rounds of questions, %v", rounds, late)
		}
		time.Sleep(999 * time.Millisecond)
		if l.look(t.Context()); rounds != 1 {
			t.Error("it asks again within a second")
		}
		time.Sleep(time.Millisecond)
		if l.look(t.Context()); rounds != 2 {
			t.Error("it does not ask again after a second")
		}
	})
}

// However many look at keys, each is asked about once a second, two at a time. Keys of the past are
// not kept for ever.
func TestKeyLooks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		asked, now, most := map[string]int{}, 0, 0
		k := newKeyLooks(newRoom(), func(ctx context.Context, key string) (x Key, err error) {
			mu.Lock()
			asked[key]++
			now++
			most = max(most, now)
			mu.Unlock()
			time.Sleep(100 * time.Millisecond)
			mu.Lock()
			now--
			mu.Unlock()
			x.KeyInfo.Key = key
			return x, ctx.Err()
		})
		look := func(each int, keys ...string) {
			var all sync.WaitGroup
			for i := range each * len(keys) {
				all.Go(func() {
					want := keys[i%len(keys)]
					if x, err := k.look(t.Context(), want); x.KeyInfo.Key != want || err != nil {
						t.Errorf("%s: %v, %v", want, x, err)
					}
				})
			}
			all.Wait()
		}
		began := time.Now()
		look(50, "a", "b", "c", "d")
		if took := time.Since(began); len(asked) != 4 || asked["a"]+asked["b"]+asked["c"]+asked["d"] != 4 || most != 2 || took != 200*time.Millisecond {
			t.Errorf("%v, %d at a time, %v", asked, most, took)
		}
		look(50, "d")
		if asked["d"] != 1 {
			t.Error("it asks again within a second")
		}
		k.forget("d")
		if look(50, "d"); asked["d"] != 2 {
			t.Errorf("after a change: %d", asked["d"])
		}
		time.Sleep(time.Second)
		if look(50, "d"); asked["d"] != 3 || len(k.keys) != 1 {
			t.Errorf("after a second: %d, %d keys are kept", asked["d"], len(k.keys))
		}
		if look(1, strings.Repeat("x", coord.MaxKey+1)); len(k.keys) != 1 {
			t.Error("a key that is too long is kept")
		}
		gone, leave := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer leave()
		go look(1, "e", "f")
		synctest.Wait()
		if _, err := k.look(gone, "g"); !errors.Is(err, errCrowded) || asked["g"] != 0 {
			t.Errorf("a third key: %v", err)
		}
		synctest.Wait()
		time.Sleep(time.Second)
	})
}

// The overview and pages of keys together ask a node no more questions at a time than it answers.
func TestLooks_OneRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var now, most atomic.Int64
		ask := func(n int64) {
			x := now.Add(n)
			most.Store(max(most.Load(), x))
			time.Sleep(100 * time.Millisecond)
			now.Add(-n)
		}
		nodes := newRoom()
		page := newLooks(nodes, ofTheOverview, func(context.Context) int { ask(4); return 0 })
		keys := newKeyLooks(nodes, func(context.Context, string) (k Key, err error) { ask(2); return k, nil })
		var all sync.WaitGroup
		for i := range 20 {
			for _, key := range []string{"a", "b", "c"} {
				all.Go(func() {
					if _, err := keys.look(t.Context(), key); err != nil {
						t.Errorf("request %d: %v", i, err)
					}
				})
			}
			all.Go(func() {
				if _, ok := page.look(t.Context()); !ok {
					t.Errorf("request %d has no page", i)
				}
			})
		}
		all.Wait()
		if most.Load() != 4 {
			t.Errorf("%d questions at a time, want 4", most.Load())
		}
		// A client that goes while it waits for the whole room leaves it to others.
		time.Sleep(keep)
		all.Go(func() { _, _ = keys.look(t.Context(), "a") })
		synctest.Wait()
		gone, leave := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer leave()
		if _, ok := page.look(gone); ok {
			t.Error("the page is there")
		}
		if _, err := keys.look(t.Context(), "b"); err != nil {
			t.Error(err)
		}
		all.Wait()
		if n := len(nodes.taken) + len(nodes.door); n != 0 {
			t.Errorf("%d places are taken", n)
		}
	})
}
