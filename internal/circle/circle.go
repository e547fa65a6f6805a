// Package circle finds callers that wait for each other in a circle. It is pure: the waits of all
// processes come in, and circles come out.
//
// A wait is known with the holds that its caller has. It waits for the callers that have the holds
// in its way, and these may be waits, too. A hold of a caller that does not wait will end, so it
// makes no circle.
package circle

import (
	"cmp"
	"slices"

	"github.com/holdfast-go/holdfast/internal/guard"
)

// A Claim is a key, and how it is held or waited for.
type Claim struct {
	Key  string
	Read bool // for reading
}

// A Hold is a key that the caller of a wait has.
type Hold struct {
	Claim
	Fence uint64
}

// A Place is the place of a request in the queue of its key at the owner. A request that was
// granted or given up meanwhile, or made again, has another one.
type Place struct {
	Epoch uint32 // of the ownership
	Order uint64 // of the requests of the key, from 1
}

// A Wait is a caller that waits for a key, and has the holds.
type Wait struct {
	Process string // which waits; with ID it is one of a kind
	ID      uint64
	Claim
	Behind Place // of a reader whose process's request waits behind a writer's; zero if it does not
	Began  int64 // in nanoseconds, by the clock of its process
	Holds  []Hold
}

// order is the order of waits by age: those of equal age by their names.
func order(a, b *Wait) int {
	return cmp.Or(cmp.Compare(a.Began, b.Began), cmp.Compare(a.Process, b.Process), cmp.Compare(a.ID, b.ID))
}

// A Link is a wait of a circle, and the hold of its caller that the link before waits for.
type Link struct {
	Wait
	By Hold
}

// A Circle is a list of waits: each one waits for the next one, and the last one for the first,
// which is the youngest.
type Circle []Link

// Same reports whether two circles, found at different times, are the same waits, requests and
// holds. Then each of them has lasted from the one time to the other. So has the request that a
// reader's must wait behind, as it was made before.
func (c Circle) Same(other Circle) bool {
	return slices.EqualFunc(c, other, func(a, b Link) bool {
		return a.Process == b.Process && a.ID == b.ID && a.Claim == b.Claim && a.Behind == b.Behind && a.By.Claim == b.By.Claim && a.By.Fence == b.By.Fence
	})
}

// place is a hold among the waits.
type place struct{ wait, hold int }

// finder is one call of Find.
type finder struct {
	waits []Wait
	holds map[string][]place // by key
	stuck []bool             // waits that none but waits of this set can let go on
}

// Find returns circles among the waits, so many that no other one is left if the youngest wait of
// each ends. The result does not depend on the order of the waits.
func Find(waits []Wait) (all []Circle) {
	f := &finder{slices.Clone(waits), make(map[string][]place), make([]bool, len(waits))}
	slices.SortFunc(f.waits, func(a, b Wait) int { return order(&a, &b) })
	for i := range f.waits {
		f.stuck[i] = true
		for j := range f.waits[i].Holds {
			key := f.waits[i].Holds[j].Key
			f.holds[key] = append(f.holds[key], place{i, j})
		}
	}
	for {
		f.loosen()
		youngest := -1
		for i, stuck := range f.stuck {
			if stuck {
				youngest = i
			}
		}
		if youngest < 0 {
			return all
		}
		c := f.from(youngest)
		all = append(all, c)
		i := slices.IndexFunc(f.waits, func(w Wait) bool { return w.Process == c[0].Process && w.ID == c[0].ID })
		f.stuck[i] = false
	}
}

// loosen takes waits out that can go on, until each that is left waits for others that are left.
func (f *finder) loosen() {
	for again := true; again; {
		again = false
		for i := range f.waits {
			if f.stuck[i] && len(f.inTheWay(i)) == 0 {
				f.stuck[i], again = false, true
			}
		}
	}
}

// inTheWay returns the holds in the way of a wait: it waits in vain as long as the stuck callers
// have them.
func (f *finder) inTheWay(i int) (way []place) {
	w := &f.waits[i]
	for _, at := range f.holds[w.Key] {
		other := &f.waits[at.wait]
		h := &other.Holds[at.hold]
		// A reader waits for another one only behind a writer that does.
		if !guard.Between || !w.Read || !h.Read || w.Behind != (Place{}) {
			if f.stuck[at.wait] {
				way = append(way, at)
			}
		}
	}
	return way
}

// from returns the circle that the first holds in the way lead to, from a wait that is stuck.
func (f *finder) from(i int) Circle {
	var path []place // a wait, and its hold that the wait before waits for
	seen := make(map[int]int)
	at := place{i, -1}
	for {
		if first, ok := seen[at.wait]; ok {
			path[first] = at
			return f.circle(path[first:])
		}
		seen[at.wait] = len(path)
		path = append(path, at)
		at = f.inTheWay(at.wait)[0]
	}
}

// circle makes the youngest wait the first one.
func (f *finder) circle(path []place) Circle {
	youngest := 0
	for i := range path {
		if path[i].wait > path[youngest].wait {
			youngest = i
		}
	}
	c := make(Circle, len(path))
	for i := range path {
		at := path[(youngest+i)%len(path)]
		c[i] = Link{f.waits[at.wait], f.waits[at.wait].Holds[at.hold]}
	}
	return c
}
