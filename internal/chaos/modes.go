//go:build linux

package main

import (
	"context"
	crand "crypto/rand"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/coord"
)

// mode is the mode of a hold: a writer's, a reader's, or permits.
type mode string

const (
	writing mode = ""
	reading mode = "r"
	counted mode = "p"
)

// semaphorePermits is how many each semaphore has.
const semaphorePermits = 3

// semaphoreOf returns the name of the semaphore of a key. The judge knows it by that name.
func semaphoreOf(key string) string { return "permits-" + key }

// A lease is the hold of a client, in any mode.
type lease interface {
	Fence() coord.Fence
	Context() context.Context
	Unlock() error
}

// permits are a lease without a token.
type permits struct{ coord.Permits }

func (permits) Fence() coord.Fence { return 0 }
func (p permits) Unlock() error    { return p.Release() }

// An aim is a client's next request.
type aim struct {
	key  string
	mode mode
	n    int // permits
}

// aim draws the next request: in a share of all cases to read, or for permits.
func (c *client) aim() aim {
	a := aim{key: c.key}
	if c.pace == fleeting {
		a.key = "once-" + crand.Text()
	}
	if c.pace == forever || rand.Float64() >= c.n.job.Share {
		return a
	}
	if rand.IntN(3) > 0 {
		a.mode = reading
		return a
	}
	return aim{semaphoreOf(a.key), counted, 1 + rand.IntN(semaphorePermits)}
}

// take asks for it.
func (c *client) take(ctx context.Context) (l lease, err error) {
	switch c.now.mode {
	case reading:
		return c.n.c.RLock(ctx, c.now.key)
	case counted:
		p, err := c.n.c.Semaphore(c.now.key, semaphorePermits).Acquire(ctx, c.now.n)
		return permits{p}, err
	}
	return c.n.c.Lock(ctx, c.now.key)
}

// turn downgrades a lock for reading, now and then, and returns the client's hold afterwards.
func (c *client) turn(ctx context.Context, l lease) lease {
	w, ok := l.(coord.Lock)
	if !ok || c.pace == forever || rand.Float64() >= c.n.job.Share || rand.IntN(4) > 0 {
		return l
	}
	asking, cancel := context.WithTimeout(ctx, c.pick(span{100 * time.Millisecond, 3 * time.Second}))
	defer cancel()
	c.note(opDowngrade, uint64(l.Fence()), "")
	r, err := w.Downgrade(asking)
	if err != nil {
		c.note(opKept, uint64(l.Fence()), err.Error())
		return l
	}
	c.now.mode = reading
	c.write(event{Op: opGranted, Fence: uint64(r.Fence()), From: uint64(w.Fence())})
	c.ask("begin", r)
	if how := manner(rand.IntN(3)); c.visit(ctx, r, how) || how == careless {
		c.ask("end", r)
	}
	return r
}

// several is a client that locks some keys together, and unlocks each by itself.
type several struct {
	n    *node
	each []*client // each notes the events of its key
}

func (s *several) run(ctx context.Context) error {
	for _, c := range s.each {
		r, err := openResource(s.n.job.Resource)
		if err != nil {
			return err
		}
		defer r.c.Close()
		c.r = r
	}
	for sleep(ctx, s.each[0].rest()) {
		s.once(ctx)
		for _, c := range s.each {
			if c.err != nil {
				return c.err
			}
		}
	}
	return nil
}

// once locks as many keys as there are clients, some of them for reading.
func (s *several) once(ctx context.Context) {
	patience := s.each[0].patience()
	waiting, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	keys := rand.Perm(len(s.n.job.Keys))
	var claims []coord.Claim
	for i, c := range s.each {
		c.now = aim{key: s.n.job.Keys[keys[i]]}
		if rand.IntN(2) == 0 {
			c.now.mode = reading
		}
		claims = append(claims, coord.Claim{Key: c.now.key, Read: c.now.mode == reading})
		c.note(opLock, 0, patience.String())
	}
	all, err := s.n.c.LockClaims(waiting, claims...)
	var work sync.WaitGroup
	for _, c := range s.each {
		if err != nil {
			c.failed(ctx, err)
			continue
		}
		l := lease(all.Of(c.now.key))
		if c.now.mode == reading {
			l = all.ReadOf(c.now.key)
		}
		c.note(opGranted, uint64(l.Fence()), "")
		work.Go(func() { c.have(ctx, l) })
	}
	work.Wait()
}
