package coord_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
)

var errDenied = errors.New("NOPERM")

// denying is an arbiter whose access list leaves out what denied says.
type denying struct {
	fallback.Arbiter
	mu     sync.Mutex
	denied string // protected by mu
}

func (d *denying) deny(call string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.denied = call
}

func (d *denying) err(call string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.denied == call {
		return errDenied
	}
	return nil
}

func (d *denying) Attach(ctx context.Context, s fallback.Settings) (fallback.Namespace, error) {
	n, err := d.Arbiter.Attach(ctx, s)
	return &denyingSpace{n, d}, err
}

type denyingSpace struct {
	fallback.Namespace
	d *denying
}

func (n *denyingSpace) Rows(ctx context.Context, partitions []uint32) ([]map[string]fallback.Row, error) {
	if err := n.d.err("rows"); err != nil {
		return nil, err
	}
	return n.Namespace.(fallback.Lister).Rows(ctx, partitions)
}

func (n *denyingSpace) Waiters(ctx context.Context, p uint32, key string, most int) ([]fallback.Release, error) {
	if err := n.d.err("waiters"); err != nil {
		return nil, err
	}
	return n.Namespace.(fallback.WaiterLister).Waiters(ctx, p, key, most)
}

func (n *denyingSpace) Rotate(ctx context.Context) error {
	return errors.Join(n.d.err("rotate"), n.Namespace.Rotate(ctx))
}

func (n *denyingSpace) Advise(context.Context) ([]string, error) { return nil, n.d.err("advise") }

// Calls that an arbiter's access list may leave out, as no lock needs them, fail with a sign: in
// Stats, in reports and in the trace.
func TestStats_RareCallsThatFail(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		d := &denying{Arbiter: a}
		var mu sync.Mutex
		traced := make(map[coord.Op]int) // protected by mu: errors
		c := start(t, d, &coord.Options{Trace: &coord.Trace{Call: func(i coord.CallInfo) {
			mu.Lock()
			defer mu.Unlock()
			if errors.Is(i.Err, errDenied) {
				traced[i.Op]++
			}
		}}})
		l := lock(t, c, "k")
		look := func() { time.Sleep(5 * time.Minute) } // 12 renewals
		for _, x := range []struct {
			call string
			op   coord.Op
			do   func()
		}{
			{"rows", coord.OpRows, look},
			{"waiters", coord.OpRows, look},
			{"waiters", coord.OpRows, func() { _, _ = c.Inspect(t.Context(), "k") }},
			{"rotate", coord.OpRotate, func() {
				if err := c.RotateSecret(t.Context()); !errors.Is(err, errDenied) {
					t.Error(err)
				}
			}},
			{"advise", coord.OpAdvise, look},
		} {
			before, calls := c.Stats().Failed[x.op], c.Stats().Calls[x.op]
			d.deny(x.call)
			mu.Lock()
			clear(traced)
			mu.Unlock()
			x.do()
			s := c.Stats()
			mu.Lock()
			if s.Failed[x.op] == before || s.Calls[x.op] == calls || traced[x.op] == 0 {
				t.Errorf("%s: %d failed, before %d; traced %d", x.call, s.Failed[x.op], before, traced[x.op])
			}
			mu.Unlock()
		}
		unlock(t, l)
	})
}
