//go:build mutants

package takeover

import (
	"os"
	"os/exec"
	"testing"

	"github.com/holdfast-go/holdfast/internal/guard"
)

const withoutEnv = "HOLDFAST_WITHOUT"

func init() {
	if name := os.Getenv(withoutEnv); name != "" {
		*guard.All[name] = false
	}
}

// TestReplay_NoticesAMissingGuard takes guards out of the state machines: they act unlike the
// model.
func TestReplay_NoticesAMissingGuard(t *testing.T) {
	for _, name := range []string{"", "MarginD", "PingSent", "Capped", "VoteLate", "NextCounts", "BothCount", "NamesNext", "NamesSet", "Silenced"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestReplay_MachinesDoAsTheModel$")
			cmd.Env = append(os.Environ(), withoutEnv+"="+name)
			out, err := cmd.CombinedOutput()
			if (err != nil) != (name != "") {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}
