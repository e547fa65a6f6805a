package coord_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/await"
	"github.com/holdfast-go/holdfast/internal/takes"
)

// A node that closes and cannot give its partitions back is buried, as one that crashed: its keys do not wait for the end of its session, a minute.
func TestClose_ThatGivesNothingBackIsBuried(t *testing.T) {
	takes.Seconds(t)
	a := fallback.NewMemory()
	options := func() *coord.Options {
		o := unhurried()
		o.Cluster.Takeover = 8 * time.Second // a busy machine is not taken for a dead one
		return o
	}
	others := []*coord.Coordinator{join(t, a, options()), join(t, a, options())}
	net := &faulty{Arbiter: a}
	leaves, err := coord.New(t.Context(), net, options())
	if err != nil {
		t.Fatal(err)
	}
	settled(t, 61, append(others, leaves)...)
	key := keyOf(t, leaves)
	await.Until(t, "the node has guardians", func() bool { s := leaves.Stats(); return s.Guardians > 0 && s.Promised > 0 })
	net.cut("demote", "close")
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if err := leaves.Close(ctx); !errors.Is(err, coord.ErrUnavailable) {
		t.Errorf("Close: %v", err)
	}
	began := time.Now()
	within, cancel := context.WithTimeout(t.Context(), 50*time.Second)
	defer cancel()
	l, err := others[0].Lock(within, key)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("locked after %v", time.Since(began))
	unlock(t, l)
}
