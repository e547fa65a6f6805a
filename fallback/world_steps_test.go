package fallback_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/takes"
)

// verify: all nodes look at the new server and reclaim the records that it lacks or has older.
func (w *world) verify() {
	if w.inStep {
		return
	}
	w.inStep = true
	steps := []func(){func() {
		s := w.serving
		if s == nil {
			return
		}
		var v fallback.Verdict
		w.change("reclaim", fallback.Identity{}, func() { v = w.p.ReclaimOwner(w.now, s.session, s.epoch).Verdict })
		if v != fallback.Granted {
			w.serving = nil
			w.adopt(s.epoch)
		}
	}}
	for key, h := range w.holds {
		steps = append(steps, func() {
			if w.holds[key] != h || !h.confirmed {
				return // the owner announces it
			}
			var v fallback.Verdict
			w.change("reclaim", fallback.Identity{}, func() { v = w.p.ReclaimRow(w.now, key, h.Row) })
			if v != fallback.Granted {
				delete(w.holds, key)
			}
		})
	}
	w.rand.Shuffle(len(steps), func(i, j int) { steps[i], steps[j] = steps[j], steps[i] })
	for _, step := range steps {
		step()
	}
}

// pass: time goes by; Grace is long enough for all nodes to verify.
func (w *world) pass(ms int64) {
	if !w.inStep && w.now.Now+ms >= w.p.GraceEnd {
		w.verify()
	}
	w.now.Now += ms
}

func (w *world) step() {
	session, key := pick(w, w.alive), pick(w, worldKeys)
	switch n := w.rand.IntN(100); {
	case n < 30:
		w.lock(session, key)
	case n < 45:
		w.release(key)
	case n < 50:
		w.giveUp(session, key)
	case n < 58:
		w.acquire(session)
	case n < 64:
		w.demote()
	case n < 68:
		w.demoteUnserved()
	case n < 72:
		w.adoptOne(key)
	case n < 74:
		w.kill(session)
	case n < 76:
		w.crash()
	case n < 79:
		w.verify()
	case n < 82:
		w.copies = append(w.copies, w.p.Clone())
		w.copies = w.copies[max(0, len(w.copies)-4):]
	case n < 87:
		if len(w.late) > 0 {
			pick(w, w.late)()
		}
	default:
		w.pass(w.rand.Int64N(1500))
	}
}

// end: when no more faults come every key can be granted again (I8), and when all is given back
// nothing is left.
func (w *world) end() {
	w.calm = true
	w.verify()
	w.pass(quiet.Milliseconds())
	w.demote()
	for _, key := range worldKeys {
		w.release(key)
		for _, session := range w.alive {
			w.giveUp(session, key) // it may have been granted by an unheard message
		}
	}
	w.demoteUnserved()
	if w.dead[w.p.Owner] {
		w.acquire(w.alive[0])
		w.demote()
	}
	for _, key := range worldKeys {
		for range 50 {
			if w.lock(w.alive[0], key); w.holds[key] != nil {
				break
			}
			w.pass(fallback.PromiseFor.Milliseconds())
		}
		if w.holds[key] == nil {
			w.t.Fatalf("I8: %q cannot be granted any more: %+v", key, w.p)
		}
		w.release(key)
	}
	for who, key := range w.issued {
		w.unlock(key, who)
	}
	if len(w.p.Rows) != 0 || len(w.p.Queues) != 0 {
		w.t.Fatalf("left behind: rows %v, queues %v", w.p.Rows, w.p.Queues)
	}
}

func runWorld(t *testing.T, seed uint64, steps int) {
	w := newWorld(t, seed)
	for range steps {
		w.step()
	}
	w.end()
}

func TestWorlds(t *testing.T) {
	takes.Seconds(t)
	t.Parallel()
	begin, first := time.Now(), rand.Uint64()
	for i := range uint64(3000) {
		if testing.Short() && i >= 100 || time.Since(begin) > 5*time.Second {
			t.Logf("%d worlds", i)
			return
		}
		t.Run(fmt.Sprint("seed ", first+i), func(t *testing.T) { runWorld(t, first+i, 300) })
		if t.Failed() {
			return
		}
	}
}

func FuzzWorld(f *testing.F) {
	for seed := range uint64(50) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) { runWorld(t, seed, 300) })
}
