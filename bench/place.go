package main

import "fmt"

// places are the cores of the processes that call, of the store and of the servers, negative numbers if the kernel decides.
type places struct {
	callers, store, servers int
	note                    string
}

// The values of -place.
const (
	placeFree  = "free"
	placeNear  = "near"
	placeApart = "apart"
)

func (b *bench) places(subject string) places {
	mine, its, why := b.twoCores()
	place := b.place
	if place == "" {
		place = map[string]string{"shared": placeNear}[subject]
	}
	switch {
	case why != "":
		return places{-1, -1, -1, why}
	case place == placeNear:
		return places{mine, mine, its, fmt.Sprintf("-place %s: the processes and the store on core %d, the servers on core %d", place, mine, its)}
	case place == placeApart:
		return places{mine, its, its, fmt.Sprintf("-place %s: the processes on core %d, the store and the servers on core %d", place, mine, its)}
	}
	return places{-1, -1, -1, "-place " + placeFree + ": the kernel decides what runs where"}
}

// twoCores returns a core for the callers and one for the callees, or negative numbers and why not.
func (b *bench) twoCores() (mine, its int, why string) {
	list, err := cores()
	switch {
	case !b.pin:
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

// placed calls f, on a core unless its number is negative. A process that f starts stays there.
func placed(core int, f func() error) error {
	if core < 0 {
		return f()
	}
	return onCore(core, f)
}
