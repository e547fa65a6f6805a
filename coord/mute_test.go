package coord_test

import (
	"context"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
)

// A muteArbiter delivers no messages, as most stores, and says so.
type muteArbiter struct{ fallback.Arbiter }

type muteSpace struct{ fallback.Namespace }

func (a muteArbiter) Attach(ctx context.Context, s fallback.Settings) (fallback.Namespace, error) {
	n, err := a.Arbiter.Attach(ctx, s)
	if err != nil {
		return nil, err
	}
	return muteSpace{n}, nil
}

func (muteSpace) Mute() bool { return true }

func (muteSpace) Listen(context.Context, string, func(fallback.Message)) (func(), error) {
	return func() {}, nil
}

// A process that comes again while a hold of its own is on its way back need not wait for a message that never comes.
func TestMute_TheSameProcessComesAgain(t *testing.T) {
	for _, linger := range []time.Duration{-1, 0} {
		for _, rest := range []time.Duration{0, 5 * time.Millisecond, 7 * time.Millisecond} { // a hold lingers for 5 to 10 ms by default
			bubble(t, func(t *testing.T, a *fallback.Memory) {
				f := &faulty{Arbiter: a}
				c := start(t, muteArbiter{f}, &coord.Options{Handoff: coord.Handoff{Linger: linger}})
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
		one, two := start(t, muteArbiter{a}, o()), start(t, muteArbiter{a}, o())
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
