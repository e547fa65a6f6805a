package coord

import (
	"testing"

	"github.com/holdfast-go/holdfast/internal/lease"
)

// Package lease has the causes of losses and the paths of grants under the same numbers.
func TestCauses_AreThoseOfPackageLease(t *testing.T) {
	for cause, want := range map[lease.Cause]LossCause{
		lease.SessionExpired: SessionExpired, lease.LeaseExpired: LeaseExpired, lease.Superseded: Superseded,
		lease.CoordClosed: CoordClosed, lease.TimeOver: TimeOver, lease.Broken: Broken,
	} {
		if LossCause(cause) != want {
			t.Errorf("%v is %d, and %d in package lease", want, want, cause)
		}
	}
	if n := len(lossCauses); n != int(lease.Broken)+1 {
		t.Errorf("there are %d causes, and %d in package lease", n-1, lease.Broken)
	}
	for path, want := range map[lease.Path]Path{
		lease.PathTurn: PathTurn, lease.PathOwn: PathOwn, lease.PathForwarded: PathForwarded, lease.PathArbiter: PathArbiter,
	} {
		if Path(path) != want {
			t.Errorf("%v is %d, and %d in package lease", want, want, path)
		}
	}
}
