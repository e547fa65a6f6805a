package subjects

import (
	"testing"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
)

// Where the cluster has fallen apart, the search ends.
func TestKeysOf_NoOwner(t *testing.T) {
	c, err := coord.New(t.Context(), fallback.NewMemory(), &coord.Options{Namespace: "bench"})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(t.Context())
	for _, own := range []bool{true, false} {
		if keys, err := keysOf(c, own, "order-", 2); err == nil {
			t.Errorf("own %v: %v", own, keys)
		}
	}
}
