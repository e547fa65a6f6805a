package subjects

import (
	"context"
	"errors"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/bench/harness"
	"github.com/holdfast-go/holdfast/bench/rivals"
	"github.com/holdfast-go/holdfast/bench/stats"
)

var stallTasks = harness.NewTask("stall", stall)

// stallTask tells a worker what to do in a scenario. Before anything else it opens the lock, and
// from then on serves the slots that the book says.
type stallTask struct {
	Book string `json:"book"` // file
	stallLoadOptions

	Leave bool `json:"leave"` // serve what has arrived, and end
}

// stallLoadOptions are what a load consists of.
type stallLoadOptions struct {
	Variant    string        `json:"variant"`
	Server     string        `json:"server"`      // how to connect to the variant's own
	SessionTTL time.Duration `json:"session_ttl"` // of Holdfast; 0: default
	Slots      int           `json:"slots"`
	Rate       float64       `json:"rate"` // requests per second and slot
	Keys       int           `json:"keys"` // at most stallKeys
	Hold       time.Duration `json:"hold"`
	Limit      time.Duration `json:"limit"` // a request that waits for longer fails
}

// stallResult is what the worker sees.
type stallResult struct {
	view                 // of Holdfast in a cluster
	Failure string       // of a request, if one failed
	Used    stats.Effort // since it began to serve
}

// stallLoad serves requests. They arrive by a clock, whether or not others are still waiting: a
// lock that is slow does not make for fewer requests.
type stallLoad struct {
	stallLoadOptions
	book   *stallBook
	me     int64
	prefix string
	locker rivals.Locker
	close  func() error
	used   harness.Meter
	done   atomic.Int64

	clock    sync.WaitGroup // of the goroutines that let requests arrive
	requests sync.WaitGroup
	stop     chan struct{}

	mu      sync.Mutex // protects failure
	failure string
}

func stall(ctx context.Context, h *harness.Host, t stallTask) (*stallResult, error) {
	l, err := harness.Kept(h, "load", func() (*stallLoad, error) { return openLoad(ctx, h, t) })
	if err != nil {
		return nil, err
	}
	if t.Leave {
		err = l.end()
	}
	return l.result(), err
}

func openLoad(ctx context.Context, h *harness.Host, t stallTask) (_ *stallLoad, err error) {
	l := &stallLoad{stallLoadOptions: t.stallLoadOptions, me: int64(h.Process), stop: make(chan struct{}), prefix: h.Namespace}
	client, count := harness.NewClient(h.Redis, 0)
	l.used = harness.NewMeter(count)
	if l.Variant == stallOurs {
		opts := rivals.ClusterOptions(h.Order)
		opts.SessionTTL = t.SessionTTL
		c, err := rivals.NewCoordinator(client, opts)
		if err != nil {
			return nil, errors.Join(err, client.Close())
		}
		l.locker = &rivals.Holdfast{C: c}
	} else {
		v, _, err := rivals.FindVariant(l.Variant)
		if err == nil {
			l.locker, err = v.Open(rivals.Environment{Order: h.Order, Client: client, Server: l.Server, Goroutines: stallPool, Count: count})
		}
		if err != nil {
			return nil, errors.Join(err, client.Close())
		}
	}
	book, unmap, err := openBook(t.Book)
	l.book = book
	l.close = sync.OnceValue(func() error {
		ctx, cancel := context.WithTimeout(context.Background(), harness.CloseTime)
		defer cancel()
		err := l.locker.Close(ctx)
		if book != nil && book.over.Load() {
			err = nil // what cannot be given back, as in Grace, goes with the server
		}
		err = errors.Join(err, client.Close())
		if book != nil {
			err = errors.Join(err, unmap())
		}
		return err
	})
	if err != nil {
		return nil, errors.Join(err, l.close())
	}
	h.AtEnd(l.end)
	for slot := range l.Slots {
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

func (l *stallLoad) result() *stallResult {
	r := &stallResult{Used: l.used.Read(l.done.Load())}
	if h, ok := l.locker.(*rivals.Holdfast); ok {
		r.view.of(h.C)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	r.Failure = l.failure
	return r
}

// arrivals lets requests arrive at a slot while it is this process's.
func (l *stallLoad) arrivals(ctx context.Context, slot int) {
	every := time.Duration(float64(time.Second) / l.Rate)
	timer := time.NewTimer(0)
	defer timer.Stop()
	wait := func(d time.Duration) bool {
		timer.Reset(d)
		select {
		case <-timer.C:
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
			next = begin.Add(n*every + every*time.Duration(slot)/time.Duration(l.Slots))
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
	l.book.at(arrived).arrived.Add(1)
	ctx, cancel := context.WithDeadline(ctx, arrived.Add(l.Limit))
	defer cancel()
	key, got := rand.IntN(l.Keys), false
	err := l.locker.Section(ctx, l.prefix+"-"+strconv.Itoa(key), func(fence uint64) {
		got = true
		l.book.waited(arrived, time.Since(arrived))
		l.book.granted(key, fence)
		time.Sleep(l.Hold) // what is done under the lock
	})
	if !got {
		l.book.waited(arrived, time.Since(arrived))
	}
	if err == nil {
		l.done.Add(1)
		l.book.at(time.Now()).done.Add(1)
		return
	}
	l.book.at(arrived).failed.Add(1)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.failure == "" {
		l.failure = err.Error()
	}
}
