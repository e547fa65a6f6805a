package coord_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
)

// A caller that tries is sent away soon, though the process waits for a smaller block: the process
// asks for that until there is an answer. The partition's calls get none, or no call does, or there
// is Grace.
func TestBlock_IsMadeSmallerTooLateForOneThatTries(t *testing.T) {
	for name, x := range map[string]struct {
		more  int // blocks with unused permits
		fault func(op string) fault
		grace bool
	}{
		"the partition's calls": {fault: func(op string) fault { return fault{lost: op == "lock"} }},
		"several blocks":        {more: 2, fault: func(op string) fault { return fault{lost: op == "lock"} }},
		"all calls":             {fault: func(string) fault { return fault{lost: true} }},
		"Grace":                 {grace: true},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, a *fallback.Memory) {
				net := &faulty{Arbiter: a}
				one, two := start(t, net, nil), start(t, a, nil)
				other := acquire(t, two.Semaphore("k", 32), 14)
				s := one.Semaphore("k", 32)
				var used []coord.Permits
				for range 1 + x.more {
					used = append(used, partly(t, s, 5))
				}
				if info, err := s.Inspect(t.Context()); err != nil || len(info.Shared) != 1+x.more {
					t.Fatalf("%+v, %v", info.Shared, err)
				}
				tried := 0
				net.set(func(op string) fault {
					if op == "lock" {
						if tried++; tried == 1 {
							return fault{} // it is locked
						}
						if tried == 2 && x.grace {
							a.Restore(a.Snapshot())
						}
					}
					if tried == 0 || x.fault == nil {
						return fault{}
					}
					return x.fault(op)
				})
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
				defer cancel()
				began := time.Now()
				_, err := s.TryAcquire(ctx, 14)
				took := time.Since(began)
				net.mend()
				if !errors.Is(err, coord.ErrLocked) || took > 1500*time.Millisecond || tried < 2 {
					t.Errorf("%v after %v, %d calls", err, took, tried)
				}
				for _, p := range used {
					_ = p.Release()
				}
				_ = other.Release()
			})
		})
	}
}
