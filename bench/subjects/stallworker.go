package subjects

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/holdfast-go/holdfast/bench/harness"
	"github.com/holdfast-go/holdfast/bench/rivals"
	"github.com/holdfast-go/holdfast/bench/stats"
	"github.com/holdfast-go/holdfast/internal/histogram"
)

var stallTasks = harness.NewTask("stall", stall)

// stallTask is a worker's task in a scenario. Before anything else the worker opens the lock, and
// from then on serves the slots that the book says.
type stallTask struct {
	stallSizes
	Book    string // file
	Variant string
	Server  string // how to connect to the variant's own
	Leave   bool   // serve the requests that have arrived, and end
}

// stallResult is the result of the worker.
type stallResult struct {
	view                 // of Holdfast in a cluster
	Failure string       // of a request, if one failed
	Used    stats.Effort // since it began to serve
}

// stallLoad serves requests. They arrive by a clock, whether or not others are still waiting: a
// lock that is slow does not make for fewer requests.
type stallLoad struct {
	stallTask
	book   *stallBook
	me     int64
	prefix string
	locker *rivals.Locker
	close  func() error
	used   harness.Meter
	done   atomic.Int64

	clock    sync.WaitGroup // of the goroutines that let requests arrive
	requests sync.WaitGroup
	stop     chan struct{}
	failure  atomic.Pointer[string] // the first
}

func stall(ctx context.Context, h *harness.Host, t stallTask) (*stallResult, error) {
	l, err := harness.Kept(h, "load", func() (*stallLoad, error) { return openLoad(ctx, h, t) })
	if err != nil {
		return nil, err
	}
	if t.Leave {
		err = l.end()
	}
	r := &stallResult{Used: l.used.Read(l.done.Load())}
	if l.locker.Node != nil {
		r.view.of(l.locker.Node)
	}
	if failure := l.failure.Load(); failure != nil {
		r.Failure = *failure
	}
	return r, err
}

func openLoad(ctx context.Context, h *harness.Host, t stallTask) (_ *stallLoad, err error) {
	l := &stallLoad{stallTask: t, me: int64(h.Process), stop: make(chan struct{}), prefix: h.Namespace}
	book, unmap, err := openBook(t.Book)
	if err != nil {
		return nil, err
	}
	l.book = book
	client, count := harness.NewClient(h.Redis, 0)
	l.used = harness.NewMeter(count)
	v, _, err := rivals.FindVariant(t.Variant)
	if err == nil {
		l.locker, err = v.Open(rivals.Environment{Order: h.Order, Client: client, Server: t.Server, Goroutines: stallPool, Count: count})
	}
	if err != nil {
		return nil, errors.Join(err, client.Close(), unmap())
	}
	l.close = sync.OnceValue(func() error {
		ctx, cancel := context.WithTimeout(context.Background(), harness.CloseTime)
		defer cancel()
		err := l.locker.Close(ctx)
		if book.over.Load() {
			err = nil // a key that cannot be given back, as in Grace, goes with the server
		}
		return errors.Join(err, client.Close(), unmap())
	})
	h.AtEnd(l.end)
	for slot := range l.Processes {
		l.clock.Go(func() { l.arrivals(ctx, slot) })
	}
	return l, nil
}

// end waits for the requests that have arrived, and closes the lock.
func (l *stallLoad) end() error {
	select {
	case <-l.stop:
	default:
		close(l.stop)
	}
	l.clock.Wait()
	l.requests.Wait()
	return l.close()
}

// arrivals lets requests arrive at a slot while it is this process's.
func (l *stallLoad) arrivals(ctx context.Context, slot int) {
	every := time.Duration(float64(time.Second) / l.Rate)
	wait := func(d time.Duration) bool {
		select {
		case <-time.After(d):
			return true
		case <-l.stop:
		case <-ctx.Done():
		}
		return false
	}
	for l.book.begin.Load() == 0 {
		if !wait(5 * time.Millisecond) {
			return
		}
	}
	begin := time.Unix(0, l.book.begin.Load())
	mine := false
	var next time.Time
	for !l.book.over.Load() {
		if !mine {
			n := max(time.Since(begin), 0)/every + 1
			next = begin.Add(n*every + every*time.Duration(slot)/time.Duration(l.Processes))
		}
		if !wait(time.Until(next)) {
			return
		}
		if mine = l.book.serves[slot].Load() == l.me; !mine {
			continue
		}
		arrived := next
		next = next.Add(every)
		l.requests.Go(func() { l.request(ctx, arrived) })
	}
}

// request is one of them. Its wait counts from when it should have arrived.
func (l *stallLoad) request(ctx context.Context, arrived time.Time) {
	l.book.arrived.Add(1)
	ctx, cancel := context.WithDeadline(ctx, arrived.Add(l.Limit))
	defer cancel()
	key, got := rand.IntN(l.Keys), false
	err := l.locker.Section(ctx, l.prefix+"-"+strconv.Itoa(key), func(fence uint64) {
		got = true
		l.book.waited(time.Since(arrived))
		l.book.granted(key, fence)
		if l.book.dies.Load() == l.me {
			l.book.struck.Store(true)
			die()
		}
		time.Sleep(l.Hold) // the work under the lock
	})
	if !got {
		l.book.waited(time.Since(arrived))
	}
	if err == nil {
		l.done.Add(1)
		l.book.done.Add(1)
		return
	}
	l.book.failed.Add(1)
	text := err.Error()
	l.failure.CompareAndSwap(nil, &text)
}

// die ends this process as kill -9 does.
func die() {
	p, err := os.FindProcess(os.Getpid())
	if err == nil {
		err = p.Kill()
	}
	if err != nil {
		panic(err)
	}
	select {}
}

// stallBook is memory that the processes of a scenario share, a file mapped by each. The writes of
// a process stay there when it is killed.
type stallBook struct {
	begin  atomic.Int64             // nanoseconds since 1970; 0: not yet
	over   atomic.Bool              // no requests arrive any more
	serves [stallSlots]atomic.Int64 // which process gets the requests that arrive at a slot
	dies   atomic.Int64             // which process kills itself with a lock in its hand; 0: none
	struck atomic.Bool              // it has
	stale  atomic.Int64             // tokens that were not above the last one of their key
	slow   atomic.Int64             // requests that waited for longer than stallSlow
	tokens [stallKeys]atomic.Uint64
	waits  [histogram.Buckets]atomic.Int64 // as those of a histogram, and
	most   atomic.Int64                    // the longest, in nanoseconds

	arrived, done, failed atomic.Int64 // requests
}

const (
	stallSlots = 8
	stallKeys  = 1024
	stallSlow  = 100 * time.Millisecond
)

func openBook(path string) (_ *stallBook, unmap func() error, err error) {
	mem, unmap, err := harness.MapFile(path, int(unsafe.Sizeof(stallBook{})))
	if err != nil {
		return nil, nil, err
	}
	return (*stallBook)(mem), unmap, nil
}

// waited notes how long a request waited, or until it failed.
func (b *stallBook) waited(d time.Duration) {
	for seen := b.most.Load(); seen < int64(d) && !b.most.CompareAndSwap(seen, int64(d)); {
		seen = b.most.Load()
	}
	b.waits[histogram.Bucket(d)].Add(1)
	if d > stallSlow {
		b.slow.Add(1)
	}
}

// granted notes a token of a key, if there are tokens.
func (b *stallBook) granted(key int, fence uint64) {
	if fence != 0 && b.tokens[key].Swap(fence) >= fence {
		b.stale.Add(1)
	}
}

// histogram is that of all waits.
func (b *stallBook) histogram() *histogram.Histogram {
	h := &histogram.Histogram{Longest: time.Duration(b.most.Load())}
	for i := range b.waits {
		h.Buckets[i] = b.waits[i].Load()
	}
	return h
}
