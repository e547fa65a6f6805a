package sim

import (
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/internal/wire"
)

// won is an epoch of a partition.
type won struct{ partition, epoch uint32 }

// saidDead is called at the moment when the arbiter says that a session is dead: its node must have known (I3).
func (w *world) saidDead(id string) {
	for _, s := range w.running() {
		if mine, until := wire.Session(s.c); mine == id && s.h.read().Before(until) {
			w.h.say("I3: the arbiter says that session %.4s of %v is dead, %v before its own clock does", id, s, until.Sub(s.h.read()))
		}
	}
}

// acquired is called at the moment when a partition is given to a session: nobody else was ever given it at that epoch (I6), and
// nobody else may grant its keys (I4).
func (w *world) acquired(partition, epoch uint32, by string) {
	w.mu.Lock()
	e := won{partition, epoch}
	before := w.epochs[e]
	w.epochs[e] = by
	w.mu.Unlock()
	if before != "" && before != by {
		w.h.say("I6: partition %d is given to session %.4s at epoch %d, and was to %.4s", partition, by, epoch, before)
	}
	for _, s := range w.running() {
		if mine, _ := wire.Session(s.c); mine == by {
			continue
		}
		if old, until := wire.Serves(s.c, partition); s.h.read().Before(until) {
			w.h.say("I4: partition %d is given to session %.4s at epoch %d, and %v serves it at %d for another %v", partition, by, epoch, s, old,
				until.Sub(s.h.read()))
		}
	}
}

// running is the processes that may grant anything at this moment.
func (w *world) running() (list []*start) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, s := range w.starts {
		if s.dead.Load() || s.leaving.Load() || s.h.left() > 0 {
			continue
		}
		select {
		case <-s.ready:
			if s.c != nil {
				list = append(list, s)
			}
		default:
		}
	}
	return list
}

// now is since when the world exists.
func (w *world) now() time.Duration { return time.Since(w.begin) }

func (s *start) String() string { return fmt.Sprintf("node %d, start %d", s.n.number, s.number) }
