//go:build !simulation && !mutants

// With these tags each look at the owner's word is compared with a look at each hold: there is
// nothing to count.

package leasetest

import (
	"fmt"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/lease"
)

// A node that has many keys of one owner looks at the owner's word once, not at each of the keys.
// An end of the owner's word makes it look at each again.
func TestCommon_TheOwnersWordIsForAllItsHolds(t *testing.T) {
	const keys = 100
	w := after(t, "a b", "a acquire\n owner a\n ping\n deliver")
	for i := range keys {
		do(t, w, fmt.Sprintf("b lock k%d\n deliver", i))
	}
	do(t, w, "tick 1s\n a renew\n a verify\n b renew\n ping\n deliver\n ping\n deliver")
	b := w.node("b")
	looks := func() (n int) {
		before := b.ends["a"].asked
		b.event(func(now time.Time, fx *lease.Effects) { b.P.Lapsed(now, fx) })
		b.P.Orphans(view{b}.Adoption(), w.now)
		return b.ends["a"].asked - before
	}
	looks()
	if n := looks(); n > 2 {
		t.Errorf("%d looks at the owner's word for %d holds", n, keys)
	}
	do(t, w, "b lock another\n deliver")
	if n := looks(); n < keys {
		t.Errorf("%d looks after another hold, %d holds", n, keys)
	}
	do(t, w, "a freeze\n deliver")
	holds, _, _ := b.P.Orphans(view{b}.Adoption(), w.now)
	if len(holds) != keys+1 {
		t.Errorf("%d holds are to be adopted after the owner has frozen the partition, not %d", len(holds), keys+1)
	}
}
