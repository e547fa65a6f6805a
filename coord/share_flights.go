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
	flights singleflight.Group[flightKey, any]
	early   singleflight.Group[flightKey, any] // refreshing in the background
	era     atomic.Uint64                      // rises with each Unshare: later callers join no flight of before
	ctx     context.Context                    // ends at the beginning of Close: of those in the background
	stop    context.CancelCauseFunc
	work    sync.WaitGroup // all of them

	mu     mutex[leafRank] // protects closed, and work from being added to while Close waits for it
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

// shareMember is one caller in a flight.
type shareMember = singleflight.Member[flightKey, any]

func (x *shares) join(ctx context.Context, k flightKey, f func(context.Context) (any, error)) (*shareMember, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.closed {
		return nil, ErrClosed
	}
	return x.flights.Join(ctx, k, f), nil
}

// refresh flies in the background until the coordinator is closed, if there is no such flight yet.
func (x *shares) refresh(ctx context.Context, k flightKey, f func(context.Context)) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.closed {
		return
	}
	x.early.Join(ctx, k, func(ctx context.Context) (any, error) {
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
