package sim

import (
	"math/rand/v2"
	"time"

	"github.com/holdfast-go/holdfast/internal/injure"
	"github.com/holdfast-go/holdfast/internal/wire"
)

// Outside counts interventions from outside of a run's processes, other than faults of all runs.
type Outside struct {
	Ticks  int // steps of servers' clocks
	Skewed int // servers that took over with another clock than the one before, where it counts
	Again  int // processes that started at the address of the one before at once
	Steps  int // of wall clocks of processes' hosts

	Asked   int // operators' calls
	Broken  int // Break calls that took something away
	Drained int // processes that were drained
}

func (x *Outside) add(y Outside) {
	x.Ticks, x.Skewed, x.Again, x.Steps = x.Ticks+y.Ticks, x.Skewed+y.Skewed, x.Again+y.Again, x.Steps+y.Steps
	x.Asked, x.Broken, x.Drained = x.Asked+y.Asked, x.Broken+y.Broken, x.Drained+y.Drained
}

// An addition is faults that some runs have besides the others.
type addition struct {
	kinds []kind        // drawn from, as [kinds]
	of    int           // one of so many runs
	every time.Duration // on average, if T were 10 s
}

var extra = []addition{
	{[]kind{again}, 3, 50 * time.Second},
	{[]kind{wall}, 4, 25 * time.Second},
	{[]kind{ask, ask, breaks, breaks, breaks, drain, rotate}, 3, 15 * time.Second},
}

// more draws the faults of an addition, if the run has it.
func (cfg Config) more(r *rand.Rand, x addition) (all []Fault) {
	if r.IntN(x.of) > 0 {
		return nil
	}
	for at := time.Duration(0); ; {
		if at += time.Duration(r.Int64N(int64(2 * cfg.t(x.every)))); at >= time.Duration(cfg.Length)*cfg.TTL {
			return all
		}
		f := Fault{At: at, Kind: x.kinds[r.IntN(len(x.kinds))], Node: r.IntN(cfg.Nodes), For: cfg.t(time.Second) + time.Duration(r.Int64N(int64(cfg.t(20*time.Second)))), Both: r.IntN(2) == 0}
		f.Other = (f.Node + 1 + r.IntN(cfg.Nodes-1)) % cfg.Nodes
		f.Some[0], f.Some[1] = r.IntN(2) == 0, r.IntN(2) == 0
		if f.Kind == wall {
			most := []time.Duration{cfg.TTL / 10, 2 * cfg.TTL, anyTime}[r.IntN(3)]
			f.Ahead = time.Duration(1+r.Int64N(most.Milliseconds())) * time.Millisecond
			if r.IntN(2) == 0 {
				f.Ahead = -f.Ahead
			}
			if !wire.Clocks {
				continue
			}
		}
		all = append(all, f)
	}
}

// apartBy is the greatest difference between two servers' clocks: M, less the drift of nodes'
// clocks in T.
func (cfg Config) apartBy() time.Duration {
	return (cfg.TTL/10 - time.Duration(cfg.Drift*float64(cfg.TTL))).Truncate(time.Millisecond)
}

// anyTime is how much the clocks of two servers may differ where they count for nothing.
const anyTime = 48 * time.Hour

// differ gives the servers that failovers lead to clocks of their own, in half of the runs, and in
// half of those clocks step. The clock of the first server is right at first.
func (cfg Config) differ(plan []Fault) []Fault {
	r := rand.New(rand.NewPCG(cfg.Seed, 4))
	if r.IntN(2) == 0 {
		return plan
	}
	if !cfg.Observed {
		plan = append(plan, cfg.more(r, addition{[]kind{tick}, 2, 40 * time.Second})...)
	}
	width := cfg.apartBy()
	if cfg.Observed {
		width = anyTime
	}
	least := -time.Duration(r.Int64N(int64(width) + 1)).Truncate(time.Millisecond)
	if r.IntN(2) == 0 {
		least = []time.Duration{-width, 0}[r.IntN(2)]
	}
	for i := range plan {
		switch plan[i].Kind {
		case failover, part, empty, tick:
		default:
			continue
		}
		ahead := time.Duration(r.Int64N(int64(width) + 1)).Truncate(time.Millisecond)
		if r.IntN(2) == 0 {
			ahead = []time.Duration{0, width}[r.IntN(2)]
		}
		plan[i].Ahead = least + ahead
	}
	return plan
}

// another is called with swap held when a server has become another one.
func (s *server) another() {
	if s.books == nil {
		injure.Ahead(s.Memory, false, s.next)
	}
	if s.next != s.clock && s.books == nil { // or it counts for nothing
		*s.skewed++
	}
	s.clock, s.next = s.next, 0
}

// tick makes the clocks of all servers step.
func (s *server) tick(to time.Duration) {
	s.swap.Lock()
	defer s.swap.Unlock()
	injure.Ahead(s.Memory, true, to)
	s.clock, s.ticked = to, time.Now()
}

// slip returns by how much earlier a Grace may end, as the server's clock has stepped forward in
// it. swap is held.
func (w *world) slip() time.Duration {
	if t := w.s.ticked; t.IsZero() || time.Since(t) > 2*w.s.grace {
		return 0
	}
	return w.cfg.apartBy()
}
