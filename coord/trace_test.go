package coord_test

import (
	"fmt"
	"testing"

	"github.com/holdfast-go/holdfast/coord"
)

// A number that is no path, operation or cause, as a later version may have, is told and does not
// panic.
func TestNamesOfNumbers(t *testing.T) {
	for _, x := range []struct {
		got  fmt.Stringer
		want string
	}{
		{coord.PathArbiter, "arbiter"}, {coord.Path(200), "Path(200)"},
		{coord.OpSaveResult, "save result"}, {coord.OpAnnounce, "announce"}, {coord.Op(200), "Op(200)"},
		{coord.CoordClosed, "coordinator closed"}, {coord.LossCause(0), "LossCause(0)"}, {coord.LossCause(200), "LossCause(200)"},
	} {
		if got := x.got.String(); got != x.want {
			t.Errorf("%q, want %q", got, x.want)
		}
	}
}
