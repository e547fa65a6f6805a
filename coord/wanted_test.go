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

// A holder is told that another caller waits, here or in another process, whether it asks before or after.
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
