package fallback_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/virtual"
)

// A record that is too large leaves the other operations of a call alone.
func TestRecords_OneRecordIsTooLarge(t *testing.T) {
	virtual.Test(t, func(t *testing.T) {
		store := &small{newLedger(), 1 << 20}
		n := attachRecords(t, store, nil)
		open(t, n, "s")
		var releases []fallback.Release
		for p, key := range []string{"a", strings.Repeat("x", 1000), "b"} {
			for _, key := range []string{key, key + "2"} {
				if a := lock(t, n, uint32(p), key, id("s", 1)); a.Verdict != fallback.Granted {
					t.Fatalf("%+v", a)
				}
			}
			releases = append(releases, fallback.Release{Partition: uint32(p), Key: key, Identity: id("s", 1)})
		}
		store.limit = 1000
		for i, err := range n.Unlock(t.Context(), releases) {
			if errors.Is(err, fallback.ErrRefused) != (i == 1) || i != 1 && err != nil {
				t.Errorf("%d: %v", i, err)
			}
		}
	})
}

// The error of a Swap with a record that is too large for a store names the record and the remedy:
// the table of sessions has nothing of the partitions.
func TestCheckSizes(t *testing.T) {
	const limit = 100
	for key, want := range map[string]string{"ns/p7": "use more Partitions", "ns/s": "too many sessions"} {
		changes := []fallback.Change{{Key: "ns/p1"}, {Key: key, Value: make([]byte, limit)}}
		if err := fallback.CheckSizes(changes, limit); err != nil {
			t.Errorf("%s: %v", key, err)
		}
		changes[1].Value = make([]byte, limit+1)
		err := fallback.CheckSizes(changes, limit)
		if !errors.Is(err, fallback.ErrRefused) || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "101 bytes, more than 100 bytes") {
			t.Errorf("%s: %v", key, err)
		}
	}
}
