package election

import (
	"cmp"
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/internal/held"
)

// A Candidate describes a process that campaigns, or that shares shards.
type Candidate struct {
	ID      string `json:"id"`
	Version string `json:"version,omitempty"` // Options.Version
	Zone    string `json:"zone,omitempty"`    // Options.Zone
}

// An Order compares two candidates for the leadership. It returns a negative number if it prefers
// a, a positive one if it prefers b, and 0 otherwise.
type Order func(a, b Candidate) int

// Newest prefers the higher Version: numbers between dots are compared as numbers, and a version
// with a suffix after a hyphen is before the same one without. The suffix after a plus does not
// count. A new deployment gets the leadership by it once, instead of once for each old process that
// ends.
func Newest(a, b Candidate) int { return compareVersions(b.Version, a.Version) }

// InZone prefers candidates with the given Zone.
func InZone(zone string) Order {
	return func(a, b Candidate) int {
		switch {
		case (a.Zone == zone) == (b.Zone == zone):
			return 0
		case a.Zone == zone:
			return -1
		}
		return 1
	}
}

// Then asks the orders in turn, until one of them has a preference.
func Then(orders ...Order) Order {
	return func(a, b Candidate) int {
		for _, o := range orders {
			if n := o(a, b); n != 0 {
				return n
			}
		}
		return 0
	}
}

func compareVersions(a, b string) int {
	a, _, _ = strings.Cut(a, "+")
	b, _, _ = strings.Cut(b, "+")
	a, preA, hasA := strings.Cut(strings.TrimPrefix(a, "v"), "-")
	b, preB, hasB := strings.Cut(strings.TrimPrefix(b, "v"), "-")
	switch n := compareDotted(a, b); {
	case n != 0:
		return n
	case hasA && !hasB:
		return -1
	case !hasA && hasB:
		return 1
	}
	return compareDotted(preA, preB)
}

func compareDotted(a, b string) int {
	for a != "" || b != "" {
		var x, y string
		x, a, _ = strings.Cut(a, ".")
		y, b, _ = strings.Cut(b, ".")
		m, errM := strconv.ParseUint(cmp.Or(x, "0"), 10, 64)
		n, errN := strconv.ParseUint(cmp.Or(y, "0"), 10, 64)
		if errM == nil && errN == nil {
			if m != n {
				return cmp.Compare(m, n)
			}
			continue
		}
		if x != y {
			return cmp.Compare(x, y)
		}
	}
	return 0
}

// win waits for the lock. With a preference it returns the candidacy, too, which has ended if there
// is an error, or an Order or a store has panicked.
func (e *Election) win(ctx context.Context) (l coord.Lock, m *membership, err error) {
	if e.opts.Prefer == nil {
		l, err = e.c.Lock(ctx, e.key)
		return l, nil, err
	}
	others, won := e.members("candidates"), false
	m, err = others.join(ctx, time.After(callTimeout))
	defer func() {
		if !won {
			m.quit()
		}
	}()
	if err == nil {
		l, err = e.winOver(ctx, others)
	}
	won = err == nil
	return l, m, err
}

// winOver waits for the lock, and gives it on while a better candidate waits for it.
func (e *Election) winOver(ctx context.Context, others *members) (coord.Lock, error) {
	gaveWay, before := false, coord.Fence(0)
	for {
		l, err := e.c.Lock(ctx, e.key)
		if err != nil {
			return l, err
		}
		now, lead := e.leads(ctx, l, others, gaveWay, before)
		if lead {
			return l, nil
		}
		gaveWay, before = true, now
		if err := l.Unlock(); err != nil {
			gaveWay = false
		}
	}
}

// leads reports whether this candidate, which has the lock, is to lead, and the fence of the last
// term. If an Order or the store panics it gives the lock back.
func (e *Election) leads(ctx context.Context, l coord.Lock, others *members, gaveWay bool, before coord.Fence) (now coord.Fence, lead bool) {
	answered := false
	defer func() {
		if !answered {
			_ = l.Unlock()
		}
	}()
	// The candidate does not wait for the store beyond ctx, or a call's time: it has the lock.
	ask, end := held.Inside(ctx, l.Context())
	defer end(nil)
	now, err := e.lastTerm(ask)
	// Lock queues in order of arrival. If no term has begun since this candidate gave way, the
	// better one was asked in between, and has not taken it.
	lead = err != nil || gaveWay && now == before || !others.anyBetter(ask)
	answered = true
	return now, lead
}

// lastTerm returns the fence of the last term that was published, 0 if none is known.
func (e *Election) lastTerm(ctx context.Context) (coord.Fence, error) {
	k, err := e.look(ctx)
	return k.fence, err
}

// anyBetter reports whether a candidate that is preferred to this one is alive.
func (s *members) anyBetter(ctx context.Context) bool {
	list, _, err := s.list(ctx)
	if err != nil {
		return false
	}
	for _, x := range list {
		if s.e.opts.Prefer(x, s.me) < 0 && !s.gone(ctx, x.ID) {
			return true
		}
	}
	return false
}
