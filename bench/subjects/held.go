package subjects

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"
	"unsafe"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"github.com/holdfast-go/holdfast/bench/harness"
	"github.com/holdfast-go/holdfast/bench/report"
	"github.com/holdfast-go/holdfast/bench/rivals"
	"github.com/holdfast-go/holdfast/bench/stats"
	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/internal/figures"
)

// HeldSizes: locks held by one process, for some renewal periods.
type HeldSizes struct {
	Locks   int
	Periods int

	// For tests; 0: the library's default.
	Partitions int
	SessionTTL time.Duration
}

// Limits for many locks.
const (
	heldBytes = 600  // of heap per lock, at most
	heldLeft  = 0.05 // of that which is still there after all were unlocked, at most
)

// heldGoroutines is how many callers lock and unlock at the same time.
const heldGoroutines = 64

var heldTasks = harness.NewTask("held", runHeld)

// heldResult is the result of the worker.
type heldResult struct {
	Before, Held, After, Closed heldStage
	Period, Window              time.Duration // Options.RenewEvery, and all periods
	Renewals, Others            int64         // calls of the arbiter; Others: neither renewals nor reads
	Repeated                    int64         // of them failed
	Used                        stats.Effort  // meanwhile
	Evals                       int64         // scripts, by the server's count
	ServerCPU                   time.Duration
	Lost, Failed                int64
}

// heldStage is the heap and the content at some time, and the effort to get there.
type heldStage struct {
	Heap int64
	Used stats.Effort
	Took time.Duration
	content
}

// content is the content of Redis.
type content struct {
	Rows     int // fields of the partitions' records that are rows
	Bare     int // partitions with no rows in the record
	InUse    int // partitions with rows in the record
	Strays   int // keys of the namespace that are neither a record nor the table of sessions
	Sessions int
}

// heldRun is one process with many locks.
type heldRun struct {
	c      *coord.Coordinator
	admin  *redis.Client
	prefix string // of the namespace's keys
	parts  int
	keys   []string
	locks  []coord.Lock
	opened time.Time // the session is renewed every Options.RenewEvery from then on
}

func runHeld(ctx context.Context, w *harness.Host, t HeldSizes) (_ *heldResult, err error) {
	client, count := harness.NewClient(w.Redis, heldGoroutines)
	defer func() { err = errors.Join(err, client.Close()) }()
	h := heldRun{prefix: "{" + w.Namespace + ":", parts: cmp.Or(t.Partitions, partitions)}
	h.admin, _ = bareClient(w)
	h.opened = time.Now()
	if h.c, err = rivals.NewCoordinator(client, &coord.Options{
		Namespace: w.Namespace, Partitions: t.Partitions, SessionTTL: t.SessionTTL,
	}); err != nil {
		return nil, err
	}
	closeAll := sync.OnceValue(func() error {
		if ctx.Err() != nil {
			return nil // interrupted: Close would give back every lock, one by one, and the process ends anyway
		}
		ctx, cancel := context.WithTimeout(ctx, harness.CloseTime)
		defer cancel()
		return h.c.Close(ctx)
	})
	defer func() { err = errors.Join(err, closeAll()) }()

	r := &heldResult{Period: cmp.Or(t.SessionTTL, 10*time.Second) / 4} // coord.Options.SessionTTL
	// Connections, scripts and pools are not the locks': a connection has 64 to 256 KiB of buffers.
	// Twice, so that each is used for both.
	for range 2 {
		if err := errors.Join(h.hold(ctx, "warm", min(t.Locks, 200*heldGoroutines)), h.unlock(ctx)); err != nil {
			return nil, err
		}
	}
	h.keys = makeKeys("held", t.Locks)
	stage := func(to *heldStage, heap bool, do, then func() error) (err error) {
		begin, used := time.Now(), harness.NewMeter(count)
		if err := do(); err != nil {
			return err
		}
		to.Took, to.Used = time.Since(begin), used.Read(int64(t.Locks))
		if err := then(); err != nil {
			return err
		}
		if heap {
			to.Heap = harness.Heap()
		}
		to.content, err = h.content(ctx)
		return err
	}
	nothing := func() error { return nil }
	lock, unlock := func() error { return h.lockAll(ctx) }, func() error { return h.unlock(ctx) }
	if err := stage(&r.Before, true, nothing, nothing); err != nil {
		return nil, err
	}
	if err := stage(&r.Held, true, lock, func() error { return h.watch(ctx, r, t.Periods, count) }); err != nil {
		return nil, err
	}
	if err := stage(&r.After, true, unlock, nothing); err != nil {
		return nil, err
	}
	s := h.c.Stats()
	for _, n := range s.Lost {
		r.Lost += int64(n)
	}
	for _, n := range s.Failed {
		r.Failed += int64(n)
	}
	runtime.KeepAlive(h.keys) // in all three figures of the heap
	return r, stage(&r.Closed, false, closeAll, nothing)
}

// makeKeys makes the key strings, which are the caller's.
func makeKeys(kind string, n int) []string {
	keys := make([]string, n)
	for i := range keys {
		keys[i] = fmt.Sprintf("%s:%08d", kind, i)
	}
	return keys
}

// hold makes keys and locks them.
func (h *heldRun) hold(ctx context.Context, kind string, n int) error {
	h.keys = makeKeys(kind, n)
	return h.lockAll(ctx)
}

func (h *heldRun) lockAll(ctx context.Context) error {
	h.locks = make([]coord.Lock, len(h.keys))
	return h.each(func(i int) (err error) {
		h.locks[i], err = h.c.Lock(ctx, h.keys[i])
		return err
	})
}

// each calls f for all locks, by many goroutines.
func (h *heldRun) each(f func(i int) error) error {
	var work errgroup.Group
	for g := range heldGoroutines {
		work.Go(func() (err error) {
			for i := g; i < len(h.keys) && err == nil; i += heldGoroutines {
				err = f(i)
			}
			return err
		})
	}
	return work.Wait() // one error will do: where a lock was lost, so were thousands
}

// unlock unlocks all, forgets them, and waits until they were given back.
func (h *heldRun) unlock(ctx context.Context) error {
	if err := h.each(func(i int) error { return h.locks[i].Unlock() }); err != nil {
		return err
	}
	h.locks = nil
	return givenBack(ctx, h.c, 5*time.Millisecond)
}

// watch counts the calls in some renewal periods. It begins well between two renewals, so that
// there are as many of them as periods, even if it ends late.
func (h *heldRun) watch(ctx context.Context, r *heldResult, periods int, count *harness.Counter) error {
	// The first read loads its script.
	read := func(s coord.Stats) bool { return s.Calls[coord.OpVerify] > 0 }
	if err := awaitStats(ctx, h.c, 5*time.Millisecond, read); err != nil {
		return err
	}
	if phase := time.Since(h.opened) % r.Period; phase < r.Period/4 || phase > r.Period*3/4 {
		time.Sleep((r.Period*5/4 - phase) % r.Period)
	}
	evals, err := harness.CommandStats(ctx, h.admin, "evalsha")
	if err != nil {
		return err
	}
	server, err := harness.ServerCPU(ctx, h.admin)
	if err != nil {
		return err
	}
	before, used, begin := h.c.Stats(), harness.NewMeter(count), time.Now()
	select {
	case <-time.After(time.Duration(periods) * r.Period):
	case <-ctx.Done():
		return ctx.Err()
	}
	r.Window = time.Since(begin)
	after := h.c.Stats()
	r.Used = used.Read(int64(periods))
	for op, n := range after.Calls {
		calls := int64(n - before.Calls[op])
		bad := int64(after.Failed[op] - before.Failed[op])
		r.Repeated += bad
		switch op {
		case coord.OpRenew:
			r.Renewals = calls - bad
		case coord.OpVerify:
			// Not from here: a call counts when it is done, so part of one that is under way would
			// be missing.
		default:
			r.Others += calls
		}
	}
	now, err := harness.ServerCPU(ctx, h.admin)
	if err != nil {
		return err
	}
	r.ServerCPU = now - server
	then, err := harness.CommandStats(ctx, h.admin, "evalsha")
	r.Evals = then.Since(evals).Calls
	return err
}

// content looks at every key of the namespace.
func (h *heldRun) content(ctx context.Context) (c content, err error) {
	records := make(map[string]bool)
	for p := range h.parts {
		records[fmt.Sprintf("%sp%d}", h.prefix, p)] = true
	}
	keys := h.admin.Scan(ctx, 0, h.prefix+"*", 1000).Iterator()
	seen := map[string]bool{h.prefix + "s}": true} // SCAN may tell a key twice
	for keys.Next(ctx) {
		if key := keys.Val(); !records[key] && !seen[key] {
			seen[key] = true
			c.Strays++
		}
	}
	if err := keys.Err(); err != nil {
		return c, err
	}
	// of counts the fields of a hash that begin like this.
	of := func(fields *redis.StringSliceCmd, prefix string) int {
		return len(slices.DeleteFunc(slices.Clone(fields.Val()), func(f string) bool { return !strings.HasPrefix(f, prefix) }))
	}
	pipe := h.admin.Pipeline()
	var fields []*redis.StringSliceCmd
	for record := range records {
		fields = append(fields, pipe.HKeys(ctx, record))
	}
	sessions := pipe.HKeys(ctx, h.prefix+"s}")
	if _, err := pipe.Exec(ctx); err != nil {
		return c, err
	}
	for _, f := range fields {
		rows := of(f, "r:")
		c.Rows += rows
		switch {
		case rows > 0:
			c.InUse++
		case len(f.Val()) > 0: // else there is no record
			c.Bare++
		}
	}
	c.Sessions = of(sessions, "s:")
	return c, nil
}

// measureHeld lets one process hold very many locks.
func measureHeld(ctx context.Context, b *Run) (report.Result, error) {
	s := b.Sizes.Held
	r, err := harness.Alone(ctx, b.Bench, "held", heldTasks, s)
	if err != nil {
		return report.Result{}, err
	}
	stages := []heldStage{r.Before, r.Held, r.After, r.Closed}
	locks, periods := float64(s.Locks), float64(s.Periods)
	// A row has a cell for each stage, but those that are not asked for.
	row := func(name string, from, to int, of func(heldStage) string) []string {
		cells := []string{name}
		for i, x := range stages {
			if i < from || i > to {
				cells = append(cells, "-")
			} else {
				cells = append(cells, of(x))
			}
		}
		return cells
	}
	more := func(x heldStage) float64 { return float64(x.Heap - r.Before.Heap) }
	used := func(name string, of func(stats.Effort) float64) []string {
		return row("to get there, per lock: "+name, 1, 2, func(x heldStage) string { return stats.Number(stats.Ratio(of(x.Used), float64(x.Used.Sections))) })
	}
	stored := func(name string, of func(content) int) []string {
		return row(name, 0, 3, func(x heldStage) string { return stats.Number(float64(of(x.content))) })
	}
	// All other commands are reads: neither renewals, nor repeats of one that failed.
	reads := float64(r.Used.Commands - r.Renewals - r.Repeated)
	perPeriod := func(n float64) string { return stats.Number(n / periods) }
	cpu := func(d time.Duration) string { return stats.Number(100*d.Seconds()/r.Window.Seconds()) + " %" }
	left := func(x heldStage) float64 { return float64(x.Rows + x.Strays) }
	return report.Result{
		Title: fmt.Sprintf("HELD: %s locks held by one process, in %s of %s partitions",
			figures.Thousands(int64(s.Locks)), figures.Thousands(int64(r.Held.InUse)), figures.Thousands(int64(cmp.Or(s.Partitions, partitions)))),
		Table: [][]string{
			{"", "before", "held", "after Unlock", "after Close"},
			row("heap, KB", 0, 2, func(x heldStage) string { return figures.Thousands(x.Heap / 1024) }),
			row("  per lock held, bytes", 1, 2, func(x heldStage) string { return stats.Number(more(x) / locks) }),
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
				s.Periods, r.Period, perPeriod(float64(r.Renewals)), perPeriod(reads), perPeriod(float64(r.Used.Trips))),
			fmt.Sprintf("CPU meanwhile, of one core: %s in the process, %s in redis-server (%s scripts by its own count)",
				cpu(r.Used.CPU), cpu(r.ServerCPU), stats.Number(float64(r.Evals))),
			rivals.FailedNote(r.Failed),
			fmt.Sprintf("heap: HeapAlloc after a collection, without the key strings; of it %d bytes per lock are the Lock that the caller keeps", unsafe.Sizeof(coord.Lock{})),
			fmt.Sprintf("locked by %d goroutines in %.1f s, given back in %.1f s", heldGoroutines, r.Held.Took.Seconds(), r.After.Took.Seconds()),
		},
		Claims: []report.Claim{
			report.AtMost(periods, float64(r.Renewals), "renewals in all periods"),
			report.AtLeast(periods, float64(r.Renewals), "the same: the session is kept alive"),
			report.AtMost(periods*float64(r.Held.InUse), reads, "other commands: one read per partition in use and period"),
			report.AtMost(0, float64(r.Others), "calls of the arbiter that are neither"),
			report.AtMost(heldBytes, more(r.Held)/locks, "bytes of heap per lock held"),
			report.AtMost(heldLeft, more(r.After)/more(r.Held), "part of that left after Unlock"),
			report.AtLeast(locks, float64(r.Held.Rows), "rows while they are held"),
			report.AtMost(0, left(r.After), "rows and queues left after Unlock"),
			report.AtMost(0, float64(cmp.Or(s.Partitions, partitions)-r.After.Bare), "partitions whose record still has rows"),
			report.AtMost(0, left(r.Closed)+float64(r.Closed.Sessions), "rows, queues and sessions left after Close"),
			report.AtMost(0, float64(r.Lost), "locks lost"),
		},
	}, nil
}
