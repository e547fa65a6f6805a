package coord_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/await"
	"github.com/holdfast-go/holdfast/internal/takes"
)

// waitFor starts callers that wait for a key until the test ends, and are counted then.
func waitFor(t *testing.T, ctx context.Context, c *coord.Coordinator, key string, callers int) {
	t.Helper()
	ctx, cancel := context.WithCancel(ctx)
	before := c.Stats().Waiting
	var work sync.WaitGroup
	for range callers {
		work.Go(func() {
			if l, err := c.Lock(ctx, key); err == nil {
				_ = l.Unlock()
			}
		})
	}
	t.Cleanup(func() {
		cancel()
		work.Wait()
	})
	await.Until(t, "they wait", func() bool { return c.Stats().Waiting == before+callers })
}

// keyOwnedBy returns a key that a node owns.
func keyOwnedBy(t *testing.T, c *coord.Coordinator) string {
	t.Helper()
	for i := range 1000 {
		key := fmt.Sprint("key", i)
		if n, ok := c.Owner(key); ok && n.Self {
			return key
		}
	}
	t.Fatal("the node owns no key")
	return ""
}

// threeNodes returns nodes with names, which have settled.
func threeNodes(t *testing.T) (nodes []*coord.Coordinator) {
	t.Helper()
	a := fallback.NewMemory()
	for _, name := range []string{"anna", "berta", "clara"} {
		o := unhurried()
		o.Name = name
		nodes = append(nodes, join(t, a, o))
	}
	settled(t, 61, nodes...)
	return nodes
}

func TestInspect_EachNodeTellsHolderAndWaiters(t *testing.T) {
	t.Parallel()
	nodes := threeNodes(t)
	anna, berta, clara := nodes[0], nodes[1], nodes[2]
	key := keyOwnedBy(t, anna)
	free, err := clara.Inspect(t.Context(), key)
	if err != nil || free.Holder != nil || len(free.Waiters) > 0 || free.Owner == nil || free.Owner.Name != "anna" || free.Epoch == 0 {
		t.Errorf("a free key: %+v, %v", free, err)
	}
	began := time.Now()
	l, err := berta.Lock(coord.WithLabel(t.Context(), "checkout 8123"), key)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { unlock(t, l) }()
	waitFor(t, coord.WithLabel(t.Context(), "refund 7"), clara, key, 2)
	waitFor(t, t.Context(), berta, key, 1)
	await.Until(t, "the owner has heard of it", func() bool {
		info, err := anna.Inspect(t.Context(), key)
		return err == nil && len(info.Waiters) == 2
	})
	waitFor(t, coord.WithLabel(t.Context(), "report"), anna, key, 3)
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range nodes {
		info, err := c.Inspect(t.Context(), key)
		if err != nil || len(info.Unanswered) > 0 || info.Owner == nil || info.Owner.Name != "anna" || info.Epoch == 0 {
			t.Fatalf("%+v, %v", info, err)
		}
		h := info.Holder
		if h == nil || !h.Locked || h.Name != "berta" || h.PID != os.Getpid() || h.Session != berta.Stats().Session || h.Label != "checkout 8123" ||
			h.Fence != l.Fence() || h.Turns != 1 || h.Since.Before(began.Add(-time.Second)) || h.Since.After(time.Now()) || h.Host == "" ||
			!strings.HasPrefix(h.ID, "berta/") {
			t.Errorf("holder %+v, host %s", h, host)
		}
		var order []string
		for _, w := range info.Waiters {
			order = append(order, fmt.Sprintf("%s %d %q", w.Name, w.Callers, w.Labels))
			if w.Since.Before(began.Add(-time.Second)) || w.Since.After(time.Now()) {
				t.Errorf("%s has waited since %v", w.Name, w.Since)
			}
		}
		if want := []string{`berta 1 []`, `clara 2 ["refund 7" "refund 7"]`, `anna 3 ["report" "report" "report"]`}; !slices.Equal(order, want) {
			t.Errorf("waiters %q, want %q", order, want)
		}
	}
	if _, err := anna.Inspect(t.Context(), ""); !errors.Is(err, coord.ErrInvalidKey) {
		t.Error(err)
	}
}

func TestHeldAndTop_OverTheCluster(t *testing.T) {
	takes.Seconds(t)
	nodes := threeNodes(t)
	anna, berta, clara := nodes[0], nodes[1], nodes[2]
	keys := []string{keyOwnedBy(t, anna), keyOwnedBy(t, berta), keyOwnedBy(t, clara), "\xff\x00 no text"}
	for i, key := range keys { // each is held by the node after its owner's, the first for longest
		l, err := nodes[(i+1)%3].Lock(coord.WithLabel(t.Context(), fmt.Sprint("label ", i)), key)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { unlock(t, l) }()
		if begun := time.Now(); i == 0 { // durations of different nodes are compared
			await.Until(t, "a second later", func() bool { return time.Since(begun) > time.Second })
		}
	}
	waitFor(t, t.Context(), anna, keys[1], 1)
	waitFor(t, t.Context(), berta, keys[1], 1)
	waitFor(t, t.Context(), clara, keys[0], 1)
	for _, c := range nodes {
		for _, name := range []string{"berta", berta.Nodes()[1].ID} {
			list, err := c.Held(t.Context(), name)
			if err != nil || len(list.Keys) != 2 || list.More > 0 {
				t.Fatalf("%+v, %v", list, err)
			}
			for _, k := range list.Keys {
				if k.Key != keys[0] && k.Key != keys[3] || k.Holder.Name != "berta" || !strings.HasPrefix(k.Label, "label ") || k.Since.IsZero() || k.Fence == 0 {
					t.Errorf("%+v", k)
				}
			}
		}
		held, err := c.Top(t.Context(), 3, coord.LongestHeld)
		if err != nil || len(held.Unanswered) > 0 || len(held.Keys) != 3 {
			t.Fatalf("%+v, %v", held, err)
		}
		if k := held.Keys[0]; k.Key != keys[0] || k.Label != "label 0" || k.Waiters != 1 || k.Holder.Name != "berta" || k.Turns != 1 {
			t.Errorf("the first is %+v, want %s", k, keys[0])
		}
		for i, k := range held.Keys[1:] {
			if at := slices.Index(keys, k.Key); at < 1 || k.Label != fmt.Sprint("label ", at) {
				t.Errorf("place %d: %+v", i+1, k)
			}
		}
		most, err := c.Top(t.Context(), 10, coord.MostWaitedFor)
		if err != nil || len(most.Keys) != 2 || most.Keys[0].Key != keys[1] || most.Keys[0].Waiters != 2 || most.Keys[0].Waiting.IsZero() ||
			most.Keys[0].Holder == nil || most.Keys[0].Label != "label 1" {
			t.Errorf("%+v, %v", most, err)
		}
		wait, err := c.Top(t.Context(), 10, coord.LongestWait)
		if err != nil || len(wait.Keys) != 2 || wait.Keys[0].Waiting.IsZero() || wait.Keys[0].Holder == nil {
			t.Errorf("%+v, %v", wait, err)
		}
		if list, err := c.Held(t.Context(), "dora"); err == nil {
			t.Errorf("of a node that is not there: %+v", list)
		}
	}
	for range 5 {
		unlock(t, lock(t, clara, keyOwnedBy(t, clara)+"x"))
	}
	if _, err := anna.Top(t.Context(), 10, 0); err == nil {
		t.Error("there is no order 0")
	}
	taken, err := anna.Top(t.Context(), 10, coord.MostTaken)
	if err != nil || len(taken.Keys) != 4 {
		t.Errorf("%+v, %v", taken, err)
	}
}

// Without a cluster the arbiter knows the holder, and the processes that wait.
func TestInspect_WithoutACluster(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		var all []*coord.Coordinator
		for _, name := range []string{"anna", "berta", "clara", "dora"} {
			all = append(all, start(t, a, &coord.Options{Name: name}))
		}
		anna := all[0]
		l, err := anna.Lock(coord.WithLabel(t.Context(), "checkout"), "k")
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		time.Sleep(time.Second)
		waitFor(t, t.Context(), all[2], "k", 1)
		time.Sleep(time.Second)
		waitFor(t, t.Context(), all[1], "k", 1)
		waitFor(t, t.Context(), anna, "k", 1)
		for _, c := range all {
			info, err := c.Inspect(t.Context(), "k")
			if err != nil || info.Owner != nil || info.Holder == nil || info.Holder.Name != "anna" || info.Holder.PID != os.Getpid() || len(info.Unanswered) > 0 {
				t.Fatalf("%+v, %v", info, err)
			}
			h := info.Holder
			if c == anna && (!h.Locked || h.Label != "checkout" || !h.Since.Equal(began) || h.Fence != l.Fence()) {
				t.Errorf("%+v", h)
			}
			if c != anna && (h.Locked || !h.Since.IsZero() || h.Fence == 0 || h.Fence > l.Fence()) {
				t.Errorf("%+v", h)
			}
			names := ""
			for _, w := range info.Waiters {
				names += w.Name + " "
			}
			if want := map[bool]string{true: "anna clara berta ", false: "clara berta "}[c == anna]; names != want {
				t.Errorf("%q wait, want %q", names, want)
			}
		}
		if list, err := anna.Held(t.Context(), ""); err != nil || len(list.Keys) != 1 || list.Keys[0].Label != "checkout" || list.Keys[0].Waiters != 1 {
			t.Errorf("%+v, %v", list, err)
		}
		if _, err := anna.Held(t.Context(), "berta"); err == nil {
			t.Error("another process cannot be asked")
		}
		unlock(t, l)
	})
}

// Locks that callers want are found among any number of those that none wants, however long these
// are held. A lock whose holder expects waiters is none of them.
func TestTop_LongestWanted(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		c := start(t, a, nil)
		for i := range 20 {
			defer unlock(t, lock(t, c, fmt.Sprint("quiet ", i)))
		}
		for i := range 3 {
			time.Sleep(time.Second)
			key := fmt.Sprint("wanted ", i)
			defer unlock(t, lock(t, c, key))
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second) // it is seen meanwhile
			defer cancel()
			if _, err := c.Lock(ctx, key); !errors.Is(err, coord.ErrLocked) {
				t.Fatal(err)
			}
		}
		defer c.ExpectLong("wanted 0")()
		if list, err := c.Top(t.Context(), 1, coord.LongestWanted); err != nil || len(list.Keys) != 1 || list.Keys[0].Key != "wanted 1" || !list.Keys[0].Wanted {
			t.Errorf("%+v, %v", list, err)
		}
		list, err := c.Top(t.Context(), 100, coord.LongestWanted)
		if err != nil || len(list.Keys) != 2 {
			t.Errorf("%+v, %v", list, err)
		}
		list, err = c.Top(t.Context(), 100, coord.LongestHeld)
		i := slices.IndexFunc(list.Keys, func(k coord.KeySummary) bool { return k.Key == "wanted 0" })
		if err != nil || i != 20 || list.Keys[i].Wanted {
			t.Errorf("place %d of %+v, %v", i, list, err)
		}
	})
}

// Keys that do not fit into an answer are asked for again, or counted; a question has no more keys
// than a node answers.
func TestTop_MoreThanFitsIntoAnAnswer(t *testing.T) {
	takes.Seconds(t)
	a := fallback.NewMemory()
	one, other := join(t, a, unhurried()), join(t, a, unhurried())
	settled(t, 61, one, other)
	var all []coord.Lock
	defer func() {
		for _, l := range all {
			unlock(t, l)
		}
	}()
	take := func(c, owner *coord.Coordinator, kind string, n int) {
		for i := 0; n > 0; i++ {
			key := fmt.Sprint(kind, " ", i)
			if o, ok := owner.Owner(key); ok && o.Self { // besides its holder only the owner knows of it
				all, n = append(all, lock(t, c, key)), n-1
			}
		}
	}
	const first, second, third = 550, 450, 150
	take(one, one, "held by the one", first)
	take(other, one, "held by another", second) // they are asked for last
	list, err := one.Top(t.Context(), 1000, coord.LongestHeld)
	if n := len(list.Keys); err != nil || n != first+second || list.More > 0 || len(list.Unanswered) > 0 {
		t.Errorf("%d keys, and %d more, of %d; unanswered: %v; %v", n, list.More, first+second, list.Unanswered, err)
	}
	for _, k := range list.Keys {
		if k.Holder == nil || k.Turns == 0 {
			t.Errorf("only its owner tells of %+v", k)
			break
		}
	}
	take(other, other, "unknown to the one", third)
	list, err = other.Top(t.Context(), 1000, coord.LongestHeld)
	if n := len(list.Keys); err != nil || list.More == 0 || n+list.More < first+second+third || len(list.Unanswered) > 0 {
		t.Errorf("%d keys, and %d more, of %d; unanswered: %v; %v", n, list.More, first+second+third, list.Unanswered, err)
	}
	list, err = one.Top(t.Context(), 1000, coord.LongestHeld)
	if n := len(list.Keys); err != nil || n != 1000 || len(list.Unanswered) > 0 {
		t.Errorf("%d keys; unanswered: %v; %v", n, list.Unanswered, err)
	}
}
