//go:build linux

package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// A hold is a lock as its holder has written it down.
type hold struct {
	Node   string
	Life   int
	Client int
	Key    string
	Mode   mode
	N      int // permits
	Fence  uint64
	From   uint64 // the token of the lock that it takes the place of, by Downgrade; 0: of none

	Asked    moment // Lock was called
	Granted  moment // it had returned
	Valid    moment // the last moment with the lock certainly in force; 0: none is known
	Ended    moment // the holder was told of the loss, or called Unlock; 0: it was killed before
	Lost     string // why, or empty
	Unlocked bool   // Unlock has returned nil
	refused  moment // the resource refused the token, asked at that moment or later
}

func (h *hold) String() string {
	text := fmt.Sprintf("%s/%d client %d with %s", h.Node, h.Life, h.Client, token(h.Fence))
	switch h.Mode {
	case reading:
		text += ", which reads"
	case counted:
		text = fmt.Sprintf("%s/%d client %d with %d permits", h.Node, h.Life, h.Client, h.N)
	}
	if h.Lost != "" {
		text += " (" + h.Lost + ")"
	}
	return text
}

// An attempt is a Lock that returned an error.
type attempt struct {
	Node          string
	Client        int
	Key           string
	Asked, Failed moment
	Patience      time.Duration
	Text          string
}

// history is the events of all nodes, as locks and attempts.
type history struct {
	holds    []*hold // in the order in which they were granted
	failed   []attempt
	unknown  int      // calls of Lock without a known end: their process was killed
	orphaned int      // holds likewise
	bad      []string // events that make no sense
	states   map[string][]event
	closed   []event
}

// opsOfALock are the operations that only a client with a lock notes.
var opsOfALock = []op{opHeld, opRefused, opLost, opDowngrade, opKept, opUnlock, opUnlocked}

type clientID struct {
	node         string
	life, client int
}

// read puts the events together: those of a client in the order in which it has written them.
func read(events []event) *history {
	h := &history{states: make(map[string][]event)}
	asked := make(map[clientID]event)
	open := make(map[clientID]*hold)
	for _, e := range events {
		id := clientID{e.Node, e.Life, e.Client}
		x := open[id]
		at := moment(e.At)
		if needs := slices.Contains(opsOfALock, e.Op) || e.From != 0; needs && (x == nil || x.Fence != cmp.Or(e.From, e.Fence)) {
			h.bad = append(h.bad, fmt.Sprintf("history: %+v without its lock", e))
			continue
		}
		switch e.Op {
		case opLock:
			asked[id] = e
		case opFailed:
			a := attempt{Node: e.Node, Client: e.Client, Key: e.Key, Asked: moment(asked[id].At), Failed: at, Text: e.Text}
			a.Patience, _ = time.ParseDuration(asked[id].Text)
			h.failed = append(h.failed, a)
			delete(asked, id)
		case opDowngrade:
			asked[id] = e
		case opKept:
			delete(asked, id)
		case opGranted:
			if e.From != 0 {
				x.Ended, x.Unlocked = cmp.Or(x.Ended, at), true
			}
			x = &hold{
				Node: e.Node, Life: e.Life, Client: e.Client, Key: e.Key, Mode: e.Mode, N: e.N, Fence: e.Fence, From: e.From,
				Asked: moment(asked[id].At), Granted: at,
			}
			open[id] = x
			h.holds = append(h.holds, x)
			delete(asked, id)
		case opHeld:
			x.Valid = max(x.Valid, moment(e.Valid))
		case opRefused:
			if x.refused == 0 {
				x.refused = at
			}
		case opLost:
			x.Lost = e.Text
			if x.Ended == 0 {
				x.Ended = at
			}
		case opUnlock:
			if x.Ended == 0 {
				x.Ended = at
			}
		case opUnlocked:
			x.Unlocked = e.Text == ""
			if e.Text != "" {
				x.Lost = e.Text
			}
			delete(open, id)
		case opState:
			h.states[e.Node] = append(h.states[e.Node], e)
		case opClosed:
			h.closed = append(h.closed, e)
		}
	}
	h.unknown, h.orphaned = len(asked), len(open)
	slices.SortFunc(h.holds, func(a, b *hold) int { return cmp.Compare(a.Granted, b.Granted) })
	return h
}

// byKey returns the holds of each key, in the order in which they were granted.
func (h *history) byKey() map[string][]*hold {
	keys := make(map[string][]*hold)
	for _, x := range h.holds {
		keys[x.Key] = append(keys[x.Key], x)
	}
	return keys
}

// violations returns all breaches of the library's guarantees.
func (h *history) violations() []string {
	bad := slices.Clone(h.bad)
	for key, holds := range h.byKey() {
		if holds[0].Mode == counted {
			bad = append(bad, tooMany(key, holds)...)
			continue
		}
		bad = append(bad, exclusion(key, holds)...)
		bad = append(bad, order(key, holds)...)
		bad = append(bad, between(key, holds)...)
	}
	for _, x := range h.holds {
		if x.refused != 0 && x.Valid > x.refused {
			bad = append(bad, fmt.Sprintf("%s: the resource refused %v, which was found in force %v later", x.Key, x, x.Valid.sub(x.refused)))
		}
	}
	slices.Sort(bad)
	return bad
}

// certain reports whether the hold was certainly in force from its grant on.
func (h *hold) certain() bool { return h.Valid >= h.Granted }

// exclusion finds two holders that were valid at the same time, each by its own account, and did
// not both read (I1).
func exclusion(key string, holds []*hold) (bad []string) {
	var writer, reader *hold // the ones that were certainly in force longest
	for _, x := range holds {
		if !x.certain() {
			continue
		}
		clash := func(last *hold) {
			if last != nil && x.Granted < last.Valid {
				bad = append(bad, fmt.Sprintf("I1: %s: %v was granted to and %v was in force %v later", key, x, last, last.Valid.sub(x.Granted)))
			}
		}
		clash(writer)
		last := &reader
		if x.Mode == writing {
			clash(reader)
			last = &writer
		}
		if *last == nil || x.Valid > (*last).Valid {
			*last = x
		}
	}
	return bad
}

// tooMany finds more permits in force at the same time than there are.
func tooMany(key string, holds []*hold) (bad []string) {
	var inForce []*hold
	for _, x := range holds {
		if !x.certain() {
			continue
		}
		inForce = append(slices.DeleteFunc(inForce, func(o *hold) bool { return o.Valid <= x.Granted }), x)
		sum := 0
		for _, o := range inForce {
			sum += o.N
		}
		if sum > semaphorePermits {
			bad = append(bad, fmt.Sprintf("I1: %s: %d permits of %d were in force when %v was granted: %v", key, sum, semaphorePermits, x, inForce))
		}
	}
	return bad
}

// order finds tokens that do not rise (I2). A lock that was asked for after the grant of another
// one has the higher token. Of two valid locks, the one that was valid later has the higher token.
// Two readers may have any.
func order(key string, holds []*hold) (bad []string) {
	byFence := slices.SortedFunc(slices.Values(holds), func(a, b *hold) int { return cmp.Compare(a.Fence, b.Fence) })
	var writers, readers earlier
	for i, x := range byFence {
		if i > 0 && byFence[i-1].Fence == x.Fence && (x.Mode == writing || byFence[i-1].Mode == writing) {
			bad = append(bad, fmt.Sprintf("I2: %s: the same token for %v and %v", key, byFence[i-1], x))
		}
		bad = append(bad, writers.before(key, x)...)
		if x.Mode == writing {
			bad = append(bad, readers.before(key, x)...)
			writers.add(x)
		} else {
			readers.add(x)
		}
	}
	return bad
}

// earlier are holds with lower tokens: the one that was asked for last, and of those that were
// valid the one that was granted last.
type earlier struct{ asked, valid *hold }

// before finds the violations if x has a higher token.
func (e *earlier) before(key string, x *hold) (bad []string) {
	if e.asked != nil && e.asked.Asked > x.Granted {
		bad = append(bad, fmt.Sprintf("I2: %s: %v was granted %v before %v was asked for", key, x, e.asked.Asked.sub(x.Granted), e.asked))
	}
	if e.valid != nil && x.certain() && e.valid.Granted > x.Valid {
		bad = append(bad, fmt.Sprintf("I2: %s: %v was valid %v before %v", key, x, e.valid.Granted.sub(x.Valid), e.valid))
	}
	return bad
}

func (e *earlier) add(x *hold) {
	if e.asked == nil || x.Asked > e.asked.Asked {
		e.asked = x
	}
	if x.certain() && (e.valid == nil || x.Granted > e.valid.Granted) {
		e.valid = x
	}
}

// between finds writers that were let in while a writer became a reader.
func between(key string, holds []*hold) (bad []string) {
	for _, x := range holds {
		if x.From == 0 {
			continue
		}
		for _, w := range holds {
			if w.Mode == writing && w.Fence > x.From && w.Fence < x.Fence {
				bad = append(bad, fmt.Sprintf("I1: %s: %v had %s before it was downgraded, and %v came between", key, x, token(x.From), w))
			}
		}
	}
	return bad
}

// calm is a time in which there was no fault, and all had recovered from the last one.
type calm struct{ from, to moment }

// unexcused finds locks that failed or were lost in calm times. A wait for longer than others may
// hold the key is not to fail.
func (h *history) unexcused(calms []calm, patience time.Duration) (bad []string) {
	in := func(from, to moment) bool {
		return slices.ContainsFunc(calms, func(c calm) bool { return c.from <= from && to <= c.to })
	}
	for _, a := range h.failed {
		quick := busy(a.Key) || strings.HasPrefix(a.Key, "once-")
		if strings.HasPrefix(a.Text, "closing") || !in(a.Asked, a.Failed) {
			continue
		}
		if timedOut := strings.Contains(a.Text, "deadline exceeded"); !timedOut || quick && a.Patience >= patience {
			bad = append(bad, fmt.Sprintf("%s: in calm times %s failed after %v: %s", a.Key, a.Node, a.Failed.sub(a.Asked), a.Text))
		}
	}
	for _, x := range h.holds {
		if x.Lost != "" && in(x.Granted, x.Ended) {
			bad = append(bad, fmt.Sprintf("%s: in calm times %v was lost", x.Key, x))
		}
	}
	return bad
}

// wasted finds locks that were lost in rounds in which none had to be.
func (h *history) wasted(rounds []*round) (bad []string) {
	for i, r := range rounds {
		if !r.Spares {
			continue
		}
		for _, x := range h.holds {
			if x.Lost != "" && x.Granted > r.Begin && x.Ended <= r.End {
				bad = append(bad, fmt.Sprintf("round %d: %s: %v was lost, though all nodes reached Redis", i+1, x.Key, x))
			}
		}
	}
	return bad
}

// longestStall returns the longest time without a grant of a key that all clients wanted all the
// time.
func longestStall(holds map[string][]*hold, from, to moment) (key string, longest time.Duration) {
	for k, all := range holds {
		if !busy(k) {
			continue
		}
		for _, gap := range gaps(all, from, to) {
			if d := gap.to.sub(gap.from); d > longest {
				key, longest = k, d
			}
		}
	}
	return key, longest
}

// busy tells whether all nodes lock and unlock a key all the time.
func busy(key string) bool { return strings.HasPrefix(key, "k") }

// gaps are the times between grants of one key, cut to those between two moments.
func gaps(holds []*hold, from, to moment) (all []calm) {
	last := from
	for _, x := range holds {
		if x.Granted <= from || x.Granted > to {
			continue
		}
		all = append(all, calm{last, x.Granted})
		last = x.Granted
	}
	return append(all, calm{last, to})
}
