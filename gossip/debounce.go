package gossip

import (
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/ring"
)

// A debounce decides when a membership counts. It is told of every membership, with the time, and
// asked for the due one: no goroutines, no clock.
//
// A membership that differs from the settled one is settled when nothing has changed for quiet, but
// not later than most after the first difference: a node that comes and goes every second must not
// keep all others from settling. When the membership is again as settled, nothing is due.
type debounce struct {
	self        string // the node
	quiet, most time.Duration

	// held: the node has not yet looked for others, so the nodes that it sees are not the
	// membership. The limit is most here too: with the arbiter and all seeds out of reach, it has
	// to go on alone.
	held    bool
	settled bool
	value   []string // as settled; sorted, like all memberships here
	seen    []string

	// Until something is settled: whether another node has placed this one, when the node had
	// looked for others, and when others came that were not among them.
	joined   bool
	released time.Time
	came     map[string]time.Time

	pending     bool // something has to be settled: seen differs from value, or nothing was settled so far
	first, last time.Time
}

func newDebounce(quiet, most time.Duration, now time.Time) *debounce {
	return &debounce{quiet: quiet, most: most, came: make(map[string]time.Time), held: true, pending: true, first: now, last: now}
}

// release says that the node has looked for others.
func (d *debounce) release(now time.Time) {
	if d.held {
		d.held, d.last, d.released = false, now, now
	}
}

// observe says which membership there is. It keeps members.
func (d *debounce) observe(now time.Time, members []string) {
	if slices.Equal(members, d.seen) {
		return
	}
	for _, name := range members {
		if !d.settled && !d.held && now.Sub(d.released) > d.quiet/4 && name != d.self && !slices.Contains(d.seen, name) {
			d.came[name] = now
		}
	}
	d.seen = members
	switch {
	case d.settled && slices.Equal(members, d.value):
		d.pending = false
		return
	case !d.pending:
		d.pending, d.first = true, now
	}
	d.last = now
}

// due returns when to settle; false if there is nothing to settle.
func (d *debounce) due() (time.Time, bool) {
	if !d.pending {
		return time.Time{}, false
	}
	at, latest := d.last.Add(d.quiet), d.first.Add(d.most)
	if d.held || at.After(latest) {
		return latest, true
	}
	return at, true
}

// drop takes members out of the settled membership that are known to be gone, and returns it: their
// partitions are free, so there is nothing to wait for. If the process of such a member has started
// again under its name, it takes that place at once. Only a change that makes others give
// partitions away waits until nothing changes. A member that is there all the same is a new one. It
// reports false if there is none that is gone.
func (d *debounce) drop(now time.Time, gone func(name string) bool) ([]string, bool) {
	if !d.settled || !slices.ContainsFunc(d.value, gone) {
		return nil, false
	}
	value := make([]string, 0, len(d.value))
	for _, name := range d.value {
		if !gone(name) {
			value = append(value, name)
		} else if again := d.again(name); again != "" && !slices.Contains(value, again) {
			value = append(value, again)
		}
	}
	slices.Sort(value)
	d.value = value
	switch {
	case slices.Equal(d.seen, d.value):
		d.pending = false
	case !d.pending:
		d.pending, d.first, d.last = true, now, now
	}
	return d.value, true
}

// join says that another node has placed this one, so the first membership settles at once: others
// count on this node already. They have not settled nodes that came within quiet, so neither does
// this one yet.
func (d *debounce) join(now time.Time) {
	if !d.settled && !d.held {
		d.first, d.joined = now.Add(-d.most), true
	}
}

// again returns the node that a process is since it has started again, "" if there is none.
func (d *debounce) again(name string) string {
	for _, other := range d.seen {
		if other != name && ring.Process(other) == ring.Process(name) && !slices.Contains(d.value, other) {
			return other
		}
	}
	return ""
}

// settle returns the membership that counts from now on, if it is time.
func (d *debounce) settle(now time.Time) ([]string, bool) {
	if at, ok := d.due(); !ok || now.Before(at) {
		return nil, false
	}
	value := d.seen
	if d.joined && !d.settled {
		value = slices.DeleteFunc(slices.Clone(d.seen), func(name string) bool {
			came, later := d.came[name]
			return later && now.Sub(came) < d.quiet
		})
		if len(value) < 2 { // all have come late: this node has, to them
			value = d.seen
		}
	}
	d.held, d.settled, d.value = false, true, value
	d.pending, d.first = len(value) < len(d.seen), now
	clear(d.came)
	return d.value, true
}
