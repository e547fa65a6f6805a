//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/coord"
)

// load is the waits of a node's workers since it was last asked for.
type load struct {
	mu      sync.Mutex    // protects the fields below
	wait    time.Duration // the longest that ended
	begun   map[int]time.Time
	last    time.Time     // when a worker got a lock
	pause   time.Duration // the longest time without
	failed  uint64        // locks, other than for the end of the node
	trouble string        // the first of their errors
}

func workKey(i int) string { return fmt.Sprint("work/", i) }

// work starts workers that lock keys at random, for a millisecond each, as long as the process
// lives.
func (n *node) work(ctx context.Context, keys, workers int) {
	l := &n.load
	l.begun, l.last = make(map[int]time.Time), time.Now()
	for w := range workers {
		go func() {
			for ctx.Err() == nil {
				l.begin(w)
				lock, err := n.c.Lock(ctx, workKey(rand.IntN(keys)))
				l.end(w, err)
				if errors.Is(err, coord.ErrClosed) {
					return
				}
				time.Sleep(time.Millisecond)
				if err == nil {
					_ = lock.Unlock()
				}
			}
		}()
	}
}

func (l *load) begin(worker int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.begun[worker] = time.Now()
}

func (l *load) end(worker int, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil && !errors.Is(err, coord.ErrClosed) {
		if l.failed++; l.failed == 1 {
			l.trouble = err.Error()
		}
	}
	now := time.Now()
	l.wait = max(l.wait, now.Sub(l.begun[worker]))
	l.pause, l.last = max(l.pause, now.Sub(l.last)), now
	delete(l.begun, worker)
}

// worst returns the longest wait, of those that go on as well, and the longest pause, in
// milliseconds, and begins anew.
func (l *load) worst() (wait, pause float64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	for _, begun := range l.begun {
		l.wait = max(l.wait, now.Sub(begun))
	}
	wait, pause = ms(l.wait), ms(max(l.pause, now.Sub(l.last)))
	l.wait, l.pause, l.last = 0, 0, now
	return wait, pause
}

// errors returns the number of failed locks, and the first error of them, and begins anew.
func (l *load) errors() (failed uint64, trouble string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	failed, trouble = l.failed, l.trouble
	l.failed, l.trouble = 0, ""
	return failed, trouble
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// owned returns up to most numbers of keys of the load that the node with a name should own.
func (n *node) owned(name string, most int) (keys []int) {
	for i := 0; i < 100*most && len(keys) < most; i++ {
		if o, ok := n.c.Owner(workKey(i)); ok && o.Name == name {
			keys = append(keys, i)
		}
	}
	return keys
}

// probe locks keys of the load at the same time, and returns how long each took, in milliseconds.
func (n *node) probe(ctx context.Context, keys []int) (waits []float64, err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	var names []string
	for _, key := range keys {
		names = append(names, workKey(key))
	}
	waits, errs := n.lockAll(ctx, names)
	for _, err := range errs {
		if err != nil {
			return waits, err
		}
	}
	return waits, nil
}

// lockAll locks keys at the same time, and unlocks each. It returns how long each took, in
// milliseconds, and why it was not had.
func (n *node) lockAll(ctx context.Context, keys []string) (waits []float64, errs []error) {
	begin := time.Now()
	waits, errs = make([]float64, len(keys)), make([]error, len(keys))
	var all sync.WaitGroup
	for i, key := range keys {
		all.Go(func() {
			lock, err := n.c.Lock(ctx, key)
			waits[i] = ms(time.Since(begin))
			if errs[i] = err; err == nil {
				_ = lock.Unlock()
			}
		})
	}
	all.Wait()
	return waits, errs
}

// guarded waits until the cluster is settled, and this node has guardians if it is to have some.
func (n *node) guarded(ctx context.Context, nodes int, takeover bool) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if err := n.c.Settled(ctx, nodes); err != nil {
		return err
	}
	for takeover && n.c.Stats().Guardians == 0 {
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("no guardians: %w", ctx.Err())
		}
	}
	return nil
}
