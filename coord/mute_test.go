package coord_test

import (
	"context"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/await"
)

// A muteArbiter delivers no messages, as most stores, and says so.
type muteArbiter struct {
	fallback.Arbiter
	carried bool // the process whose call causes messages knows them
}

type muteSpace struct{ fallback.Namespace }

func (a muteArbiter) Attach(ctx context.Context, s fallback.Settings) (fallback.Namespace, error) {
	n, err := a.Arbiter.Attach(ctx, s)
	if err != nil {
		return nil, err
	}
	if a.carried {
		return courierSpace{muteSpace{n}, n.(fallback.Courier)}, nil
	}
	return muteSpace{n}, nil
}

// A courierSpace knows the messages that its calls cause, as that of a store of records does.
type courierSpace struct {
	muteSpace
	fallback.Courier
}

func (muteSpace) Mute() bool { return true }

func (muteSpace) Listen(context.Context, string, func(fallback.Message)) (func(), error) {
	return func() {}, nil
}

// A process that comes again while a hold of its own is on its way back need not wait for a message
// that never comes.
func TestMute_TheSameProcessComesAgain(t *testing.T) {
	for _, linger := range []time.Duration{-1, 0} {
		for _, rest := range []time.Duration{0, 5 * time.Millisecond, 7 * time.Millisecond} { // a hold lingers for 5 to 10 ms by default
			bubble(t, func(t *testing.T, a *fallback.Memory) {
				f := &faulty{Arbiter: a}
				c := start(t, muteArbiter{f, true}, &coord.Options{Handoff: coord.Handoff{Linger: linger}})
				f.set(func(string) fault { return fault{request: time.Millisecond, answer: time.Millisecond} })
				for range 20 {
					began := time.Now()
					unlock(t, lock(t, c, "k"))
					if took := time.Since(began); took > 25*time.Millisecond {
						t.Errorf("Linger %v, %v after the last one: %v", linger, rest, took)
					}
					time.Sleep(rest)
				}
			})
		}
	}
}

// A waiter of another process asks again each RetryEvery.
func TestMute_AnotherProcessComes(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		o := func() *coord.Options {
			return &coord.Options{RetryEvery: 100 * time.Millisecond, Handoff: coord.Handoff{Linger: -1}}
		}
		one, two := start(t, muteArbiter{Arbiter: a}, o()), start(t, muteArbiter{Arbiter: a}, o())
		for range 20 {
			l := lock(t, one, "k")
			var unlocked time.Time
			go func() {
				time.Sleep(time.Second)
				unlocked = time.Now()
				unlock(t, l)
			}()
			other := lock(t, two, "k")
			if took := time.Since(unlocked); took > 130*time.Millisecond {
				t.Errorf("it was free for %v", took)
			}
			unlock(t, other)
			time.Sleep(time.Second)
		}
	})
}

// unowned returns two nodes with a stream between them, whose partitions have no owner yet.
func unowned(t *testing.T, retry time.Duration) (one, two *coord.Coordinator) {
	t.Helper()
	a, o := muteArbiter{fallback.NewMemory(), true}, quick()
	o.SessionTTL, o.Grace, o.RetryEvery, o.RenewEvery = 20*retry, 30*retry, retry, retry
	o.Cluster.Debounce, o.Cluster.MaxDebounce, o.Cluster.Takeover = time.Hour, time.Hour, -1
	one, two = join(t, a, o), join(t, a, o)
	await.Until(t, "each has a stream to the other", func() bool { return coord.Knows(one, two) && coord.Knows(two, one) })
	return one, two
}

// Nodes with a stream tell each other's waiters the news that the arbiter does not tell, though
// none of them owns the key.
func TestMute_NodesTellEachOther(t *testing.T) {
	t.Parallel()
	const retry = 30 * time.Second
	one, two := unowned(t, retry)
	began := time.Now()
	for range 20 {
		l := lock(t, one, "k")
		got := make(chan coord.Lock, 1)
		go func() { got <- lock(t, two, "k") }()
		select {
		case <-l.Wanted():
		case <-time.After(retry / 2):
			t.Fatal("a holder is not told that its key is asked for")
		}
		unlock(t, l)
		select {
		case l = <-got:
		case <-time.After(retry / 2):
			t.Fatal("a waiter is not told that the key is free")
		}
		unlock(t, l)
	}
	t.Logf("%v for each turn", time.Since(began)/40)
}
