package fallback_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/virtual"
)

// halving is a store that does half of its next Swap, of four changes. It writes the first, does
// not know of the second, loses the third to another process, and does not send the last.
type halving struct {
	*ledger
	next bool
}

var errCut = errors.New("the connection was cut")

func (h *halving) Swap(ctx context.Context, server string, changes []fallback.Change) ([]bool, error) {
	if !h.next {
		return h.ledger.Swap(ctx, server, changes)
	}
	h.next = false
	done, err := h.ledger.Swap(ctx, server, changes[:1])
	if err != nil {
		return nil, err
	}
	return fallback.Swapped([]bool{done[0], false, false, false}, []error{nil, errCut, nil, fmt.Errorf("%w: no connection", fallback.ErrNotSent)})
}

// A record that may have been written, or not, leaves the other operations of a call alone.
func TestRecords_ASwapThatIsHalfDone(t *testing.T) {
	virtual.Test(t, func(t *testing.T) {
		store := &halving{ledger: newLedger()}
		n := attachRecords(t, store, nil)
		open(t, n, "s")
		var releases []fallback.Release
		for p := range uint32(4) {
			if a := lock(t, n, p, "k", id("s", 1)); a.Verdict != fallback.Granted {
				t.Fatalf("%+v", a)
			}
			releases = append(releases, fallback.Release{Partition: p, Key: "k", Identity: id("s", 1)})
		}
		store.next = true
		errs := n.Unlock(t.Context(), releases)
		for i, want := range []error{nil, errCut, nil, fallback.ErrNotSent} {
			if !errors.Is(errs[i], want) {
				t.Errorf("%d: %v, want %v", i, errs[i], want)
			}
		}
		for p, free := range []bool{true, false, true, false} {
			if a := lock(t, n, uint32(p), "k", id("s", 2)); (a.Verdict == fallback.Granted) != free {
				t.Errorf("%d: %+v, free: %v", p, a, free)
			}
		}
	})
}

// The error of Swapped says that nothing was written only where that is so.
func TestSwapped(t *testing.T) {
	refused := fmt.Errorf("%w: too large", fallback.ErrRefused)
	for name, tt := range map[string]struct {
		done    []bool
		errs    []error
		nothing bool
	}{
		"refused":             {[]bool{false, false}, []error{refused, refused}, true},
		"one was overtaken":   {[]bool{false, false}, []error{refused, nil}, false},
		"one was written":     {[]bool{false, true}, []error{refused, nil}, false},
		"one may be written":  {[]bool{false, false}, []error{refused, errCut}, false},
		"none of both, twice": {[]bool{false, false}, []error{refused, fallback.ErrNotSent}, true},
	} {
		_, err := fallback.Swapped(tt.done, tt.errs)
		if some := new(fallback.SwapError); err == nil || errors.Is(err, fallback.ErrRefused) != tt.nothing || errors.As(err, &some) == tt.nothing {
			t.Errorf("%s: %#v", name, err)
		}
	}
	if done, err := fallback.Swapped([]bool{true, false}, make([]error, 2)); err != nil || !done[0] || done[1] {
		t.Errorf("%v, %v", done, err)
	}
}
