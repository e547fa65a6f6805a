package coord_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/await"
)

func isWanted(l coord.Lock) bool {
	select {
	case <-l.Wanted():
		return true
	default:
		return false
	}
}

// A holder is told that another caller waits, here or in another process, whether it asks before or
// after.
func TestWanted(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		f := &faulty{Arbiter: a}
		one, two := start(t, f, nil), start(t, a, nil)
		for name, other := range map[string]*coord.Coordinator{"this process": one, "another process": two} {
			for _, before := range []bool{true, false} {
				l := lock(t, one, "k")
				if before && isWanted(l) {
					t.Errorf("%s: wanted, and no caller waits", name)
				}
				next := make(chan coord.Lock)
				go func() {
					l, err := other.Lock(context.Background(), "k")
					if err != nil {
						t.Error(err)
					}
					next <- l
				}()
				time.Sleep(time.Second)
				for range 2 {
					if !isWanted(l) {
						t.Errorf("%s: a caller waits, and the holder is not told", name)
					}
				}
				unlock(t, l)
				l2 := <-next
				if isWanted(l2) {
					t.Errorf("%s: the next holder is wanted, and no caller waits", name)
				}
				unlock(t, l2)
			}
		}
		l := lock(t, one, "k")
		wanted := l.Wanted()
		unlock(t, l)
		synctest.Wait()
		if <-wanted; !isWanted(l) || !isWanted(coord.Lock{}) {
			t.Error("the lock is over")
		}
		l = lock(t, one, "k")
		f.set(func(string) fault { return fault{lost: true} })
		<-l.Wanted()
		if !errors.Is(l.Unlock(), coord.ErrLost) {
			t.Error("it is told before the lock is lost")
		}
		f.set(nil)
	})
}

// The same where an owner knows which callers wait: holders at the owner and at another node.
func TestWanted_InACluster(t *testing.T) {
	t.Parallel()
	a := fallback.NewMemory()
	one, two := join(t, a, unhurried()), join(t, a, unhurried())
	settled(t, 61, one, two)
	for _, key := range []string{"a", "b", "c", "d", "e", "f", "g", "h"} { // of both
		l := lock(t, one, key)
		if isWanted(l) {
			t.Errorf("%s: wanted, and no caller waits", key)
		}
		done := make(chan error)
		go func() {
			done <- two.Do(context.Background(), key, func(context.Context, coord.Lock) error { return nil })
		}()
		await.Until(t, "the holder is told", func() bool { return isWanted(l) })
		unlock(t, l)
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

// closed reports whether a channel is closed, once all goroutines rest.
func closed(ch <-chan struct{}) bool {
	synctest.Wait()
	select {
	case <-ch:
		return true
	default:
		return false
	}
}

// A holder among several is told of the end of its own lock, and those of others are none of its
// business; of another caller that waits all are told.
func TestWanted_OfOneOfSeveral(t *testing.T) {
	type taken struct {
		wanted func() <-chan struct{}
		end    func() error
	}
	for _, x := range []struct {
		name  string
		take  func(t *testing.T, c *coord.Coordinator) taken
		other func(c *coord.Coordinator) error
	}{
		{"permits", func(t *testing.T, c *coord.Coordinator) taken {
			p := acquire(t, c.Semaphore("k", 10), 1)
			return taken{p.Wanted, p.Release}
		}, func(c *coord.Coordinator) error {
			return c.Semaphore("k", 10).Do(context.Background(), 10, func(context.Context) error { return nil })
		}},
		{"readers", func(t *testing.T, c *coord.Coordinator) taken {
			r := rlock(t, c, "k")
			return taken{r.Wanted, r.Unlock}
		}, func(c *coord.Coordinator) error {
			return c.Do(context.Background(), "k", func(context.Context, coord.Lock) error { return nil })
		}},
	} {
		t.Run(x.name, func(t *testing.T) {
			bubble(t, func(t *testing.T, a *fallback.Memory) {
				f := &faulty{Arbiter: a}
				c, other := start(t, f, nil), start(t, a, nil)
				release(t, acquire(t, c.Semaphore("k", 10), 10)) // a block for all
				end := func(x taken) {
					t.Helper()
					if err := x.end(); err != nil {
						t.Error(err)
					}
				}
				for range 2 { // the next one in the same place
					one, two := x.take(t, c), x.take(t, c)
					first, second := one.wanted(), two.wanted()
					if closed(first) || closed(second) || one.wanted() != first {
						t.Error("wanted, and no caller waits")
					}
					end(one)
					if !closed(first) || !closed(one.wanted()) {
						t.Error("its lock is over")
					}
					if closed(second) {
						t.Error("another one's lock is over")
					}
					end(two)
				}
				one, two := x.take(t, c), x.take(t, c)
				first := one.wanted()
				done := make(chan error)
				go func() { done <- x.other(other) }()
				time.Sleep(time.Second)
				if !closed(first) || !closed(two.wanted()) {
					t.Error("a caller waits, and the holders are not told")
				}
				end(one)
				end(two)
				if err := <-done; err != nil {
					t.Error(err)
				}
				one = x.take(t, c)
				first = one.wanted()
				f.cut()
				<-first
				if !errors.Is(one.end(), coord.ErrLost) || !closed(one.wanted()) {
					t.Error("it is told before the lock is lost")
				}
				f.mend()
			})
		})
	}
}
