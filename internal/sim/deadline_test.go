package sim

import (
	"context"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/wire"
)

// A process that stood still may ask for a lock's context before its timers have fired: the lock is
// not in force, and the context has ended, whatever the mode.
func TestScenarios_AContextIsAskedForPastItsDeadline(t *testing.T) {
	if !wire.Clocks {
		t.Skip("nodes have clocks of their own with the build tag simulation only")
	}
	r := simulate(t, Config{Seed: 1, TTL: 10 * time.Second, Nodes: 2, Keys: 1, script: func(w *world) {
		time.Sleep(15 * time.Second)
		s := w.nodes[1].now
		l, err := s.c.Lock(context.Background(), "written")
		if err != nil {
			w.h.say("Lock: %v", err)
			return
		}
		read, err := s.c.RLock(context.Background(), "read")
		if err != nil {
			w.h.say("RLock: %v", err)
			return
		}
		permits, err := s.c.Semaphore("counted", 3).Acquire(context.Background(), 1)
		if err != nil {
			w.h.say("Acquire: %v", err)
			return
		}
		contexts := map[string]func() context.Context{"Lock": l.Context, "ReadLock": read.Context, "Permits": permits.Context}
		for mode, of := range contexts {
			if err := of().Err(); err != nil {
				w.h.say("%s: %v", mode, err)
			}
		}
		s.h.clock.mu.Lock()
		s.h.clock.begin, s.h.clock.rate = time.Now().Add(-time.Hour), 2 // which makes it an hour later
		s.h.clock.mu.Unlock()
		for mode, of := range contexts {
			if of().Err() == nil {
				w.h.say("the context of a %s has not ended at its deadline", mode)
			}
		}
		s.h.clock.mu.Lock()
		s.h.clock.rate = 1
		s.h.clock.mu.Unlock()
		_, _, _ = l.Unlock(), read.Unlock(), permits.Release()
	}})
	for _, bad := range r.Bad {
		t.Error(bad)
	}
}
