package fallback

import (
	"maps"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/internal/guard"
)

// An observer judges by its own clock the sessions and Graces of a store without a clock. A record
// tells that something began or goes on by a beat: a number that changes with each renewal, and
// with each Grace. For as long as an observer sees the same beat, it counts, from its first look at
// it, by its own monotonic clock. Its conclusion takes effect by a compare-and-set on the record
// with that beat.
//
// That is safe: a renewal that was acknowledged to a session was executed before the look, so it
// was sent before. Only the rates of clocks matter, which Margin allows for. Rules and guards are
// in internal/model (Observed).
type observer struct {
	began time.Time // of its clock

	mu    sync.Mutex // protects the fields below
	seen  map[string]sighting
	first int64 // look at the table of sessions; 0: none yet
}

// A sighting is a beat, and since when it was seen, by the observer's clock. highest is the
// highest one that was seen before: it is of data that the store has lost, if it is above beat.
type sighting struct {
	beat, since, highest int64
}

func newObserver() *observer { return &observer{began: time.Now(), seen: make(map[string]sighting)} }

// now is the observer's clock, in Unix milliseconds. It is set by the wall clock once, and goes
// on by the monotonic one.
func (o *observer) now() int64 { return o.began.UnixMilli() + time.Since(o.began).Milliseconds() }

// A span is when a look was made, by the observer's clock: it was sent at from, and answered at to.
type span struct{ from, to int64 }

// see returns since when a thing has had a beat. older says that it has had a later one: the store
// has older data. That is not so of a look that was sent before the later beat was seen. The count
// begins anew with an older beat as well: its session may have ended before the loss.
func (o *observer) see(thing string, beat int64, at span) (since int64, older bool) {
	x, ok := o.seen[thing]
	switch {
	case !ok || beat > x.beat:
		if !ok || guard.SameBeat {
			x.since = at.to
		}
		x.beat = beat
	case beat < x.beat && at.from < x.since:
		return x.since, false
	case beat < x.beat:
		x = sighting{beat, at.to, max(x.beat, x.highest)}
	}
	o.seen[thing] = x
	return x.since, beat < x.highest
}

// wrote notes a beat that this process has written.
func (o *observer) wrote(thing string, beat int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if x, ok := o.seen[thing]; !ok || beat > x.beat {
		o.seen[thing] = sighting{beat, o.now(), x.highest}
	}
}

// next returns a beat for a thing after those that were seen. Its low bits are random: whatever a
// store forgets, no beat is used twice.
func (o *observer) next(thing string, beat int64) int64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !guard.BeatUnique {
		return (beat>>beatNoise + 1) << beatNoise
	}
	x := o.seen[thing]
	return (max(beat, x.beat, x.highest)>>beatNoise+1)<<beatNoise | rand.Int64N(1<<beatNoise)
}

const beatNoise = 16

func memberThing(id string) string { return "m" + id }

// members sets the expiries of a table's members.
func (o *observer) members(s *Sessions, at span) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.first == 0 {
		o.first = at.to
	}
	for id, x := range s.Members {
		if x.TTL == 0 { // it was buried
			x.Expiry, _ = o.see("b"+id, 1, at)
			s.Members[id] = x
			continue
		}
		since, older := o.see(memberThing(id), x.Beat, at)
		x.Expiry, x.Older = since+x.TTL, older
		s.Members[id] = x
	}
	if len(o.seen) > 4*len(s.Members)+sightingsKept {
		maps.DeleteFunc(o.seen, func(thing string, _ sighting) bool {
			_, there := s.Members[thing[1:]]
			return thing[0] != 'g' && !there
		})
	}
}

const sightingsKept = 1000

// looked reports whether all sessions of a table that had ended when this process came are known to
// have by now. With a store's clock they are.
func (o *observer) looked(m Moment, s *Sessions) bool {
	if o == nil {
		return true
	}
	longest := int64(0)
	for _, x := range s.Members {
		longest = max(longest, x.TTL)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	return m.Now >= o.first+longest && s.GraceEnd == 0
}

// A storedGrace is a Grace in a record of a store without a clock: each process counts its length
// from when it has first seen it.
type storedGrace struct {
	Beat   int64 `json:"graceBeat,omitempty"` // random; 0: the record is not in Grace
	Length int64 `json:"graceFor,omitempty"`  // milliseconds
}

// grace returns when the Grace of a record ends.
func (o *observer) grace(key string, g storedGrace, at span) (end int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	thing := "g" + key
	if g.Beat == 0 {
		delete(o.seen, thing)
		return 0
	}
	x, ok := o.seen[thing]
	if !ok || x.beat != g.Beat {
		x = sighting{beat: g.Beat, since: at.to}
		if !guard.GraceLook {
			x.since -= g.Length
		}
		o.seen[thing] = x
	}
	return x.since + g.Length
}

// graceAfter returns the storedGrace of a record's Grace that ends at end. was is the stored one,
// and ended at wasEnd. anew says that the server is another one: then it is another Grace, though
// this process may have seen the one before just now. Others have counted that one for longer.
func (o *observer) graceAfter(key string, was storedGrace, wasEnd, end, now int64, anew bool) storedGrace {
	switch {
	case end == 0:
		return storedGrace{}
	case was.Beat != 0 && (end <= wasEnd && !anew || !guard.GraceAnew):
		return was
	}
	g := storedGrace{1 + rand.Int64N(1<<62), end - now}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.seen["g"+key] = sighting{beat: g.Beat, since: now} // if it is not written, it is never seen
	return g
}
