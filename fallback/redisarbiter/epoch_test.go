package redisarbiter_test

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/fallback/redisarbiter"
	"github.com/holdfast-go/holdfast/internal/injure"
	"github.com/holdfast-go/holdfast/internal/redistest"
)

// everyPartitionOperation are all operations on partition 0 of a namespace, by name.
func everyPartitionOperation(t *testing.T, n fallback.Namespace) map[string]func() error {
	ctx, row := t.Context(), row("me", 1, 7, 1)
	return map[string]func() error{
		"Load":           func() error { _, err := n.Load(ctx, 0); return err },
		"Verify":         func() error { return n.Verify(ctx, []fallback.Read{{Keys: []string{"k"}}})[0].Err },
		"Verify of many": func() error { return n.Verify(ctx, []fallback.Read{{}, {}})[0].Err },
		"Lock": func() error {
			_, err := n.Lock(ctx, fallback.LockRequest{Key: "k", Me: id("me", 1), Block: 1})
			return err
		},
		"Lock of many tokens": func() error {
			_, err := n.Lock(ctx, fallback.LockRequest{Key: "l", Me: id("me", 2), Block: math.MaxUint32})
			return err
		},
		"Unlock": func() error {
			return errors.Join(n.Unlock(ctx, []fallback.Release{{Key: "none", Identity: id("me", 1)}})...)
		},
		"Acquire":        func() error { _, err := n.Acquire(ctx, 0, "me", fallback.Expect{Epoch: 7}); return err },
		"Demote":         func() error { _, err := n.Demote(ctx, 0, "me", 7, nil); return err },
		"DemoteUnserved": func() error { _, err := n.DemoteUnserved(ctx, 0, "me", 7); return err },
		"Witness":        func() error { _, err := n.Witness(ctx, 0, 1); return err },
		"Restore": func() error {
			return n.Restore(ctx, []fallback.Claims{{Holds: []fallback.Claim{{Key: "k", Row: row}}}})[0].Err
		},
		"ReclaimOwner": func() error { _, err := redisarbiter.ReclaimOwner(ctx, n, 0, "me", 7); return err },
		"Revoke":       func() error { return n.Revoke(ctx, 0, 7, "") },
	}
}

// epochs are arbiters whose record of partition 0 the test can give another epoch.
func epochs(t *testing.T) map[string]struct {
	fallback.Namespace
	set func(epoch int64)
} {
	t.Helper()
	store := fallback.NewMemory()
	memory, err := store.Attach(t.Context(), plain)
	if err != nil {
		t.Fatal(err)
	}
	c := redistest.Start(t).Client(t)
	type arbiter = struct {
		fallback.Namespace
		set func(epoch int64)
	}
	return map[string]arbiter{
		"Memory": {memory, func(epoch int64) {
			injure.State(store, "ns", func(_ *fallback.Sessions, parts []fallback.Partition) {
				parts[0].Epoch, parts[0].Seq = uint32(epoch), 5
			})
		}},
		"Redis": {attach(t, c, cold), func(epoch int64) {
			if err := c.HSet(t.Context(), "{ns:p0}", "m", fmt.Sprintf("%d 5 0 0 0 ", epoch)).Err(); err != nil {
				t.Fatal(err)
			}
		}},
	}
}

// The clock of a server was once years ahead: no epoch is made of it, which would stay for ever,
// and nothing is changed.
func TestClockThatIsYearsAheadIsRefused(t *testing.T) {
	t.Parallel()
	now := time.Now().Unix() - redisarbiter.EpochZero
	for name, a := range epochs(t) {
		t.Run(name, func(t *testing.T) {
			a.set(now - 11*365*86400) // as if eleven years had passed since
			for what, f := range everyPartitionOperation(t, a) {
				if err := f(); name == "Redis" && (what == "Lock" || what == "Verify of many") && err == nil {
					continue // their usual case looks at no clock and makes no epoch
				} else if !errors.Is(err, fallback.ErrRefused) || !strings.Contains(err.Error(), "clock is years ahead") {
					t.Errorf("%s: got %v, want ErrRefused that names the clock", what, err)
				}
			}
			a.set(now - 9*365*86400) // a record that was not used for long
			acquired, err := a.Acquire(t.Context(), 0, "me", fallback.Expect{Epoch: uint32(now - 9*365*86400)})
			if err != nil || acquired.Verdict != fallback.Granted || int64(acquired.Record.Epoch) < now {
				t.Errorf("Acquire after nine years: got %+v, %v", acquired, err)
			}
		})
	}
}

func TestEpochsAreUsedUp(t *testing.T) {
	t.Parallel()
	for name, a := range epochs(t) {
		t.Run(name, func(t *testing.T) {
			held := fallback.LockRequest{Key: "held", Me: id("me", 7), Block: 1}
			if got, err := a.Lock(t.Context(), held); err != nil || got.Verdict != fallback.Granted {
				t.Fatalf("Lock: got %+v, %v", got, err)
			}
			for _, epoch := range []int64{fallback.MaxEpoch, math.MaxUint32} {
				a.set(epoch)
				if err := a.Unlock(t.Context(), []fallback.Release{{Key: held.Key, Identity: held.Me}})[0]; !errors.Is(err, fallback.ErrRefused) {
					t.Errorf("Unlock at epoch %d: got %v, want ErrRefused", epoch, err)
				}
				for what, f := range everyPartitionOperation(t, a) {
					if err := f(); !errors.Is(err, fallback.ErrRefused) || !strings.Contains(err.Error(), "no epochs left") {
						t.Errorf("%s at epoch %d: got %v, want ErrRefused", what, epoch, err)
					}
				}
			}
			a.set(fallback.MaxEpoch - 1)
			got, err := a.Acquire(t.Context(), 0, "me", fallback.Expect{Epoch: fallback.MaxEpoch - 1})
			if err != nil || got.Record.Epoch != fallback.MaxEpoch {
				t.Fatalf("Acquire of the last epoch: got %+v, %v", got, err)
			}
		})
	}
	if last := fallback.MakeToken(fallback.MaxEpoch, math.MaxUint32); last != math.MaxInt64 {
		t.Errorf("the last token is %d", last)
	}
}

func TestAServerWhoseClockIsYearsAheadOfOursIsRefused(t *testing.T) {
	ours := time.Now()
	err := redisarbiter.CompareClocks(ours.AddDate(2, 0, 0), ours)
	if !errors.Is(err, fallback.ErrRefused) || !strings.Contains(err.Error(), "clock is more than a year ahead") {
		t.Errorf("two years ahead: got %v", err)
	}
	for _, theirs := range []time.Time{ours, ours.AddDate(0, 11, 0), ours.AddDate(-20, 0, 0)} {
		if err := redisarbiter.CompareClocks(theirs, ours); err != nil {
			t.Errorf("%v: got %v", theirs, err)
		}
	}
}
