package coord

import (
	"fmt"
	"strings"
	"testing"
)

// Keys that differ in one byte have other hashes, whatever their length, and keys with numbers spread over shards and slots.
func TestReadHash(t *testing.T) {
	for n := 1; n <= 20; n++ {
		key := strings.Repeat("k", n)
		for i := range n {
			if other := key[:i] + "l" + key[i+1:]; readHash(other) == readHash(key) {
				t.Errorf("%q and %q have the same hash", other, key)
			}
		}
		if readHash(key) == readHash(key+"k") {
			t.Errorf("%d and %d bytes have the same hash", n, n+1)
		}
	}
	for _, form := range []string{"%d", "key-%06d", "order-%d", "catalogue-%06d", "%016d", "user/%d/profile"} {
		var shards [len(reads{})]int
		var slots [warmSlots]int
		const keys = 64 * 100
		for i := range keys {
			h := readHash(fmt.Sprintf(form, i))
			shards[h>>32%uint64(len(shards))]++
			slots[h>>40%warmSlots]++
		}
		for i, n := range shards {
			if n < 40 || n > 180 {
				t.Errorf("%s: %d of %d keys in shard %d of %d", form, n, keys, i, len(shards))
			}
		}
		for i, n := range slots {
			if n < keys/warmSlots*3/4 || n > keys/warmSlots*5/4 {
				t.Errorf("%s: %d of %d keys in slot %d of %d", form, n, keys, i, warmSlots)
			}
		}
	}
}
