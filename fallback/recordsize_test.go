package fallback_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/fallback"
)

// What is too large for a store is named with what helps: the table of sessions has nothing of the
// partitions.
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
