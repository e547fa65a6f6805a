package subjects

import (
	"context"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/bench/harness"
	"github.com/holdfast-go/holdfast/bench/report"
	"github.com/holdfast-go/holdfast/bench/rivals"
	"github.com/holdfast-go/holdfast/bench/stats"
	"github.com/holdfast-go/holdfast/internal/figures"
)

// heldSizes: locks held by one process, for some renewal periods.
type HeldSizes struct {
	Locks   int
	Periods int

	// For tests; 0: the library's default.
	Partitions int
	SessionTTL time.Duration
}

// What must hold of many locks.
const (
	heldBytes = 600  // of heap per lock, at most
	heldLeft  = 0.05 // of that which is still there after all were unlocked, at most
)

// measureHeld lets one process hold very many locks.
func measureHeld(ctx context.Context, b *Run) (report.Result, error) {
	r, err := harness.Alone(ctx, b.Bench, "held", heldTasks, heldTask(b.Sizes.Held))
	if err != nil {
		return report.Result{}, err
	}
	return r.result(), nil
}

func (r *heldResult) result() report.Result {
	perLock := float64(r.HeapHeld-r.HeapBefore) / float64(r.Locks)
	periods := float64(r.Periods)
	perPeriod := func(n int64) string { return stats.Number(float64(n) / periods) }
	cpu := func(d time.Duration) string { return stats.Number(100*d.Seconds()/r.Window.Seconds()) + " %" }
	used := func(name string, of func(stats.Effort) float64) []string {
		per := func(e stats.Effort) string { return stats.Number(stats.Ratio(of(e), float64(e.Sections))) }
		return []string{"to get there, per lock: " + name, "-", per(r.LockUsed), per(r.UnlockUsed), "-"}
	}
	stored := func(name string, of func(content) int) (cells []string) {
		cells = append(cells, name)
		for _, c := range []content{r.Before, r.Held, r.After, r.Closed} {
			cells = append(cells, stats.Number(float64(of(c))))
		}
		return cells
	}
	return report.Result{
		Title: fmt.Sprintf("HELD: %s locks held by one process, in %s of %s partitions",
			figures.Thousands(int64(r.Locks)), figures.Thousands(int64(r.InUse)), figures.Thousands(int64(r.Partitions))),
		Table: [][]string{
			{"", "before", "held", "after Unlock", "after Close"},
			{"heap, KB", kilobytes(r.HeapBefore), kilobytes(r.HeapHeld), kilobytes(r.HeapAfter), "-"},
			{"  per lock held, bytes", "-", stats.Number(perLock), stats.Number(float64(r.HeapAfter-r.HeapBefore) / float64(r.Locks)), "-"},
			used("commands", func(e stats.Effort) float64 { return float64(e.Commands) }),
			used("bytes", func(e stats.Effort) float64 { return float64(e.Bytes()) }),
			used("allocations", func(e stats.Effort) float64 { return float64(e.Allocs) }),
			used("CPU microseconds", func(e stats.Effort) float64 { return e.CPU.Seconds() * 1e6 }),
			stored("rows in Redis", func(c content) int { return c.Rows }),
			stored("partition records without rows", func(c content) int { return c.Bare }),
			stored("other keys, but the session table", func(c content) int { return c.Strays }),
			stored("sessions", func(c content) int { return c.Sessions }),
		},
		Notes: []string{
			fmt.Sprintf("In each of %d periods of %v: %s renewals, %s other commands, which are reads, in %s round trips",
				r.Periods, r.Period, perPeriod(r.Renewals), perPeriod(r.reads()), perPeriod(r.Trips)),
			fmt.Sprintf("CPU meanwhile, of one core: %s in the process, %s in redis-server (%s scripts by its own count)",
				cpu(r.CPU), cpu(r.ServerCPU), stats.Number(float64(r.Evals))),
			rivals.FailedNote(r.Failed, r.Failure),
			fmt.Sprintf("heap: HeapAlloc after a collection, without the key strings; of it %d bytes per lock are the Lock that the caller keeps", r.LockBytes),
			fmt.Sprintf("locked by %d goroutines in %.1f s, given back in %.1f s", heldGoroutines, r.LockTime.Seconds(), r.UnlockTime.Seconds()),
		},
		Claims: []report.Claim{
			report.AtMost(periods, float64(r.Renewals), "renewals in all periods"),
			report.AtLeast(periods, float64(r.Renewals), "the same: the session is kept alive"),
			report.AtMost(periods*float64(r.InUse), float64(r.reads()), "other commands: one read per partition in use and period"),
			report.AtMost(0, float64(r.Others), "calls of the arbiter that are neither"),
			report.AtMost(heldBytes, perLock, "bytes of heap per lock held"),
			report.AtMost(heldLeft, float64(r.HeapAfter-r.HeapBefore)/float64(r.HeapHeld-r.HeapBefore), "part of that left after Unlock"),
			report.AtLeast(float64(r.Locks), float64(r.Held.Rows), "rows while they are held"),
			report.AtMost(0, float64(r.After.Rows+r.After.Strays), "rows and queues left after Unlock"),
			report.AtMost(0, float64(r.Partitions-r.After.Bare), "partitions whose record still has rows"),
			report.AtMost(0, float64(r.Closed.Rows+r.Closed.Strays+r.Closed.Sessions), "rows, queues and sessions left after Close"),
			report.AtMost(0, float64(r.Lost), "locks lost"),
		},
	}
}

// reads is how many commands there were that are not renewals, and not in place of one that failed.
func (r *heldResult) reads() int64 { return r.Commands - r.Renewals - r.Repeated }

func kilobytes(n int64) string { return figures.Thousands(n / 1024) }
