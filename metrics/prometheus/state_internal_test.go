package prometheus

import (
	"testing"

	"github.com/holdfast-go/holdfast/coord"
)

// A node without a session can lock nothing, and no rule about streams is to fire for it.
func TestStateOf(t *testing.T) {
	for want, n := range map[string]coord.NodeInfo{
		"linked":   {State: "active", Linked: true},
		"unlinked": {State: "active"},
		"refused":  {State: "active", Refused: "it has other keys"},
		"unlisted": {State: "unlisted"},
	} {
		if got := stateOf(&n); got != want {
			t.Errorf("%+v: %q, want %q", n, got, want)
		}
	}
	if got := stateOf(&coord.NodeInfo{State: "dead"}); got != "unlisted" {
		t.Errorf("dead: %q", got)
	}
}
