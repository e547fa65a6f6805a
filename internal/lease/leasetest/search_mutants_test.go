//go:build mutants

package leasetest

import (
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/internal/guard"
	"github.com/holdfast-go/holdfast/internal/takes"
)

// TestSearch_NoticesAMissingGuard takes out each guard of the core, one after the other.
func TestSearch_NoticesAMissingGuard(t *testing.T) {
	takes.Seconds(t) // a shorter search notices some only
	for _, x := range scenes {
		if x.guard == "" {
			continue
		}
		t.Run(x.guard, func(t *testing.T) {
			*guard.Core[x.guard] = false
			defer func() { *guard.Core[x.guard] = true }()
			broken, story := x.run()
			if broken == "" {
				t.Errorf("not noticed from the scene %q", x.name)
			}
			t.Logf("%s, after %s: %s", broken, x.name, strings.Join(story, "; "))
		})
	}
	for name := range guard.Core {
		if !slices.ContainsFunc(scenes, func(x scene) bool { return x.guard == name }) {
			t.Errorf("there is no scene for the guard %s", name)
		}
	}
}
