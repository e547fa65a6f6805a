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

// guardedOptions are options with guardians. A busy machine is not taken for a dead one.
func guardedOptions() *coord.Options {
	o := unhurried()
	o.Cluster.Takeover = 8 * time.Second
	return o
}

// leaver returns a node that has guardians and is about to leave, and two others.
func leaver(t *testing.T, options func() *coord.Options) (net *faulty, leaves *coord.Coordinator, others []*coord.Coordinator) {
	t.Helper()
	a := fallback.NewMemory()
	others = []*coord.Coordinator{join(t, a, options()), join(t, a, options())}
	net = &faulty{Arbiter: a}
	leaves, err := coord.New(t.Context(), net, options())
	if err != nil {
		t.Fatal(err)
	}
	settled(t, 61, append(others, leaves)...)
	await.Until(t, "the node has guardians", func() bool { s := leaves.Stats(); return s.Guardians > 0 && s.Promised > 0 })
	return net, leaves, others
}

// A node that closes and cannot give its partitions back is buried, as one that crashed: its keys
// do not wait for the end of its session, a minute.
func TestClose_ThatGivesNothingBackIsBuried(t *testing.T) {
	takes.Seconds(t)
	net, leaves, others := leaver(t, guardedOptions)
	key := keyOf(t, leaves)
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

// So is one whose session is not closed at last, though it has given its partitions back: as that
// fails, or as a hold could not be released.
func TestClose_WithoutTheEndOfItsSessionIsBuried(t *testing.T) {
	takes.Seconds(t)
	for _, cut := range []string{"close", "unlock"} {
		t.Run(cut, func(t *testing.T) {
			t.Parallel()
			net, leaves, others := leaver(t, guardedOptions)
			net.cut(cut)
			coord.Owe(leaves, "k")
			if err := leaves.Close(t.Context()); !errors.Is(err, coord.ErrUnavailable) {
				t.Errorf("Close: %v", err)
			}
			await.Within(t, 50*time.Second, "the session is buried", func() bool { return buried(others) > 0 })
		})
	}
}

func buried(nodes []*coord.Coordinator) (n uint64) {
	for _, c := range nodes {
		n += c.Stats().Buried
	}
	return n
}

// A node that leaves in an orderly way tells its guardians: none has it buried, nor warns of that.
func TestClose_IsNotBuried(t *testing.T) {
	takes.Seconds(t)
	_, leaves, others := leaver(t, guardedOptions)
	session := leaves.Stats().Session
	guards := func() bool { return coord.Guards(others[0], session) || coord.Guards(others[1], session) }
	await.Until(t, "the guardians have promised", guards)
	if err := leaves.Close(t.Context()); err != nil {
		t.Error(err)
	}
	await.Until(t, "no node guards it any more", func() bool { return !guards() })
	if n := buried(others); n > 0 {
		t.Errorf("%d sessions were buried", n)
	}
}
