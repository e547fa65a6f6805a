package coord

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

// patience is how long a call of spread, or of reclaim, waits before it makes room for one more
// beside it. A server of several that does not answer must not hold up the answers of the others.
// But where calls are slow because there are many, more of them make it worse: they time out, and
// are made again.
type patience struct {
	least, most time.Duration
	took        atomic.Int64 // by the call that has ended last; 0: none has
}

func newPatience(o *Options) *patience {
	return &patience{least: o.RetryEvery / 4, most: o.CallTimeout / 2}
}

// ended notes how long a call took.
func (x *patience) ended(took time.Duration) { x.took.Store(int64(max(took, 1))) }

// wait returns how long a call that begins now waits before it makes room: as long as calls take
// lately, several times.
func (x *patience) wait() time.Duration {
	took := time.Duration(x.took.Load())
	if took == 0 {
		return max(x.least, x.most)
	}
	return max(x.least, min(4*took, x.most))
}

// spread calls f for all of a list, in goroutines, at most n at a time: but one that takes long
// makes room for another one, as [patience] says. It returns when each call has ended or has made
// room; work tells when all have ended.
func spread[T any](c *Coordinator, work *sync.WaitGroup, list []T, n int, f func(T)) {
	if len(list) == 0 {
		return
	}
	n = min(n, len(list))
	room := make(chan struct{}, n)
	p := newPatience(&c.opts)
	for _, v := range list {
		room <- struct{}{}
		work.Add(1)
		c.life.pool.Go(func() {
			defer work.Done()
			leave := sync.OnceFunc(func() { <-room })
			defer leave()
			defer time.AfterFunc(p.wait(), leave).Stop()
			begun := c.now()
			f(v)
			p.ended(c.since(begun))
		})
	}
	for range n {
		room <- struct{}{}
	}
}

// readsPerCall bounds one call, so that it ends in time and others come in between; verifyCalls is
// how many are under way at the same time, without those that a server holds up.
const readsPerCall, verifyCalls = 256, 8

// jitter lengthens a pause at random, so that many processes do not act at the same moment.
func jitter(d time.Duration) time.Duration {
	return d + rand.N(d/4+1)
}
