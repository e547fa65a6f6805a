package coord_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/await"
)

// broken checks that a lock was lost by Break.
func broken(t *testing.T, l coord.Lock, err error, reason string) {
	t.Helper()
	x, ok := errors.AsType[*coord.LossError](err)
	if !ok || !errors.Is(err, coord.ErrLost) || x.Cause != coord.Broken || x.Key != l.Key() || x.Fence != l.Fence() ||
		x.Reason != reason || !strings.Contains(err.Error(), reason[:10]) {
		t.Errorf("%v", err)
	}
}

// The holder is an owner, or another node. It is told before the waiter gets the key.
func TestBreak_TheHolderIsToldFirst(t *testing.T) {
	t.Parallel()
	nodes := threeNodes(t)
	anna, berta, clara := nodes[0], nodes[1], nodes[2]
	key := keyOwnedBy(t, anna)
	for _, holder := range []*coord.Coordinator{anna, berta} {
		for _, by := range nodes {
			l := lock(t, holder, key)
			ended := l.Context()
			next := make(chan error, 1)
			go func() {
				n, err := clara.Lock(t.Context(), key)
				switch {
				case err != nil:
				case ended.Err() == nil:
					err = errors.New("the holder had not been told (I1)")
				case n.Fence() <= l.Fence():
					err = errors.New("the token has not risen (I2)")
				default:
					err = n.Unlock()
				}
				next <- err
			}()
			await.Until(t, "a caller waits", func() bool { return clara.Stats().Waiting == 1 })
			if err := by.Break(t.Context(), key, l.Fence()+1, "no"); !errors.Is(err, coord.ErrNotHeld) || ended.Err() != nil {
				t.Errorf("with another token: %v, %v", err, context.Cause(ended))
			}
			if err := by.Break(t.Context(), key, l.Fence(), "it is stuck"); err != nil {
				t.Fatal(err)
			}
			var reason string
			for _, n := range by.Nodes() {
				if n.Self {
					reason = "it is stuck (" + n.Name + ")"
				}
			}
			if err := <-next; err != nil {
				t.Error(err)
			}
			broken(t, l, context.Cause(ended), reason)
			broken(t, l, l.Unlock(), reason)
			if err := by.Break(t.Context(), key, l.Fence(), "again"); !errors.Is(err, coord.ErrNotHeld) {
				t.Errorf("once more: %v", err)
			}
		}
	}
	if s := berta.Stats(); s.Lost[coord.Broken] != 3 {
		t.Errorf("%v", s.Lost)
	}
}

// The process that asks for it says so in its log, and the holder's says that it has lost a lock:
// each once, with the reason.
func TestBreak_IsLoggedOnBothSides(t *testing.T) {
	t.Parallel()
	const here, there = "holdfast: a lock of this process was broken", "holdfast: a lock of a process was broken on request of this one"
	a := fallback.NewMemory()
	var nodes []*coord.Coordinator
	logs := make(map[string]records)
	for _, name := range []string{"anna", "berta"} {
		o := unhurried()
		logs[name] = newRecords()
		o.Name, o.Logger = name, slog.New(logs[name])
		nodes = append(nodes, join(t, a, o))
	}
	settled(t, 61, nodes...)
	key := keyOwnedBy(t, nodes[0])
	l := lock(t, nodes[1], key)
	if err := nodes[0].Break(t.Context(), key, l.Fence(), "it is stuck"); err != nil {
		t.Fatal(err)
	}
	broken(t, l, l.Unlock(), "it is stuck (anna)")
	for name, want := range map[string]string{"anna": there, "berta": here} {
		for _, text := range []string{here, there} {
			all := logs[name].about(text)
			if text != want && len(all) == 0 {
				continue
			}
			if len(all) != 1 || text != want || !strings.Contains(all[0].String(), l.Fence().String()) || !strings.Contains(all[0].String(), "it is stuck") {
				t.Errorf("%s: %v", name, all)
			}
		}
	}
}

func TestBreak_WithoutACluster(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		h := newRecords()
		anna := start(t, a, &coord.Options{Name: "anna", Logger: slog.New(h)})
		berta := start(t, a, &coord.Options{Name: "berta", Unbreakable: true})
		l := lock(t, anna, "k")
		if err := berta.Break(t.Context(), "k", l.Fence(), ""); !errors.Is(err, coord.ErrNotBroken) || !strings.Contains(err.Error(), "anna") {
			t.Errorf("another process's lock: %v", err)
		}
		if err := anna.Break(t.Context(), "k", l.Fence(), strings.Repeat("ä", 1000)); err != nil {
			t.Error(err)
		}
		broken(t, l, l.Unlock(), strings.Repeat("ä", 128)+" (anna)")
		for _, message := range []string{"holdfast: a lock of this process was broken", "holdfast: a lock of a process was broken on request of this one"} {
			if n := len(h.about(message)); n != 1 {
				t.Errorf("%d records %q", n, message)
			}
		}
		l = lock(t, berta, "k")
		if err := berta.Break(t.Context(), "k", l.Fence(), "x"); !errors.Is(err, coord.ErrNotBroken) || !strings.Contains(err.Error(), "Unbreakable") {
			t.Errorf("one that must not be broken: %v", err)
		}
		unlock(t, l)
		if err := anna.Break(t.Context(), "k", l.Fence(), "x"); !errors.Is(err, coord.ErrNotHeld) && !errors.Is(err, coord.ErrNotBroken) {
			t.Errorf("a free key: %v", err)
		}
	})
}

// A lock that is broken without a reason has the name of the process that asked, and no empty
// reason.
func TestBreak_WithoutAReason(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		h := newRecords()
		c := start(t, a, named("one", h))
		l := lock(t, c, "k")
		if err := c.Break(t.Context(), "k", l.Fence(), ""); err != nil {
			t.Fatal(err)
		}
		if err := l.Unlock(); !errors.Is(err, coord.ErrLost) {
			t.Error(err)
		}
		if all := h.about("holdfast: a lock of this process was broken"); len(all) != 1 || all[0].attrs["reason"].String() != "(one)" {
			t.Errorf("%v", all)
		}
		all := h.about("holdfast: a lock of a process was broken on request of this one")
		if len(all) != 1 {
			t.Fatal(all)
		}
		if reason, has := all[0].attrs["reason"]; has {
			t.Errorf("the reason is %v", reason)
		}
	})
}
