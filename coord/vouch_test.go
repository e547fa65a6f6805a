package coord_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/await"
	"github.com/holdfast-go/holdfast/internal/takes"
)

// rowCount counts the rows that a node reads, and those that it asks to be written; and the
// partitions that it reclaims, with the calls for them.
type rowCount struct {
	fallback.Arbiter
	read, restored        atomic.Int64
	partitions, reclaimed atomic.Int64
}

type rowCountSpace struct {
	fallback.Namespace
	n *rowCount
}

func (a *rowCount) Attach(ctx context.Context, s fallback.Settings) (fallback.Namespace, error) {
	n, err := a.Arbiter.Attach(ctx, s)
	return &rowCountSpace{n, a}, err
}

func (n *rowCountSpace) Verify(ctx context.Context, reads []fallback.Read) []fallback.State {
	for _, r := range reads {
		n.n.read.Add(int64(len(r.Keys)))
	}
	return n.Namespace.Verify(ctx, reads)
}

func (n *rowCountSpace) Restore(ctx context.Context, claims []fallback.Claims) []fallback.Restored {
	for _, c := range claims {
		n.n.restored.Add(int64(len(c.Holds)))
	}
	return n.Namespace.Restore(ctx, claims)
}

func (n *rowCountSpace) ReclaimOwners(ctx context.Context, me string, owned []fallback.Ownership) []fallback.Reclaimed {
	n.n.reclaimed.Add(1)
	n.n.partitions.Add(int64(len(owned)))
	return n.Namespace.ReclaimOwners(ctx, me, owned)
}

// holdMany locks many keys; other nodes own most of them.
func holdMany(t *testing.T, c *coord.Coordinator) (held []coord.Lock) {
	for i := range 300 {
		held = append(held, lock(t, c, fmt.Sprint("held ", i)))
	}
	return held
}

func stillHeld(t *testing.T, c *coord.Coordinator, held []coord.Lock) {
	t.Helper()
	if s := c.Stats(); len(s.Lost) > 0 || s.Locked != len(held) {
		t.Errorf("%d of %d are held, lost are %v", s.Locked, len(held), s.Lost)
	}
}

// noRows waits until a node with sessions of so long reads no row for as long as it takes to verify
// everything twice.
func noRows(t *testing.T, a *rowCount, ttl time.Duration) {
	t.Helper()
	n, since := a.read.Load(), time.Now()
	await.Until(t, "no rows are read", func() bool {
		if now := a.read.Load(); now != n {
			n, since = now, time.Now()
		}
		return time.Since(since) > 2*ttl/4
	})
}

// When owners leave and come, rows take their places. Once there are owners again, holds rest on
// them, and rows are not read any more; when these owners go in turn, nothing is lost either, and
// nothing is left at the end.
func TestHoldsRestOnTheirOwnersAgain(t *testing.T) {
	takes.Seconds(t)
	a := fallback.NewMemory()
	mine := &rowCount{Arbiter: a}
	here := join(t, mine, quick())
	second, third := join(t, a, quick()), join(t, a, quick())
	settled(t, 61, here, second, third)
	held := holdMany(t, here)
	if err := third.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	await.Until(t, "rows are looked after", func() bool { return mine.restored.Load()+mine.read.Load() > 0 })
	settled(t, 61, here, second)
	noRows(t, mine, quick().SessionTTL)
	stillHeld(t, here, held)

	fourth := join(t, a, quick())
	settled(t, 61, here, second, fourth)
	noRows(t, mine, quick().SessionTTL)
	if err := second.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	settled(t, 61, here, fourth)
	noRows(t, mine, quick().SessionTTL)
	if err := fourth.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	settle(t, 61, here)
	noRows(t, mine, quick().SessionTTL)
	stillHeld(t, here, held)
	for _, l := range held {
		unlock(t, l)
	}
	await.Until(t, "nothing is left", func() bool { return rowsOf(t, a) == 0 })
}

// rowsOf returns how many rows there are.
func rowsOf(t *testing.T, a *fallback.Memory) (n int) {
	t.Helper()
	ns, err := a.Attach(t.Context(), fallback.Settings{Namespace: "holdfast", Partitions: 61, Grace: 4 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Close()
	reads := make([]fallback.Read, 61)
	for p := range reads {
		reads[p].Partition = uint32(p)
		for i := range 300 {
			reads[p].Keys = append(reads[p].Keys, fmt.Sprint("held ", i))
		}
	}
	for _, s := range ns.Verify(t.Context(), reads) {
		for _, row := range s.Rows {
			if row != (fallback.Row{}) {
				n++
			}
		}
	}
	return n
}

// An arbiter that is away for a while is not asked to adopt holds that owners answer for: as long
// as there is time, they will again when it is back.
func TestAnOutageMakesNobodyAdopt(t *testing.T) {
	takes.Seconds(t)
	net := &faulty{Arbiter: fallback.NewMemory()}
	mine := &rowCount{Arbiter: net}
	o := quick() // but that a busy machine has time left when the arbiter is back
	o.SessionTTL, o.Grace, o.Cluster.Keepalive, o.Cluster.Takeover = 12*time.Second, 15*time.Second, time.Second, -1
	other := *o
	here, there := join(t, mine, o), join(t, net, &other)
	settled(t, 61, here, there)
	held := holdMany(t, here)
	net.set(func(string) fault { return fault{lost: true} })
	await.Throughout(t, o.SessionTTL*2/5, "all is held", func() bool { return here.Stats().Locked == len(held) })
	net.mend()
	failed := there.Stats().Failed[coord.OpRenew]
	await.Until(t, "the arbiter is back", func() bool { return here.Stats().Failed[coord.OpRenew] > 0 || failed > 0 })
	noRows(t, mine, o.SessionTTL)
	stillHeld(t, here, held)
	if n := mine.restored.Load(); n > 0 {
		t.Errorf("%d holds were to be adopted", n)
	}
	for _, l := range held {
		unlock(t, l)
	}
}
