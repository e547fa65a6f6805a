package coord_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/await"
)

// nameOf returns the name of a node.
func nameOf(c *coord.Coordinator) string {
	for _, n := range c.Nodes() {
		if n.Self {
			return n.Name
		}
	}
	return ""
}

// A writer waits for readers of two processes: each node tells which they are, and any of them can
// be made to give way.
func TestInspect_Readers(t *testing.T) {
	t.Parallel()
	nodes := threeNodes(t)
	anna, berta, clara := nodes[0], nodes[1], nodes[2]
	key := keyOwnedBy(t, anna)
	var reads []coord.ReadLock
	for i, c := range []*coord.Coordinator{anna, berta, berta, berta} {
		ctx := t.Context()
		if i > 1 {
			ctx = coord.WithLabel(ctx, fmt.Sprint("report ", i))
		}
		r, err := c.RLock(ctx, key)
		if err != nil {
			t.Fatal(err)
		}
		reads = append(reads, r)
	}
	written := make(chan error, 1)
	go func() {
		l, err := clara.Lock(coord.WithLabel(t.Context(), "writes"), key)
		if err == nil {
			err = l.Unlock()
		}
		written <- err
	}()
	for _, c := range nodes {
		var info coord.KeyInfo
		await.Until(t, "the writer waits", func() (ok bool) {
			var err error
			info, err = c.Inspect(t.Context(), key)
			return err == nil && len(info.Waiters) == 1 && len(info.Shared) == 2
		})
		byName := make(map[string]coord.KeyHolder)
		for _, h := range info.Shared {
			byName[h.Name] = h
			if h.Mode != "read" || !h.Locked || h.Session == "" || h.PID == 0 {
				t.Errorf("%+v", h)
			}
		}
		a, b := byName[nameOf(anna)], byName[nameOf(berta)]
		if a.Readers != 1 || a.Fence != reads[0].Fence() || b.Readers != 3 ||
			a.Labels != nil || !slices.Equal(b.Labels, []string{"report 2", "report 3"}) || b.Fence != reads[1].Fence() {
			t.Errorf("%+v", info.Shared)
		}
		if w := info.Waiters[0]; w.Name != nameOf(clara) || w.Mode != "" || len(w.Labels) != 1 || info.Holder != nil || len(info.Unanswered) > 0 {
			t.Errorf("%+v", info)
		}
		top, err := c.Top(t.Context(), 10, coord.MostTaken)
		if err != nil || len(top.Unanswered) > 0 || len(top.Keys) != 2 {
			t.Fatalf("Top: %+v, %v", top, err)
		}
		for _, k := range top.Keys {
			if k.Key != key || k.Mode != "read" || k.Holder == nil || (k.Label == "report 2") != (k.Holder.Name == nameOf(berta)) {
				t.Errorf("Top: %+v", k)
			}
		}
	}
	for _, r := range []coord.ReadLock{reads[1], reads[0]} {
		if err := clara.Break(t.Context(), key, r.Fence(), "they are stuck"); err != nil {
			t.Error(err)
		}
	}
	if err := <-written; err != nil {
		t.Error(err)
	}
	for _, r := range reads {
		loss := new(coord.LossError)
		if err := r.Unlock(); !errors.As(err, &loss) || loss.Cause != coord.Broken || loss.Key != key || loss.Reason == "" {
			t.Errorf("a reader was told %v", err)
		}
	}
	if info, err := anna.Inspect(t.Context(), key); err != nil || len(info.Shared) > 0 {
		t.Errorf("%+v, %v", info, err)
	}
}

// Readers that wait for a writer are told with their number.
func TestInspect_WaitingReaders(t *testing.T) {
	t.Parallel()
	nodes := threeNodes(t)
	anna, berta := nodes[0], nodes[1]
	key := keyOwnedBy(t, anna)
	l := lock(t, anna, key)
	done := make(chan error, 3)
	for i := range cap(done) {
		go func() {
			ctx := t.Context()
			if i > 0 {
				ctx = coord.WithLabel(ctx, "report")
			}
			done <- berta.RDo(ctx, key, func(context.Context, coord.ReadLock) error { return nil })
		}()
	}
	await.Until(t, "three readers of berta wait", func() bool {
		info, err := nodes[2].Inspect(t.Context(), key)
		return err == nil && info.Holder != nil && info.Holder.Fence == l.Fence() && len(info.Waiters) == 1 &&
			info.Waiters[0].Name == nameOf(berta) && info.Waiters[0].Mode == "read" && info.Waiters[0].Callers == 3 &&
			slices.Equal(info.Waiters[0].Labels, []string{"report", "report"})
	})
	unlock(t, l)
	for range cap(done) {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

// Permits are those of a semaphore, and no lock's.
func TestInspect_Permits(t *testing.T) {
	t.Parallel()
	nodes := threeNodes(t)
	of := func(c *coord.Coordinator) *coord.Semaphore { return c.Semaphore("reports", 3) }
	var all []coord.Permits
	for i, c := range nodes[:2] {
		p, err := of(c).Acquire(coord.WithLabel(t.Context(), fmt.Sprint("print ", i)), i+1)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
	done := make(chan error, 1)
	go func() {
		done <- of(nodes[2]).Do(coord.WithLabel(t.Context(), "print 2"), 2, func(context.Context) error { return nil })
	}()
	var info coord.KeyInfo
	for _, c := range nodes {
		await.Until(t, "one waits", func() bool {
			var err error
			info, err = of(c).Inspect(t.Context())
			return err == nil && len(info.Shared) == 2 && len(info.Waiters) == 1
		})
		modes := make(map[string]string)
		for _, h := range info.Shared {
			modes[h.Name] = h.Mode + ", " + h.Label
		}
		if info.Key != "reports" || modes[nameOf(nodes[0])] != "1 of 3 permits, print 0" || modes[nameOf(nodes[1])] != "2 of 3 permits, print 1" ||
			info.Waiters[0].Mode != "2 of 3 permits" || !slices.Equal(info.Waiters[0].Labels, []string{"print 2"}) {
			t.Errorf("%+v", info)
		}
	}
	if lockInfo, err := nodes[0].Inspect(t.Context(), "reports"); err != nil || lockInfo.Holder != nil || len(lockInfo.Shared) > 0 {
		t.Errorf("the lock of the same key: %+v, %v", lockInfo, err)
	}
	for _, h := range info.Shared {
		if h.Name == nameOf(nodes[1]) {
			if err := of(nodes[0]).Break(t.Context(), h.Fence, "stuck"); err != nil {
				t.Error(err)
			}
		}
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
	if err := all[1].Release(); !errors.Is(err, coord.ErrLost) {
		t.Errorf("broken permits: %v", err)
	}
	if err := all[0].Release(); err != nil {
		t.Error(err)
	}
	if err := of(nodes[0]).Break(t.Context(), 1, "x"); !errors.Is(err, coord.ErrNotHeld) {
		t.Error(err)
	}
	if _, err := nodes[0].Semaphore("", 1).Inspect(t.Context()); !errors.Is(err, coord.ErrInvalidKey) {
		t.Error(err)
	}
}

// Without a cluster a process tells of its own readers.
func TestInspect_ReadersWithoutACluster(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		c := start(t, a, &coord.Options{Name: "anna"})
		r, err := c.RLock(t.Context(), "k")
		if err != nil {
			t.Fatal(err)
		}
		info, err := c.Inspect(t.Context(), "k")
		if err != nil || len(info.Shared) != 1 || info.Shared[0].Name != "anna" || info.Shared[0].Readers != 1 || info.Shared[0].Fence != r.Fence() {
			t.Errorf("%+v, %v", info, err)
		}
		if err := c.Break(t.Context(), "k", r.Fence(), "because"); err != nil {
			t.Error(err)
		}
		if err := r.Unlock(); !errors.Is(err, coord.ErrLost) {
			t.Error(err)
		}
	})
}

// A label of a reader lasts as long as its lock, in a seat and without, and no longer than it
// waits.
func TestInspect_LabelsOfReaders(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		c := start(t, a, &coord.Options{Name: "anna"})
		labels := func() (all []string) {
			t.Helper()
			info, err := c.Inspect(t.Context(), "k")
			if err != nil {
				t.Fatal(err)
			}
			for _, h := range info.Shared {
				all = append(all, h.Labels...)
			}
			return all
		}
		var reads []coord.ReadLock
		for i := range 5 { // the later ones have seats
			r, err := c.RLock(coord.WithLabel(t.Context(), string(rune('a'+i))), "k")
			if err != nil {
				t.Fatal(err)
			}
			if reads = append(reads, r); len(labels()) != i+1 {
				t.Errorf("%d readers have labels %q", i+1, labels())
			}
		}
		plain, err := c.RLock(t.Context(), "k")
		if err != nil {
			t.Fatal(err)
		}
		for i, r := range reads {
			if err := r.Unlock(); err != nil {
				t.Error(err)
			}
			if len(labels()) != 4-i {
				t.Errorf("%d readers have labels %q", 4-i, labels())
			}
		}
		if err := plain.Unlock(); err != nil {
			t.Error(err)
		}
		l, err := c.Lock(coord.WithLabel(t.Context(), "edit"), "k")
		if err != nil {
			t.Fatal(err)
		}
		short, cancel := context.WithCancel(coord.WithLabel(t.Context(), "gone"))
		ended := make(chan error, 2)
		for _, ctx := range []context.Context{short, coord.WithLabel(t.Context(), "stays")} {
			go func() { ended <- c.RDo(ctx, "k", func(context.Context, coord.ReadLock) error { return nil }) }()
		}
		synctest.Wait()
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		info, err := c.Inspect(t.Context(), "k")
		if err != nil || len(info.Waiters) != 1 || !slices.Equal(info.Waiters[0].Labels, []string{"stays"}) {
			t.Errorf("%+v, %v", info, err)
		}
		r, err := l.Downgrade(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if !slices.Equal(labels(), []string{"edit"}) {
			t.Errorf("a lock that became one for reading has labels %q", labels())
		}
		if err := r.Unlock(); err != nil {
			t.Error(err)
		}
	})
}

// A semaphore of the longest key is asked about as others are, and is in the way of no question
// about all keys.
func TestInspect_ASemaphoreOfTheLongestKey(t *testing.T) {
	t.Parallel()
	a := fallback.NewMemory()
	c := join(t, a, unhurried())
	settle(t, 61, c)
	long := c.Semaphore(strings.Repeat("k", coord.MaxKey), 3)
	defer release(t, acquire(t, long, 1))
	defer unlock(t, lock(t, c, "k"))
	op := observer(t, a)
	await.Until(t, "there is a stream", func() bool { return len(op.Nodes()) == 1 && op.Nodes()[0].Linked })
	top, err := op.Top(t.Context(), 3, coord.LongestHeld)
	if err != nil || len(top.Keys) != 2 || len(top.Unanswered) > 0 {
		t.Errorf("Top: %d keys, %v, %v", len(top.Keys), top.Unanswered, err)
	}
	s := op.Semaphore(strings.Repeat("k", coord.MaxKey), 3)
	if info, err := s.Inspect(t.Context()); err != nil || len(info.Shared) != 1 || len(info.Unanswered) > 0 {
		t.Errorf("Inspect: %d processes, %v, %v", len(info.Shared), info.Unanswered, err)
	}
}
