package harness

import "fmt"

// places are the cores of the processes that call, of the store and of the servers, negative
// numbers if the kernel decides.
type places struct {
	Callers, Store, Servers int
	Note                    string
}

// The values of -place.
const (
	PlaceFree  = "free"
	PlaceNear  = "near"
	PlaceApart = "apart"
)

func (b *Bench) Places(subject string) places {
	mine, its, why := b.TwoCores()
	place := b.Place
	if place == "" {
		place = map[string]string{"shared": PlaceNear}[subject]
	}
	switch {
	case why != "":
		return places{-1, -1, -1, why}
	case place == PlaceNear:
		return places{mine, mine, its, fmt.Sprintf("-place %s: the processes and the store on core %d, the servers on core %d", place, mine, its)}
	case place == PlaceApart:
		return places{mine, its, its, fmt.Sprintf("-place %s: the processes on core %d, the store and the servers on core %d", place, mine, its)}
	}
	return places{-1, -1, -1, "-place " + PlaceFree + ": the kernel decides what runs where"}
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
