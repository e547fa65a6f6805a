package coord

import (
	"fmt"
	"math"
	"math/bits"
	"runtime"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/peer"
)

// partition is the shell of a lease.Partition: it reads the clock, locks, and carries out effects.
type partition struct {
	c      *Coordinator
	traced bool // each lock is traced, or its caller is recorded

	mu mutex[partitionRank] // protects the fields below, with its keys and turns
	lease.Partition
	clock time.Time     // when both clocks were read last
	empty chan struct{} // closed when no turn runs any more; made by emptied
}

func (p *partition) init(c *Coordinator, cfg *lease.Config, number uint32) {
	p.c = c
	p.traced = c.opts.Trace.Granted != nil || c.opts.Trace.Released != nil || c.opts.LogCallers
	p.Init(cfg, number)
}

// leaseConfig returns the settings that all partitions share.
func (c *Coordinator) leaseConfig() *lease.Config {
	o := &c.opts
	return &lease.Config{
		Began: c.began, Lease: o.lease(), Margin: o.Margin, SessionTTL: o.SessionTTL, RenewEvery: o.RenewEvery,
		RetryEvery: o.RetryEvery, Least: o.leastGrant(), Death: o.death(), Handoff: c.callers.limits, Clustered: o.Cluster != nil,
		NoAnswer: errNoAnswer, Full: errFull, Size: errSize, View: view{c}, Requests: &c.callers.requests, Offers: &c.debts.offers,
		Sights: sights(o.Cluster),
	}
}

// death returns how long after the last ping of a node guardians have found out whether it is dead.
func (o *Options) death() time.Duration {
	if d := o.takeover(); d > 0 {
		return d + o.RetryEvery
	}
	return 0
}

// errNoAnswer is the trouble of a contender at first.
var errNoAnswer = fmt.Errorf("%w: no answer yet", ErrUnavailable)

// divide makes the partitions.
func (c *Coordinator) divide(n int) {
	c.parts, c.callers.reciprocal = make([]partition, n), math.MaxUint64/uint64(n)
}

func (c *Coordinator) partitionOf(key string) *partition {
	return &c.parts[remainder(hash(key), uint64(len(c.parts)), c.callers.reciprocal)]
}

// remainder is h % n, where inverse is math.MaxUint64 / n: a multiplication takes a third of the
// time that a division takes. Its estimate of h / n is the quotient, or one less.
func remainder(h, n, inverse uint64) uint64 {
	q, _ := bits.Mul64(h, inverse)
	r := h - q*n
	if r >= n {
		r -= n
	}
	return r
}

func hash(s string) uint64 { return xxhash.Sum64String(s) }

// lock is for an event, and returns the time of the event. It is read with the mutex held: waiting
// for it must not make a grant of the past (rule 1). An event that needs no time, a look, and an
// event without effects take p.mu themselves. An event with effects ends with unlock, as a test
// checks, or as attempt.once with carryOut and p.mu.Unlock.
func (p *partition) lock() time.Time {
	p.mu.Lock()
	return p.now()
}

// unlock carries out the ordered effects of the event, and frees the mutex. The others are for
// a.do.
func (p *partition) unlock(a *after) {
	if o := p.Pending(); o != nil {
		a.carryOut(p, o)
	}
	if p.empty != nil && p.Turns() == 0 {
		close(p.empty)
		p.empty = nil
	}
	p.AssertWanted()
	p.mu.Unlock()
}

// emptied returns a channel that is closed when no turn runs.
func (p *partition) emptied() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.Turns() == 0 {
		done := make(chan struct{})
		close(done)
		return done
	}
	if p.empty == nil {
		p.empty = make(chan struct{})
	}
	return p.empty
}

// close refuses new locks, sends the waiters away, and gives back the lingering holds.
func (p *partition) close() {
	var a after
	now := p.lock()
	p.Close(ErrClosed, now, &a.Effects)
	p.unlock(&a)
	a.do(p.c)
}

// known returns the highest token that was seen by now. The answer to a later question must not be
// lower.
func (p *partition) known() fallback.Token {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.Seen()
}

// A hint is the news of a message, or of a row, about a hold or a request: see lease.Partition's
// methods.
type hint uint8

const (
	hintWoken hint = iota
	hintAsked
	hintFreed
	hintUnknown
)

// message lets a message about a key happen.
func (p *partition) message(says hint, key string, id fallback.Identity) {
	if len(key) > peer.MaxKey {
		return
	}
	var a after
	now := p.lock()
	switch says { // with a function as the parameter, a would be on the heap
	case hintWoken:
		p.Woken(key, id, &a.Effects)
	case hintAsked:
		p.Asked(key, id, now, &a.Effects)
	case hintFreed:
		p.Freed(key, id, now, &a.Effects)
	case hintUnknown:
		p.Unknown(key, id, &a.Effects)
	}
	p.unlock(&a)
	a.do(p.c)
}

func (p *partition) count(s *Stats, to *lease.Counts) {
	p.mu.Lock()
	defer p.mu.Unlock()
	granted := func(path lease.Path, n uint64) { s.Granted[Path(path)] += n }
	p.Count(max(p.c.moment(), 1), p.letIn, to, granted, p.c.tells.expected.has)
}

// letIn lets a caller in that waits for the mutex, which is held: a walk over many keys goes on
// after it. It returns true.
func (p *partition) letIn() bool {
	p.mu.Unlock()
	runtime.Gosched() // else this goroutine has the mutex back before the one that waits has woken up
	p.mu.Lock()
	return true
}

// view is a coordinator as its partitions see it.
type view struct{ c *Coordinator }

func (v view) Session() *lease.Session {
	if s := v.c.sessions.current(); s != nil {
		return s.Session
	}
	return nil
}

func (v view) Route(p uint32) lease.Route       { return v.c.cluster.route(p) }
func (v view) LinkTo(session string) lease.Link { return v.c.cluster.linkTo(session).or() }
func (v view) LinkNode(name string) lease.Link  { return v.c.cluster.linkNode(name).or() }

func (v view) Adoption() lease.Adoption {
	if v.c.cluster == nil {
		return lease.Adoption{}
	}
	return v.c.cluster.adoption()
}
