package coord

import (
	"context"
	"reflect"
	"sync"
	"sync/atomic"

	"github.com/holdfast-go/holdfast/singleflight"
)

// shares is the flights of Share, of all types.
type shares struct {
	flights singleflight.Group[*crew, any]
	early   singleflight.Group[flightKey, any] // refreshing in the background
	era     atomic.Uint64                      // rises with each Unshare: later callers join no flight of before
	ctx     context.Context                    // ends at the beginning of Close: of those in the background
	stop    context.CancelCauseFunc
	work    sync.WaitGroup // all of them

	mu     mutex[leafRank]     // protects the fields below, and work from being added to while Close waits for it
	open   map[flightKey]*crew // of the flights that callers may join
	closed bool
}

type flightKey struct {
	key    string
	result reflect.Type
	era    uint64
}

func (x *shares) init() {
	x.ctx, x.stop = context.WithCancelCause(context.Background())
	x.flights.Spawn, x.early.Spawn = x.work.Go, x.work.Go
}

// close lets no flight start any more.
func (x *shares) close() {
	x.mu.Lock()
	x.closed = true
	x.mu.Unlock()
	x.stop(ErrClosed)
}

// aboard is one caller in a flight.
type aboard struct {
	*singleflight.Member[*crew, any]
	crew *crew
	mate *mate // nil: the caller has no locks
}

// join makes a caller one of the crew of the flight of its name. If there is none it starts one, of
// the given crew, with f, which calls land at its end. It returns [ErrHeld] to the function of a
// flight that this one waits for.
func (x *shares) join(c *crew, m *mate, f func(context.Context) (any, error)) (aboard, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for there := x.open[c.name]; there != nil && there.lock.t != nil; there = x.open[c.name] {
		l := there.lock
		x.mu.Unlock()
		holds := l.holds() // at this moment: so the flight's result was not replaced before the caller came
		x.mu.Lock()
		if holds {
			break
		}
		there.shut()
	}
	if x.closed {
		return aboard{}, ErrClosed
	}
	if there := x.open[c.name]; there != nil {
		c = there
	}
	if !c.add(m) {
		return aboard{}, &WaitError{Key: c.name.key, Reason: ErrHeld}
	}
	if x.open == nil {
		x.open = make(map[flightKey]*crew)
	}
	x.open[c.name] = c
	c.n++
	c.mated = c.mated || m != nil
	return aboard{x.flights.Join(c, c, f), c, m}, nil
}

// leave is when the caller waits no more, before the flight's end.
func (a aboard) leave() {
	a.crew.remove(a.mate)
	x := a.crew.x
	x.mu.Lock()
	defer x.mu.Unlock()
	if a.crew.n--; a.crew.n == 0 {
		a.crew.shut()
	}
	a.Leave() // with the mutex held, so that no successor starts while the flight's context lives
}

// land is at the flight's end, before its callers go on.
func (c *crew) land() {
	c.x.mu.Lock()
	c.shut()
	mated := c.mated
	c.x.mu.Unlock()
	if mated {
		c.disband()
	}
}

// locked notes the flight's lock.
func (c *crew) locked(l Lock) {
	c.x.mu.Lock()
	defer c.x.mu.Unlock()
	c.lock = l
}

// shut lets no more callers join the flight. The mutex is held.
func (c *crew) shut() {
	if c.x.open[c.name] == c {
		delete(c.x.open, c.name)
	}
}

// refresh flies in the background until the coordinator is closed, if there is no such flight yet.
func (x *shares) refresh(ctx context.Context, k flightKey, f func(context.Context)) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.closed {
		return
	}
	x.early.Join(&crew{Context: ctx}, k, func(ctx context.Context) (any, error) {
		ctx, cancel := until(ctx, x.ctx)
		defer cancel()
		f(ctx)
		return nil, nil
	})
}

// whileOpen returns ctx that ends as well when Close takes the locks away.
func (c *Coordinator) whileOpen(ctx context.Context) (context.Context, func()) {
	return until(ctx, c.life.ctx)
}

// until returns ctx that ends with the other one, too, and with its cause.
func until(ctx, other context.Context) (context.Context, func()) {
	both, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(other, func() { cancel(context.Cause(other)) })
	return both, func() {
		stop()
		cancel(nil)
	}
}
