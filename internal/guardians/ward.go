package guardians

import (
	"maps"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/internal/guard"
)

// Set is the guardians of a session, by version. No version is used for two sets (G1).
type Set struct {
	Version uint32
	Members []string // sessions
}

// Ping asks a guardian for a promise (G2).
type Ping struct {
	Seq  uint64
	Sets []Set // the recorded one, and the one that is to follow it
}

// Pong is a guardian's promise. It is worth nothing for versions up to Voted: the guardian has
// voted for them that the session is dead.
type Pong struct {
	Seq   uint64
	Voted uint32
}

// Phase is the progress of a session's change of guardians.
type Phase byte

// Phases.
const (
	Settled    Phase = iota // the recorded set alone counts
	Collecting              // promises of the next set, before it is asked for
	Asked                   // the arbiter may have recorded the next set: both count
)

func (p Phase) String() string { return [...]string{"settled", "collecting", "asked"}[p] }

// Ward is a session's knowledge of its guardians' promises and sets.
type Ward struct {
	times          Times
	recorded, next Set
	phase          Phase
	used           uint32 // the last version given to a set
	seq            uint64
	pings          []sentPing
	promises       map[string]promise
	announced      Instant
	lapsed         bool
}

type sentPing struct {
	seq      uint64
	guardian string
	at       Instant
	version  uint32 // the latest that it names
}

type promise struct {
	until Instant
	voted uint32
	knows uint32 // the latest version that a ping named which was answered
}

// NewWard returns that of a session without guardians.
func NewWard(t Times) *Ward { return &Ward{times: t, promises: make(map[string]promise)} }

// Propose begins to collect promises of a set that is to follow the recorded one. It reports false,
// and does nothing, while the arbiter may have recorded an earlier proposal: that one has to be
// asked for until it is answered (G7).
func (w *Ward) Propose(members []string) bool {
	if w.phase == Asked {
		return false
	}
	w.used++
	w.next, w.phase = Set{w.used, slices.Clone(members)}, Collecting
	return true
}

// Sets returns the recorded set, and the next one, which is zero if the Phase is Settled.
func (w *Ward) Sets() (recorded, next Set, p Phase) { return w.recorded, w.next, w.phase }

// Guardians returns all that are to be pinged.
func (w *Ward) Guardians() []string {
	all := slices.Clone(w.recorded.Members)
	if w.phase != Settled {
		all = append(all, w.next.Members...)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// Ping returns the next ping for a guardian. now has to be read before the ping is sent.
func (w *Ward) Ping(guardian string, now Instant) Ping {
	w.seq++
	// Promises of pings that are older than Valid have passed.
	w.pings = slices.DeleteFunc(w.pings, func(p sentPing) bool { return now-p.at >= w.times.Valid() })
	p := Ping{Seq: w.seq}
	if w.recorded.Version != 0 {
		p.Sets = append(p.Sets, w.recorded)
	}
	if w.phase != Settled {
		p.Sets = append(p.Sets, w.next)
	}
	w.pings = append(w.pings, sentPing{w.seq, guardian, now, max(w.recorded.Version, w.next.Version)})
	return p
}

// Promised takes a guardian's answer to a ping, which counts from when that was sent (G2). One that
// comes after the session's end changes nothing.
func (w *Ward) Promised(guardian string, a Pong, now Instant) {
	i := slices.IndexFunc(w.pings, func(p sentPing) bool { return p.seq == a.Seq && p.guardian == guardian })
	if i < 0 || !w.Alive(now) {
		return
	}
	p, at := w.promises[guardian], w.pings[i].at
	if !guard.PingSent {
		at = now
	}
	w.promises[guardian] = promise{max(p.until, at+w.times.Valid()), max(p.voted, a.Voted), max(p.knows, w.pings[i].version)}
	w.pings = slices.Delete(w.pings, i, i+1)
}

// Promise returns until when a guardian's promise counts, and the version that it had voted for by
// then.
func (w *Ward) Promise(guardian string) (until Instant, voted uint32) {
	p := w.promises[guardian]
	return p.until, p.voted
}

// covered returns until when enough members of a set have promised.
func (w *Ward) covered(s Set) Instant {
	return w.enough(s, func(g string) Instant { return w.promises[g].until })
}

// hoped is covered, as if all pings that are under way had been answered.
func (w *Ward) hoped(s Set) Instant {
	return w.enough(s, func(g string) Instant {
		end := w.promises[g].until
		for _, p := range w.pings {
			if p.guardian == g {
				end = max(end, p.at+w.times.Valid())
			}
		}
		return end
	})
}

// enough returns the end that enough members of a set reach.
func (w *Ward) enough(s Set, until func(guardian string) Instant) Instant {
	if len(s.Members) == 0 {
		return Forever
	}
	ends := make([]Instant, 0, Max)
	for _, g := range s.Members {
		if w.promises[g].voted < s.Version || !guard.VoteFinal {
			ends = append(ends, until(g))
		}
	}
	need, _ := Quorum(len(s.Members))
	if len(ends) < need {
		return 0
	}
	slices.Sort(ends)
	return ends[len(ends)-need]
}

// Until returns until when the guardians' promises make the session valid (G3): Forever if it has
// none, in the past if it is not. The session's lease limits it as well.
func (w *Ward) Until() Instant {
	if w.lapsed {
		return 0
	}
	end := w.covered(w.recorded)
	switch {
	case w.phase != Asked || !guard.NextCounts:
		return end
	case !guard.BothCount:
		return w.covered(w.next)
	}
	return min(end, w.covered(w.next))
}

// Alive reports whether the session is valid, as far as its guardians are concerned. Once it is
// not, it never is again.
func (w *Ward) Alive(now Instant) bool {
	if !w.lapsed && now >= w.Until() {
		w.lapsed = true
	}
	return !w.lapsed
}

// Bound returns the latest deadline that may be announced to a holder now (G4), where the session's
// lease ends at leaseEnds. It is at most Valid from now, guardians or not: else a first set could
// not be asked for before an announcement of the lease's length has passed. While promises are
// collected they bound it as well, and as long as these are too few those that the pings under way
// ask for: so the answers to these cover all announcements. Pings that have not been repeated in
// time bound nothing.
func (w *Ward) Bound(leaseEnds, now Instant) Instant {
	if !w.Alive(now) {
		return now
	}
	end := min(leaseEnds, w.Until())
	if guard.Capped {
		end = min(end, now+w.times.Valid())
	}
	if w.phase == Collecting {
		c := w.covered(w.next)
		if hoped := w.hoped(w.next); c <= now && hoped > now+w.times.Valid()-w.times.Promise/4 {
			c = hoped
		}
		if c > now {
			end = min(end, c)
		}
	}
	return max(end, now)
}

// Announce is Bound for a deadline that is told to a holder. The holder counts the time left from
// when it sent its question. now has to be read after that question was received: no earlier
// reading will do.
func (w *Ward) Announce(leaseEnds, now Instant) (left time.Duration) {
	end := w.Bound(leaseEnds, now)
	if end > now {
		w.announced = max(w.announced, end)
	}
	return end - now
}

// Relied notes a deadline that holders of this process may count on though no promise bounds it: a
// session without guardians needs no promise. Ask waits until promises cover it.
func (w *Ward) Relied(until Instant) { w.announced = max(w.announced, until) }

// Ask reports whether the proposed set is to be asked for, from now on, with each renewal: its
// members' promises cover all announced deadlines, which rest on the recorded set (G7). Each of
// them knows the set: an earlier promise would do for that. But if the session hears nothing any
// more, no guardian votes for a set that it has not heard of. A deadline that is up to Noise
// later than the next set's promises is covered.
func (w *Ward) Ask(now Instant) bool {
	if w.phase != Collecting || !w.Alive(now) {
		return false
	}
	for _, g := range w.next.Members {
		if w.promises[g].knows < w.next.Version && guard.SetKnown {
			return false
		}
	}
	if c := w.covered(w.next); c <= now || c < w.announced-w.times.Noise && guard.Covered {
		return false
	}
	w.phase = Asked
	return true
}

// Names returns the set that each renewal has to name (G8). The arbiter keeps a later one.
func (w *Ward) Names() Set {
	switch {
	case w.phase == Asked && guard.NamesNext:
		return w.next
	case !guard.NamesSet:
		return Set{}
	}
	return w.recorded
}

// Recorded takes the version that an answer to a renewal says is recorded. It returns the guardians
// that are none any more: a last ping, which may get lost, tells them so, and they need not vote
// for a version that is over. An answer is soon if its server may have taken over less than delta
// ago: then the one before may bury the session for its earlier set yet, and both sets go on to
// count (G7).
func (w *Ward) Recorded(version uint32, soon bool, now Instant) (dropped []string) {
	if w.phase != Asked || version != w.next.Version || soon && guard.Silenced || !w.Alive(now) {
		return nil
	}
	for _, g := range w.recorded.Members {
		if !slices.Contains(w.next.Members, g) {
			dropped = append(dropped, g)
		}
	}
	w.recorded, w.next, w.phase = w.next, Set{}, Settled
	maps.DeleteFunc(w.promises, func(_ string, p promise) bool { return p.until <= now })
	return dropped
}

// End ends the session, as its lease has ended.
func (w *Ward) End() { w.lapsed = true }
