package main

import (
	"context"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/internal/figures"
)

// heldSizes: locks held by one process, for some renewal periods.
type heldSizes struct {
	locks   int
	periods int

	// For tests; 0: the library's default.
	partitions int
	sessionTTL time.Duration
}

// What must hold of many locks.
const (
	heldBytes = 600  // of heap per lock, at most
	heldLeft  = 0.05 // of that which is still there after all were unlocked, at most
)

// measureHeld lets one process hold very many locks.
func measureHeld(ctx context.Context, b *bench) (result, error) {
	s := b.sizes.held
	a, err := b.alone(ctx, "held", task{Held: &heldTask{
		Locks: s.locks, Periods: s.periods, Partitions: s.partitions, SessionTTL: s.sessionTTL,
	}})
	if err != nil {
		return result{}, err
	}
	return a.Held.result(), nil
}

func (r *heldResult) result() result {
	perLock := float64(r.HeapHeld-r.HeapBefore) / float64(r.Locks)
	periods := float64(r.Periods)
	perPeriod := func(n int64) string { return number(float64(n) / periods) }
	cpu := func(d time.Duration) string { return number(100*d.Seconds()/r.Window.Seconds()) + " %" }
	used := func(name string, of func(effort) float64) []string {
		per := func(e effort) string { return number(ratio(of(e), float64(e.Sections))) }
		return []string{"to get there, per lock: " + name, "-", per(r.LockUsed), per(r.UnlockUsed), "-"}
	}
	return result{
		title: fmt.Sprintf("HELD: %s locks held by one process, in %s of %s partitions",
			figures.Thousands(int64(r.Locks)), figures.Thousands(int64(r.InUse)), figures.Thousands(int64(r.Partitions))),
		table: [][]string{
			{"", "before", "held", "after Unlock", "after Close"},
			{"heap, KB", kilobytes(r.HeapBefore), kilobytes(r.HeapHeld), kilobytes(r.HeapAfter), "-"},
			{"  per lock held, bytes", "-", number(perLock), number(float64(r.HeapAfter-r.HeapBefore) / float64(r.Locks)), "-"},
			used("commands", func(e effort) float64 { return float64(e.Commands) }),
			used("bytes", func(e effort) float64 { return float64(e.Bytes) }),
			used("allocations", func(e effort) float64 { return float64(e.Allocs) }),
			used("CPU microseconds", func(e effort) float64 { return e.CPU.Seconds() * 1e6 }),
			{"rows in Redis", number(float64(r.Before.Rows)), number(float64(r.Held.Rows)), number(float64(r.After.Rows)), number(float64(r.Closed.Rows))},
			{"partition records without rows", number(float64(r.Before.Bare)), number(float64(r.Held.Bare)), number(float64(r.After.Bare)), number(float64(r.Closed.Bare))},
			{"other keys, but the session table", number(float64(r.Before.Strays)), number(float64(r.Held.Strays)), number(float64(r.After.Strays)), number(float64(r.Closed.Strays))},
			{"sessions", number(float64(r.Before.Sessions)), number(float64(r.Held.Sessions)), number(float64(r.After.Sessions)), number(float64(r.Closed.Sessions))},
		},
		notes: []string{
			fmt.Sprintf("In each of %d periods of %v: %s renewals, %s other commands, which are reads, in %s round trips",
				r.Periods, r.Period, perPeriod(r.Renewals), perPeriod(r.reads()), perPeriod(r.Trips)),
			fmt.Sprintf("CPU meanwhile, of one core: %s in the process, %s in redis-server (%s scripts by its own count)",
				cpu(r.CPU), cpu(r.ServerCPU), number(float64(r.Evals))),
			failedNote(r.Failed, r.Failure),
			fmt.Sprintf("heap: HeapAlloc after a collection, without the key strings; of it %d bytes per lock are the Lock that the caller keeps", r.LockBytes),
			fmt.Sprintf("locked by %d goroutines in %.1f s, given back in %.1f s", heldGoroutines, r.LockTime.Seconds(), r.UnlockTime.Seconds()),
		},
		claims: []claim{
			atMost(periods, float64(r.Renewals), "renewals in all periods"),
			atLeast(periods, float64(r.Renewals), "the same: the session is kept alive"),
			atMost(periods*float64(r.InUse), float64(r.reads()), "other commands: one read per partition in use and period"),
			atMost(0, float64(r.Others), "calls of the arbiter that are neither"),
			atMost(heldBytes, perLock, "bytes of heap per lock held"),
			atMost(heldLeft, float64(r.HeapAfter-r.HeapBefore)/float64(r.HeapHeld-r.HeapBefore), "part of that left after Unlock"),
			atLeast(float64(r.Locks), float64(r.Held.Rows), "rows while they are held"),
			atMost(0, float64(r.After.Rows+r.After.Strays), "rows and queues left after Unlock"),
			atMost(0, float64(r.Partitions-r.After.Bare), "partitions whose record still has rows"),
			atMost(0, float64(r.Closed.Rows+r.Closed.Strays+r.Closed.Sessions), "rows, queues and sessions left after Close"),
			atMost(0, float64(r.Lost), "locks lost"),
		},
	}
}

// reads is how many commands there were that are not renewals, and not in place of one that failed.
func (r *heldResult) reads() int64 { return r.Commands - r.Renewals - r.Repeated }

func kilobytes(n int64) string { return figures.Thousands(n / 1024) }
