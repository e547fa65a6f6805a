package history

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// forever is the return time of an operation without a known one.
const forever = time.Duration(math.MaxInt64)

// A subject has a history of its own: a key that is locked, or one of a semaphore.
type subject struct {
	key     string
	counted bool
}

func (s subject) String() string {
	if s.counted {
		return fmt.Sprintf("semaphore %q", s.key)
	}
	return fmt.Sprintf("%q", s.key)
}

func (s subject) compare(o subject) int {
	return strings.Compare(s.String(), o.String())
}

// A mode is the mode of a hold.
type mode int

const (
	alone mode = iota
	shared
	counted // permits
)

// A step is an operation as a model sees it.
type step struct {
	do    stepKind
	mode  mode // of the hold
	hold  int  // which, of all
	to    int  // of a turn: the hold that takes its place
	n, of int  // permits of the hold
	rec   Record

	// The earliest and the latest time of the operation. For a loss these are not the recorded
	// ones if the process was paused.
	call, ret time.Duration
}

type stepKind int

const (
	take stepKind = iota
	see
	free // by an Unlock that returned nil: nothing else had ended the hold
	turn // the same by a Downgrade: another hold takes its place
	lose // by anything else
)

func (s stepKind) String() string {
	return [...]string{"granted", "in force", "unlocked", "downgraded", "over"}[s]
}

// hold is a lock from its grant to its end.
type hold struct {
	number int
	of     subject
	mode   mode
	take   step
	seen   []step
	ends   []step
	before *hold // which it took the place of by a Downgrade; nil: none
}

func newHold(number int, r Record) *hold {
	h := &hold{number: number, of: subject{r.Key, r.Op.counted()}, take: step{do: take, rec: r, call: r.Call, ret: r.Return}}
	switch {
	case r.Op.counted():
		h.mode = counted
	case r.Op.shared():
		h.mode = shared
	}
	return h
}

// steps returns those of the hold. Its grant is not among them if it is the end of the hold before,
// which is one step then.
func (h *hold) steps() []step {
	all := slices.Concat(h.seen, h.end())
	if h.before == nil || !slices.ContainsFunc(h.before.ends, func(s step) bool { return s.to == h.number }) {
		all = append(all, h.take)
	}
	for i := range all {
		s := &all[i]
		s.hold, s.mode, s.n, s.of = h.number, h.mode, h.take.rec.Permits, h.take.rec.Of
	}
	return all
}

// lastSeen is when it was in force, for the last time that is known.
func (h *hold) lastSeen() time.Duration {
	t := h.take.call
	for _, s := range h.seen {
		t = max(t, s.call)
	}
	return t
}

// lost makes the hold end at some time between two moments.
func (h *hold) lost(from, until time.Duration, by Record) {
	h.ends = append(h.ends, step{do: lose, rec: by, call: min(from, until), ret: until})
}

// steps turns records into steps for models, by key, in order of the calls. Refused calls are left
// out, as they have not changed anything: a TryLock may be refused though the lock is free, for it
// takes a while until all know. So is a Lock that may have been granted or not: it was not used.
func steps(records []Record) (map[subject][]step, error) {
	holds := make(map[id]*hold)
	var order []*hold
	processes := make(map[string][]*hold)
	for _, r := range records {
		if r.Op.Takes() && !r.Unknown && !r.Refused {
			h := newHold(len(order)+1, r)
			holds[id{r.Process, r.ID}] = h
			order = append(order, h)
			processes[r.Process] = append(processes[r.Process], h)
		}
	}
	var happened []Record // to processes
	for _, r := range records {
		switch r.Op {
		case Paused, Gone:
			happened = append(happened, r)
			continue
		case Downgrade, Seen, Unlock, Lost:
		default:
			if r.Op.Takes() {
				continue
			}
			return nil, fmt.Errorf("history: record %d of %s is about %q", r.ID, r.Process, r.Op)
		}
		h := holds[id{r.Process, r.Hold}]
		if h == nil || h.of.key != r.Key || r.Op == Downgrade && h.mode != alone {
			return nil, fmt.Errorf("history: record %d of %s is about a lock that was not granted", r.ID, r.Process)
		}
		switch {
		case r.Op == Seen:
			h.seen = append(h.seen, step{do: see, rec: r, call: r.Call, ret: r.Return})
		case r.Unknown || r.Refused:
		case r.Op == Unlock:
			h.ends = append(h.ends, step{do: free, rec: r, call: r.Call, ret: r.Return})
		case r.Op == Downgrade:
			next := holds[id{r.Process, r.ID}]
			next.before = h
			h.ends = append(h.ends, step{do: turn, to: next.number, rec: r, call: r.Call, ret: r.Return})
		}
	}
	for _, r := range records {
		if r.Op == Unlock && (r.Unknown || r.Refused) || r.Op == Lost {
			h := holds[id{r.Process, r.Hold}]
			until := r.Return
			if r.Unknown {
				until = forever
			}
			h.lost(h.lastSeen(), until, r)
		}
	}
	slices.SortStableFunc(happened, func(a, b Record) int { return cmp.Compare(a.Call, b.Call) })
	for _, r := range happened {
		for _, h := range processes[r.Process] {
			if r.Op == Gone {
				h.gone(r)
			} else {
				h.paused(r)
			}
		}
	}
	subjects := make(map[subject][]step)
	for _, h := range order {
		subjects[h.of] = append(subjects[h.of], h.steps()...)
	}
	for _, all := range subjects {
		slices.SortStableFunc(all, func(a, b step) int { return cmp.Compare(a.call, b.call) })
	}
	return subjects, nil
}

// gone ends a hold after its process was killed.
func (h *hold) gone(r Record) {
	for _, e := range h.ends {
		if e.ret != forever {
			return
		}
	}
	h.lost(h.lastSeen(), r.Return, r)
}

// paused is about a hold of a process that stood still. Meanwhile the hold may have ended without
// the process's noticing. Right after it the process may have used the hold, or unlocked it, before
// it had looked at the clock. Tokens guard against this; it is no mistake of the lock. If the hold
// was seen to be in force later on, it never ended.
func (h *hold) paused(r Record) {
	if h.take.call > r.Return || h.lastSeen() > r.Return {
		return
	}
	over := forever
	for _, e := range h.ends {
		if e.ret < r.Call || e.do != lose && e.call > r.Return {
			return
		}
		over = min(over, e.ret)
	}
	h.seen = slices.DeleteFunc(h.seen, func(s step) bool { return s.ret > r.Call })
	h.ends = nil
	h.lost(h.lastSeen(), over, r)
}

// end returns the hold's ends. There is one if everything is as it should be: of several losses it
// is the intersection. An Unlock or a Downgrade that returned nil is none of them: a lock must not
// be lost and unlocked.
func (h *hold) end() (ends []step) {
	var loss *step
	for _, e := range h.ends {
		switch {
		case e.do != lose:
			ends = append(ends, e)
		case loss == nil:
			loss = &e
		default:
			loss.call, loss.ret = max(loss.call, e.call), min(loss.ret, e.ret)
		}
	}
	if loss != nil {
		ends = append(ends, *loss)
	}
	return ends
}
