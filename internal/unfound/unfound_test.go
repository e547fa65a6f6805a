package unfound_test

import (
	"testing"

	"github.com/holdfast-go/holdfast/internal/unfound"
)

func TestBy(t *testing.T) {
	for reason, want := range map[string][2]string{
		`peer: refused by the other side: "not a member"`:                                                                {"berta", "anna"},
		`peer: refused: not a member: coord: node "berta": the arbiter lists no session of it: it may have just started`: {"anna", "berta"},
	} {
		if a, b := unfound.By("anna", "berta", reason); !unfound.Is(reason) || [2]string{a, b} != want {
			t.Errorf("%s: %s refuses %s, want %s", reason, a, b, want)
		}
	}
	if unfound.Is("peer: TLS: the other side proves none of the shared keys") {
		t.Error("other keys pass for a missing session")
	}
}
