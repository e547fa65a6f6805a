package coord

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/holdfast-go/holdfast/internal/held"
)

// A crew is the callers that wait in a flight of Share. It is the context with the flight's values:
// those of the caller that began it, but for that caller's locks and task. The flight goes on when
// that one has left, and has the locks of those callers that wait for it at this moment: they
// cannot go on before it ends. Its own locks are none of their tasks'.
//
// A flight in the background has a crew without callers.
type crew struct {
	context.Context
	x     *shares
	name  flightKey
	lock  Lock    // under which the flight runs its function; protected by x.mu, as the next two
	n     int     // callers that wait
	mated bool    // there are mates, or were
	mates []*mate // those of them that have locks, or are a flight's function; protected by matesMu
}

// A mate is a caller that waits in a flight.
type mate struct {
	locks  []holder        // that it has, the innermost first
	within *crew           // it is called by the function of this crew's flight; nil: by none
	gone   context.Context // ends when it leaves
	leave  context.CancelCauseFunc
}

// matesMu protects which callers with locks wait in which flights, of all coordinators. It is held
// for no call of another type.
var matesMu sync.Mutex

// errLeft is why a lock cannot be used any more in a flight.
var errLeft = fmt.Errorf("%w for this function: the caller of Share that has it does not wait any more", ErrUnlocked)

type crewKey struct{}

// crewOf returns the crew of the flight whose function has got the context, nil if there is none.
func crewOf(ctx context.Context) *crew {
	c, _ := ctx.Value(crewKey{}).(*crew)
	return c
}

func (c *crew) Value(key any) any {
	switch key {
	case lockerKey{}:
		return nil
	case crewKey{}:
		return c
	case heldKey:
		return (&lending{context.Background(), c.has()}).Value(key)
	}
	return c.Context.Value(key)
}

// newMate returns the mate of a caller of Share, nil if that has no locks and is no flight's
// function.
func newMate(ctx context.Context) *mate {
	var locks []holder
	for at := ctx; ; {
		h, ok := at.Value(heldKey).(holder)
		if _, lent := h.(*lending); !ok || lent { // within has the lent locks
			break
		}
		locks = append(locks, h)
		_, at = h.Held()
	}
	within := crewOf(ctx)
	if len(locks) == 0 && within == nil {
		return nil
	}
	gone, leave := context.WithCancelCause(context.Background())
	return &mate{locks, within, gone, leave}
}

// add notes that a mate waits, nil: a caller that has nothing. It reports false if the flight waits
// for the one whose function the caller is.
func (c *crew) add(m *mate) bool {
	if m == nil {
		return true
	}
	matesMu.Lock()
	defer matesMu.Unlock()
	if m.within != nil && m.within.holdsUp(c, make(map[*crew]bool)) {
		return false
	}
	c.mates = append(c.mates, m)
	return true
}

// remove is for a mate that leaves.
func (c *crew) remove(m *mate) {
	if m == nil {
		return
	}
	matesMu.Lock()
	c.mates = slices.DeleteFunc(c.mates, func(other *mate) bool { return other == m })
	matesMu.Unlock()
	m.leave(errLeft)
}

// disband is remove for all mates.
func (c *crew) disband() {
	matesMu.Lock()
	all := c.mates
	c.mates = nil
	matesMu.Unlock()
	for _, m := range all {
		m.leave(errLeft)
	}
}

// holdsUp reports whether another crew's flight waits for this one's. Flights may call each other
// in a great many ways, so each is looked at once: seen has those that were. matesMu is held.
func (c *crew) holdsUp(other *crew, seen map[*crew]bool) bool {
	if c == other {
		return true
	}
	if seen[c] {
		return false
	}
	seen[c] = true
	return slices.ContainsFunc(c.mates, func(m *mate) bool { return m.within != nil && m.within.holdsUp(other, seen) })
}

// lends reports whether a caller waits that has locks, as far as that is known without a look at
// them.
func (c *crew) lends() bool {
	matesMu.Lock()
	defer matesMu.Unlock()
	return len(c.mates) > 0
}

// A lent is a lock of a caller that waits in a flight.
type lent struct {
	h  holder
	by []context.Context // which end when it is lent no more
}

// has returns the locks of those that wait.
func (c *crew) has() []lent {
	matesMu.Lock()
	defer matesMu.Unlock()
	return c.append(nil, nil, make(map[*crew]bool))
}

// append adds the crew's locks to all. by is for how long other flights lend it. If a crew waits in
// several ways, the first one counts: seen has the crews that were added. matesMu is held.
func (c *crew) append(all []lent, by []context.Context, seen map[*crew]bool) []lent {
	if seen[c] {
		return all
	}
	seen[c] = true
	for _, m := range c.mates {
		by := append(slices.Clone(by), m.gone)
		for _, h := range m.locks {
			all = append(all, lent{h, by})
		}
		if m.within != nil {
			all = m.within.append(all, by, seen)
		}
	}
	return all
}

// lending is a context that carries locks of others.
type lending struct {
	context.Context
	all []lent
}

func (x *lending) Value(key any) any {
	if key == heldKey && len(x.all) > 0 {
		return x
	}
	return x.Context.Value(key)
}

// Held returns the first lock, and the others.
func (x *lending) Held() (Lock, context.Context) {
	l, _ := x.all[0].h.Held()
	return l, &lending{x.Context, x.all[1:]}
}

// unlent returns a holder as its owner has it, and the contexts that end when it is lent no more.
func unlent(h holder) (holder, []context.Context) {
	if x, ok := h.(*lending); ok {
		return x.all[0].h, x.all[0].by
	}
	return h, nil
}

var _ holder = (*lending)(nil)

var heldKey any = held.Key{}
