package harness

import "fmt"

// Placement is the cores of the processes that call, of the store and of the servers, negative
// numbers if the kernel decides.
type Placement struct {
	Callers, Store, Servers int
	Note                    string
}

// The values of -place.
const (
	PlaceFree  = "free"
	PlaceNear  = "near"
	PlaceApart = "apart"
)

func (b *Bench) Places(subject string) Placement {
	mine, its, why := b.TwoCores()
	place := b.Place
	if place == "" {
		place = map[string]string{"shared": PlaceNear}[subject]
	}
	switch {
	case why != "":
		return Placement{-1, -1, -1, why}
	case place == PlaceNear:
		return Placement{mine, mine, its, fmt.Sprintf("-place %s: the processes and the store on core %d, the servers on core %d", place, mine, its)}
	case place == PlaceApart:
		return Placement{mine, its, its, fmt.Sprintf("-place %s: the processes on core %d, the store and the servers on core %d", place, mine, its)}
	}
	return Placement{-1, -1, -1, "-place " + PlaceFree + ": the kernel decides what runs where"}
}

// TwoCores returns a core for the callers and one for the callees, or negative numbers and why not.
func (b *Bench) TwoCores() (mine, its int, why string) {
	list, err := Cores()
	switch {
	case !b.Pin:
		why = "nothing is pinned (-pin=false)"
	case err != nil:
		why = fmt.Sprintf("nothing is pinned: %v", err)
	case len(list) < 2:
		why = "nothing is pinned: there is only one core"
	default:
		return list[0], list[1], ""
	}
	return -1, -1, why
}

// Placed calls f, on a core unless its number is negative. A process that f starts stays there.
func Placed(core int, f func() error) error {
	if core < 0 {
		return f()
	}
	return onCore(core, f)
}
