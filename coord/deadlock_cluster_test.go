package coord_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/await"
	"github.com/holdfast-go/holdfast/internal/takes"
)

// A reader of one node, behind a writer, waits for a reader of another one, until the writer
// leaves.
func TestDeadlock_BehindAWriterInACluster(t *testing.T) {
	takes.Seconds(t)
	nodes := deadlockNodes(t, 2*time.Second)
	for _, stays := range []bool{true, false} {
		for round := 0; !behindAWriter(t, nodes, stays, fmt.Sprint(stays, round)) && stays; round++ {
			if round == 5 {
				t.Fatal("no circle was found")
			}
		}
	}
}

// behindAWriter reports whether a circle was found.
func behindAWriter(t *testing.T, nodes []*coord.Coordinator, stays bool, round string) (found bool) {
	t.Helper()
	a, b := "a "+round, "b "+round
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	writes := func(context.Context) (context.Context, func() error, error) { return locks(nodes[1], a)(ctx) }
	var first coord.ReadLock
	readsFirst := func(ctx context.Context) (_ context.Context, _ func() error, err error) {
		first, err = nodes[0].RLock(ctx, a)
		return first.Context(), first.Unlock, err
	}
	errs, took := entangleSo(t, t.Context(), func(i int) {
		switch {
		case i == 2 && stays: // it may have been sent away
		case i == 2:
			begun(t, nodes, i)
			leave()
		default:
			if begun(t, nodes, i); i == 1 {
				<-first.Wanted()
			}
		}
	}, [2]taker{readsFirst, locks(nodes[0], b)}, [2]taker{none, writes}, [2]taker{locks(nodes[2], b), reads(nodes[2], a)})
	found = errs[0] != nil || errs[2] != nil // a wait that has to be made again, as an owner has changed, is younger than it was
	switch {
	case stays != (errs[1] == nil), found && !stays, errs[0] != nil && errs[2] != nil, found && !errors.Is(cmp.Or(errs[0], errs[2]), coord.ErrDeadlock):
		t.Errorf("the writer stays: %v: %v", stays, errs)
	}
	if !found && stays { // the reader's request came first to a new owner
		t.Logf("no circle, after %v", took)
	}
	return found
}

func deadlockNodes(t *testing.T, after time.Duration) (nodes []*coord.Coordinator) {
	t.Helper()
	store := fallback.NewMemory()
	for i := range 3 {
		o := unhurried()
		o.Name, o.DeadlockAfter = fmt.Sprint("node-", i), after
		nodes = append(nodes, join(t, store, o))
	}
	settled(t, 61, nodes...)
	return nodes
}

// begun waits until the caller of a node waits.
func begun(t *testing.T, nodes []*coord.Coordinator, i int) {
	t.Helper()
	await.Until(t, "it waits", func() bool { return nodes[i].Stats().Waiting == 1 })
}

// Callers of three nodes wait for each other.
func TestDeadlock_InACluster(t *testing.T) {
	takes.Seconds(t)
	nodes := deadlockNodes(t, 200*time.Millisecond)
	for round := range 4 {
		key := func(i int) string { return fmt.Sprint("key ", round, " ", i%3) }
		var callers [][2]taker
		for i, c := range nodes {
			first := locks
			if (round+i)%2 == 1 {
				first = reads
			}
			callers = append(callers, [2]taker{first(c, key(i)), locks(c, key(i+1))})
		}
		errs, took := entangleSo(t, t.Context(), func(i int) {
			if i < 2 { // the third one may have been sent away
				begun(t, nodes, i)
			}
		}, callers...)
		d := onlyOne(t, errs)
		if len(d.Cycle) != 3 || d.Key != d.Cycle[0].Key || !strings.HasSuffix(d.Cycle[0].Name, d.Cycle[0].Has[len("key 0 "):]) {
			t.Fatalf("%v", d)
		}
		var first int
		if _, err := fmt.Sscanf(d.Cycle[0].Name, "node-%d", &first); err != nil {
			t.Fatal(err)
		}
		for i, w := range d.Cycle {
			from := (first + i) % 3
			if w.Name != fmt.Sprint("node-", from) || w.Key != key(from+1) || w.Has != key(from) || w.Label != fmt.Sprint("caller ", from) || w.Since.IsZero() {
				t.Errorf("%+v", w)
			}
		}
		t.Logf("round %d: %v", round, took)
	}
}
