package subjects

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"time"
	"unsafe"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/bench/harness"
	"github.com/holdfast-go/holdfast/bench/rivals"
	"github.com/holdfast-go/holdfast/bench/stats"
	"github.com/holdfast-go/holdfast/coord"
)

var heldTasks = harness.NewTask("held", runHeld)

// heldTask tells a worker to hold many locks.
type heldTask struct {
	Locks      int           `json:"locks"`
	Periods    int           `json:"periods"`
	Partitions int           `json:"partitions"`  // 0: default
	SessionTTL time.Duration `json:"session_ttl"` // 0: default
}

// heldResult is what the worker found.
type heldResult struct {
	Locks, Partitions, InUse int
	LockBytes                int

	HeapBefore, HeapHeld, HeapAfter int64
	Before, Held, After, Closed     content

	Period                 time.Duration // Options.RenewEvery
	Periods                int
	Window                 time.Duration // all of them
	Renewals, Others       int64         // calls of the arbiter; Others: neither renewals nor reads
	Commands, Trips, Evals int64         // Commands: sent, of all kinds
	Repeated               int64         // of them failed
	CPU, ServerCPU         time.Duration

	LockTime, UnlockTime time.Duration
	LockUsed, UnlockUsed stats.Effort
	Lost, Failed         int64
	Failure              string // the first
}

// content is what is in Redis.
type content struct {
	Rows     int // fields of the partitions' records that are rows
	Bare     int // partitions with no rows in the record
	InUse    int // partitions with rows in the record
	Strays   int // keys of the namespace that are neither a record nor the table of sessions
	Sessions int
}

// heldGoroutines is how many callers lock and unlock at the same time.
const heldGoroutines = 64

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

func runHeld(ctx context.Context, w *harness.Host, t heldTask) (_ *heldResult, err error) {
	client, count := harness.NewClient(w.Redis, heldGoroutines)
	defer func() { err = errors.Join(err, client.Close()) }()
	h := heldRun{prefix: "{" + w.Namespace + ":", parts: t.Partitions}
	h.admin, _ = bareClient(w)
	if h.parts == 0 {
		h.parts = 1021 // coord.Options.Partitions
	}
	var failed rivals.Failures
	h.opened = time.Now()
	if h.c, err = rivals.NewCoordinator(client, &coord.Options{
		Namespace: w.Namespace, Partitions: t.Partitions, SessionTTL: t.SessionTTL, Trace: failed.Trace(),
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

	ttl := t.SessionTTL
	if ttl == 0 {
		ttl = 10 * time.Second // coord.Options.SessionTTL
	}
	r := heldResult{
		Locks: t.Locks, Partitions: h.parts, LockBytes: int(unsafe.Sizeof(coord.Lock{})),
		Periods: t.Periods, Period: ttl / 4,
	}
	// Connections, scripts and pools are not the locks': a connection has 64 to 256 KiB of buffers.
	// Twice, so that each is used for both.
	for range 2 {
		if err := h.hold(ctx, "warm", min(t.Locks, 200*heldGoroutines)); err != nil {
			return nil, err
		}
		if err := h.unlock(ctx); err != nil {
			return nil, err
		}
	}

	h.keys = makeKeys("held", t.Locks)
	if r.Before, err = h.content(ctx); err != nil {
		return nil, err
	}
	r.HeapBefore = harness.Heap()
	begin, used := time.Now(), harness.NewMeter(count)
	if err := h.lockAll(ctx); err != nil {
		return nil, err
	}
	r.LockTime, r.LockUsed = time.Since(begin), used.Read(int64(t.Locks))
	if err := h.watch(ctx, &r, count); err != nil {
		return nil, err
	}
	r.HeapHeld = harness.Heap()
	if r.Held, err = h.content(ctx); err != nil {
		return nil, err
	}
	r.InUse = r.Held.InUse

	begin, used = time.Now(), harness.NewMeter(count)
	if err := h.unlock(ctx); err != nil {
		return nil, err
	}
	r.UnlockTime, r.UnlockUsed = time.Since(begin), used.Read(int64(t.Locks))
	if r.After, err = h.content(ctx); err != nil {
		return nil, err
	}
	r.HeapAfter = harness.Heap()
	s := h.c.Stats()
	for _, n := range s.Lost {
		r.Lost += int64(n)
	}
	for _, n := range s.Failed {
		r.Failed += int64(n)
	}
	r.Failure = failed.String()
	runtime.KeepAlive(h.keys) // in all three figures of the heap
	if err := closeAll(); err != nil {
		return nil, err
	}
	r.Closed, err = h.content(ctx)
	return &r, err
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
	var wg sync.WaitGroup
	errs := make([]error, heldGoroutines)
	for g := range errs {
		wg.Go(func() {
			for i := g; i < len(h.keys) && errs[g] == nil; i += len(errs) {
				errs[g] = f(i)
			}
		})
	}
	wg.Wait()
	return cmp.Or(errs...) // one will do: where a lock was lost, so were thousands
}

// unlock unlocks all, forgets them, and waits until they were given back.
func (h *heldRun) unlock(ctx context.Context) error {
	if err := h.each(func(i int) error { return h.locks[i].Unlock() }); err != nil {
		return err
	}
	h.locks = nil
	return givenBack(ctx, h.c, 5*time.Millisecond)
}

// watch counts what happens in some renewal periods. It begins well between two renewals, so that
// there are as many of them as periods, even if it ends late.
func (h *heldRun) watch(ctx context.Context, r *heldResult, count *harness.Counter) error {
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
	before, commands, trips, cpu := h.c.Stats(), count.Commands.Load(), count.Trips.Load(), harness.SelfCPU()
	begin := time.Now()
	select {
	case <-time.After(time.Duration(r.Periods) * r.Period):
	case <-ctx.Done():
		return ctx.Err()
	}
	r.Window = time.Since(begin)
	after := h.c.Stats()
	r.Commands, r.Trips, r.CPU = count.Commands.Load()-commands, count.Trips.Load()-trips, harness.SelfCPU()-cpu
	for op, n := range after.Calls {
		calls := int64(n - before.Calls[op])
		bad := int64(after.Failed[op] - before.Failed[op])
		r.Repeated += bad
		switch op {
		case coord.OpRenew:
			r.Renewals = calls - bad
		case coord.OpVerify:
			// Not from here: a call counts when it is done, so part of one that is under way would be
			// missing.
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
	seen := make(map[string]bool) // SCAN may tell a key twice
	for keys.Next(ctx) {
		if key := keys.Val(); !records[key] && key != h.prefix+"s}" && !seen[key] {
			seen[key] = true
			c.Strays++
		}
	}
	if err := keys.Err(); err != nil {
		return c, err
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
		rows := 0
		for _, field := range f.Val() {
			if strings.HasPrefix(field, "r:") {
				rows++
			}
		}
		c.Rows += rows
		switch {
		case rows > 0:
			c.InUse++
		case len(f.Val()) > 0: // else there is no record
			c.Bare++
		}
	}
	for _, f := range sessions.Val() {
		if strings.HasPrefix(f, "s:") {
			c.Sessions++
		}
	}
	return c, nil
}
