//go:build simulation || mutants

package ring

import (
	"strconv"
	"strings"
	"sync"
)

// placed has the results of placeSlots. Simulated clusters have the same few names again and again.
var placed sync.Map

// owners is placeSlots, once for the same slots.
func owners(slots []string, partitions int) []string {
	key := strings.Join(append([]string{strconv.Itoa(partitions)}, slots...), " ")
	if list, ok := placed.Load(key); ok {
		return list.([]string)
	}
	list := placeSlots(slots, partitions)
	placed.Store(key, list)
	return list
}
