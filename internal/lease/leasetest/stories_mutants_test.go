//go:build mutants

package leasetest

import (
	"testing"

	"github.com/holdfast-go/holdfast/internal/guard"
)

// TestModelStories_ComeTrueWithoutTheGuard takes a guard of the model out of the code: then the
// model's story comes true. So the replay follows the story. The other stories are of guards that
// the code has in package coord, or that it has no switch for.
func TestModelStories_ComeTrueWithoutTheGuard(t *testing.T) {
	all := stories(t)
	for model, core := range map[string]*bool{
		"Announced": &guard.Announced, "ExactUnlock": &guard.Identity, "FreedGranted": &guard.Absent, "FreedRead": &guard.Hearsay,
		"FreedVouched": &guard.Absent, "GraceTakesNothing": &guard.Grace, "Identity": &guard.Grace, "ImportRows": &guard.Import,
		"PendingIsHad": &guard.OnItsWay, "StopBeforeDemote": &guard.Freeze, "UnservedWaits": &guard.Waits,
	} {
		t.Run(model, func(t *testing.T) {
			*core = false
			defer func() { *core = true }()
			broken := follow(t, all[model])
			if broken == "" {
				t.Errorf("nothing comes of\n%s", all[model])
			}
			t.Log(broken)
		})
	}
}

// TestModelWalks_NoticeAMissingGuard takes out guards that random walks of the model come across.
func TestModelWalks_NoticeAMissingGuard(t *testing.T) {
	for name, g := range map[string]*bool{
		"Import": &guard.Import, "Identity": &guard.Identity, "Freeze": &guard.Freeze, "Lapse": &guard.Lapse,
		"Announced": &guard.Announced,
	} {
		t.Run(name, func(t *testing.T) {
			*g = false
			defer func() { *g = true }()
			for seed := range uint64(400) {
				for kind, m := range modelFaults {
					if broken, _, _ := walkModel(t, m, seed); broken != "" {
						t.Logf("%s, seed %d", kind, seed)
						return
					}
				}
			}
			t.Error("not noticed")
		})
	}
}
