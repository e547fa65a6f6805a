//go:build mutants

package leasetest

import (
	"testing"

	"github.com/holdfast-go/holdfast/internal/guard"
)

// TestRandomWalks_NoticeAMissingGuard takes Import away. Epoch, Lapse, Freeze and Announced are not
// noticed by these walks, in which calls take no time and no answer is late: packages sim and model
// notice them.
func TestRandomWalks_NoticeAMissingGuard(t *testing.T) {
	guard.Import = false
	defer func() { guard.Import = true }()
	for seed := range uint64(walks) {
		if _, wrong := walk(t, seed, true); wrong != "" {
			t.Logf("after %d walks", seed+1)
			return
		}
	}
	t.Error("not noticed")
}
