//go:build !simulation && !mutants

package ring

// owners is placeSlots.
func owners(slots []string, partitions int) []string { return placeSlots(slots, partitions) }
