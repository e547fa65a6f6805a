package coord

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/lease"
)

// releaser sends releases to the arbiter, many at a time, and again until they are acknowledged
// (rule 9).
type releaser struct {
	mu      mutex[leafRank] // protects pending, failed and heard
	pending []fallback.Release
	failed  []fallback.Release
	heard   map[fallback.Release]bool // of addHeard, until done; true: it has failed
	vain    int                       // of heard: that have failed
	signal  chan struct{}             // capacity 1: pending is not empty
	resend  chan struct{}             // capacity 1: failed is not empty
	senders atomic.Int32              // that have been relieved, with batches under way
}

// maxBatch bounds one call. It keeps the arbiter free for others in between.
const maxBatch = 256

func (r *releaser) init() {
	r.signal, r.resend = make(chan struct{}, 1), make(chan struct{}, 1)
	r.heard = make(map[fallback.Release]bool)
}

// add is for releases in memory that is not written to any more.
func (r *releaser) add(more ...fallback.Release) {
	r.mu.Lock()
	if r.pending == nil {
		r.pending = slices.Clip(more)
	} else {
		r.pending = append(r.pending, more...)
	}
	r.mu.Unlock()
	signal(r.signal)
}

// maxHeard bounds the releases that only messages call due. Others can send any number of such
// messages. For those that are left out the arbiter, or the key's owner, asks again where a caller
// waits; a promise lapses. Up to as many failed ones are kept beside those. So releases that one
// server does not take leave room for those of others.
const maxHeard = 1024

// addHeard is add for those.
func (r *releaser) addHeard(more []fallback.Release) {
	r.mu.Lock()
	for _, x := range more {
		if len(r.heard)-r.vain == maxHeard {
			break
		}
		if _, ok := r.heard[x]; !ok {
			r.heard[x] = false
			r.pending = append(r.pending, x)
		}
	}
	r.mu.Unlock()
	signal(r.signal)
}

// done is for those that were sent: those that are left are to be sent again, and the others have
// been acknowledged.
func (r *releaser) done(sent, left []fallback.Release) {
	if len(left) > 0 {
		defer signal(r.resend)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.heard) == 0 {
		r.failed = append(r.failed, left...)
		return
	}
	var still map[fallback.Release]bool // as a rule none is left
	if len(left) > 0 {
		still = make(map[fallback.Release]bool, len(left))
	}
	for _, x := range left {
		still[x] = true
		if vain, ok := r.heard[x]; ok && !vain {
			if r.vain == maxHeard {
				delete(r.heard, x)
				continue
			}
			r.heard[x] = true
			r.vain++
		}
		r.failed = append(r.failed, x)
	}
	for _, x := range sent {
		if still[x] {
			continue
		}
		if r.heard[x] {
			r.vain--
		}
		delete(r.heard, x)
	}
}

func (r *releaser) takeFailed() []fallback.Release {
	r.mu.Lock()
	defer r.mu.Unlock()
	failed := r.failed
	r.failed = nil
	return failed
}

func (r *releaser) takeAll() []fallback.Release {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := slices.Concat(r.pending, r.failed)
	r.pending, r.failed = nil, nil
	return all
}

// takeLast takes the release that was added last, if it is of that name and still to be sent.
func (r *releaser) takeLast(partition uint32, name string) (x fallback.Release, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := len(r.pending) - 1
	if n < 0 || r.pending[n].Partition != partition || r.pending[n].Key != name {
		return x, false
	}
	x = r.pending[n]
	if r.pending = r.pending[:n]; n == 0 {
		r.pending = nil
	}
	return x, true
}

// next takes a batch.
func (r *releaser) next() []fallback.Release {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := min(len(r.pending), maxBatch)
	batch := r.pending[:n:n]
	if r.pending = r.pending[n:]; len(r.pending) == 0 {
		r.pending = nil
	}
	return batch
}

// maxSenders bounds how many batches of releases are under way at a time: of one server, and of
// several. More of them would not make a busy server faster. They would queue there ahead of
// renewals, and sessions would end.
const (
	maxSenders       = 4
	maxSendersSpread = 16
)

// sendReleases runs until the coordinator stops. A batch that is not answered soon, as by one of
// several servers, takes its time: then another goroutine goes on, and this one ends with it.
func (c *Coordinator) sendReleases() {
	relieved := make(chan bool)
	relief := time.AfterFunc(time.Hour, func() { relieved <- c.relieve() })
	defer relief.Stop()
	relief.Stop()
	for {
		for batch := c.debts.releases.next(); len(batch) > 0; batch = c.debts.releases.next() {
			relief.Reset(c.opts.RetryEvery / 16)
			left, _ := c.sendBatch(c.life.ctx, batch, c.answers())
			c.debts.releases.done(batch, left)
			if !relief.Stop() && <-relieved { // relieve has begun: if it has started another sender, this one ends
				c.debts.releases.senders.Add(-1)
				return
			}
			if c.life.ctx.Err() != nil {
				return
			}
		}
		select {
		case <-c.life.ctx.Done():
			return
		case <-c.debts.releases.signal:
		}
	}
}

// relieve lets another goroutine send releases, beside those that have batches under way. It
// reports false if there are as many of those as there may be.
func (c *Coordinator) relieve() bool {
	most := int32(maxSenders)
	if c.spreads() {
		most = maxSendersSpread
	}
	if c.debts.releases.senders.Add(1) >= most {
		c.debts.releases.senders.Add(-1)
		return false
	}
	c.life.work.Go(c.sendReleases)
	return true
}

// sendAhead sends the release of a name that is about to be asked for, if it was given back just
// now: asked first, the arbiter would answer that the key is held, and tell by a message when it is
// free. It reports false if the release is to be sent again.
func (c *Coordinator) sendAhead(partition uint32, name string) (sent bool) {
	r := &c.debts.releases
	x, owed := r.takeLast(partition, name)
	if !owed {
		return true
	}
	defer func() { // also if a trace function panics
		if !sent {
			r.add(x)
		}
	}()
	batch := []fallback.Release{x}
	if left, _ := c.sendBatch(c.life.ctx, batch, c.briefly()); len(left) > 0 {
		return false
	}
	r.done(batch, nil)
	return true
}

// resendReleases sends those again that failed, until the coordinator stops: apart from the others,
// which need not wait until it has failed again.
func (c *Coordinator) resendReleases() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-c.life.ctx.Done():
			return
		case <-c.debts.releases.resend:
		}
		timer.Reset(c.opts.RetryEvery)
		select {
		case <-c.life.ctx.Done():
			return
		case <-timer.C:
		}
		failed := c.debts.releases.takeFailed()
		left, _ := c.sendAll(c.life.ctx, failed)
		c.debts.releases.done(failed, left)
	}
}

// sendAll returns those that are not known to be done. Once a partition has not answered, it is
// left alone, until ctx ends.
func (c *Coordinator) sendAll(ctx context.Context, list []fallback.Release) (left []fallback.Release, err error) {
	silent := make(map[uint32]bool)
	batch := make([]fallback.Release, 0, min(len(list), maxBatch))
	for i, r := range list {
		if silent[r.Partition] || ctx.Err() != nil {
			left = append(left, r)
		} else {
			batch = append(batch, r)
		}
		if len(batch) < maxBatch && i < len(list)-1 || len(batch) == 0 {
			continue
		}
		failed, e := c.sendBatch(ctx, batch, c.opts.CallTimeout)
		if e != nil {
			err = e
		}
		for _, r := range failed {
			silent[r.Partition] = true
		}
		left = append(left, failed...)
		batch = batch[:0]
	}
	return left, err
}

// errSilent: a process without a session may go by a Grace that is too short by now, so its calls
// wait.
var errSilent = fmt.Errorf("%w: this process has no session now", ErrUnavailable)

// sendBatch waits for the answer until timeout. It returns those that are not known to be done.
func (c *Coordinator) sendBatch(ctx context.Context, batch []fallback.Release, timeout time.Duration) (left []fallback.Release, err error) {
	if s := c.sessions.current(); s == nil || lease.Past(s.Deadline(), c.now()) {
		return batch, errSilent
	}
	// A batch under way is not given up because the coordinator stops.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout)
	defer cancel()
	start := c.now()
	for i, e := range c.remote.ns.Unlock(ctx, batch) {
		if e != nil {
			left, err = append(left, batch[i]), e
		}
	}
	c.calledMany(OpUnlock, len(batch), len(left), start, err)
	return left, err
}

// flushReleases sends the remaining releases when the coordinator has stopped. It tries twice.
func (c *Coordinator) flushReleases() error {
	var err error
	list := c.debts.releases.takeAll()
	for range 2 {
		list, err = c.sendAll(context.Background(), list)
	}
	return err
}
