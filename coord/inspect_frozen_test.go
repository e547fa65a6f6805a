package coord_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/await"
)

// An owner that has frozen a partition, and whose Demote is not answered, answers without knowing
// any holder. The key is not called free: its row tells the holder, and without one nothing is
// known.
func TestInspect_AnOwnerThatDoesNotServe(t *testing.T) {
	t.Parallel()
	a := fallback.NewMemory()
	joins := func(name string) (*faulty, *coord.Coordinator) {
		o := unhurried()
		o.Name, o.Partitions = name, 7 // as few as are given away at once
		net := &faulty{Arbiter: a}
		return net, join(t, net, o)
	}
	demotes, anna := joins("anna")
	adopts, berta := joins("berta")
	_, clara := joins("clara")
	settled(t, 7, anna, berta, clara)
	l := lock(t, berta, keyOwnedBy(t, anna))
	demotes.cut("demote")
	adopts.cut("adopt")
	drained := make(chan error)
	go func() { drained <- anna.Drain(t.Context()) }()

	inspect := func(c *coord.Coordinator) coord.KeyInfo {
		info, err := c.Inspect(t.Context(), l.Key())
		if err != nil {
			t.Fatal(err)
		}
		return info
	}
	for _, c := range []*coord.Coordinator{anna, berta, clara} {
		await.Until(t, "its partition is frozen", func() bool { return inspect(c).Unknown })
		info := inspect(c)
		if !info.NotServing || info.Holder != nil || info.Owner == nil || info.Owner.Name != "anna" || len(info.Unanswered) != 1 {
			t.Errorf("without a row: %+v", info)
		}
		if err := c.Break(t.Context(), l.Key(), l.Fence(), "test"); !errors.Is(err, coord.ErrNotBroken) || strings.Contains(err.Error(), "does not answer") {
			t.Errorf("without a row: %v", err)
		}
	}
	adopts.mend()
	for _, c := range []*coord.Coordinator{anna, berta, clara} {
		await.Until(t, "the row is there", func() bool { return !inspect(c).Unknown })
		info := inspect(c)
		if h := info.Holder; h == nil || h.Name != "berta" || !h.Locked || h.Fence != l.Fence() || info.Owner != nil {
			t.Errorf("with a row: %+v of %+v", h, info)
		}
	}
	if err := clara.Break(t.Context(), l.Key(), l.Fence(), "test"); err != nil {
		t.Error(err)
	}
	if _, cause := awaitLoss(t, l); cause != coord.Broken {
		t.Error(cause)
	}
	demotes.mend()
	if err := <-drained; err != nil {
		t.Error(err)
	}
}
