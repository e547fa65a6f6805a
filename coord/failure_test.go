package coord_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
)

// Calls that fail are counted by reason, and a report has the last one of each operation.
func TestStats_CallsThatFailAreCountedByReason(t *testing.T) {
	bubble(t, func(t *testing.T, m *fallback.Memory) {
		a := &faulty{Arbiter: m}
		c := start(t, a, &coord.Options{Name: "anna"})
		if r := report(t, c); len(r.Failures) > 0 || len(c.Stats().Failures) > 0 {
			t.Errorf("%+v", r)
		}
		for err, want := range map[error]coord.Reason{
			fmt.Errorf("x: %w", fallback.ErrFull): coord.ReasonFull, fmt.Errorf("x: %w", fallback.ErrRefused): coord.ReasonRefused,
			fmt.Errorf("%w: %w", fallback.ErrRefused, fallback.ErrDenied): coord.ReasonDenied, fmt.Errorf("x: %w", fallback.ErrReadOnly): coord.ReasonReadOnly,
			fmt.Errorf("x: %w", context.DeadlineExceeded): coord.ReasonTimeout, errCut: coord.ReasonOther,
		} {
			before := c.Stats()
			a.set(func(op string) fault {
				if op == "renew" {
					return fault{err: err}
				}
				return fault{}
			})
			time.Sleep(3 * time.Second)
			a.mend()
			after, r := c.Stats(), report(t, c)
			renewals := coord.Failure{Op: coord.OpRenew, Reason: want}
			if n := after.Failures[renewals] - before.Failures[renewals]; n == 0 || n != after.Failed[coord.OpRenew]-before.Failed[coord.OpRenew] {
				t.Errorf("%v: %v, %v", err, after.Failures, after.Failed)
			}
			took, all := after.Outcomes[coord.Outcome{Op: coord.OpRenew, Error: want.String()}], uint64(0)
			for _, h := range after.Outcomes {
				all += h.Count()
			}
			if n := took.Count(); n != after.Failures[renewals] || all != after.Arbiter.Count() {
				t.Errorf("%v: %d renewals that failed have a time, of %d; %d calls in all of %d", err, n, after.Failures[renewals], all, after.Arbiter.Count())
			}
			if len(r.Failures) != 1 || r.Failures[0].Op != "renew" || r.Failures[0].Error != err.Error() ||
				len(r.Failing()) != 1 || r.Clock.Sub(r.Failures[0].Time) > 3*time.Second {
				t.Errorf("%v: %+v", err, r.Failures)
			}
			time.Sleep(5 * time.Second)
			r = report(t, c)
			if lasts := want == coord.ReasonFull || want == coord.ReasonRefused || want == coord.ReasonDenied; (len(r.Failing()) > 0) != lasts {
				t.Errorf("%v: %+v is what fails 5 s after the last failure", err, r.Failing())
			}
		}
		a.set(func(string) fault { return fault{answer: 400 * time.Millisecond} })
		time.Sleep(5 * time.Second)
		if r := report(t, c); r.Renewal != 400*time.Millisecond {
			t.Errorf("a renewal takes %v", r.Renewal)
		}
		a.mend()
		time.Sleep(time.Second) // an answer may be under way
	})
}

// A call that its caller cancelled is no failure of the arbiter, and is not counted; one that has
// taken too long is.
func TestStats_CallsThatAreCancelledAreNotCounted(t *testing.T) {
	bubble(t, func(t *testing.T, m *fallback.Memory) {
		c := start(t, silentResults{m}, nil)
		store, err := c.Results()
		if err != nil {
			t.Fatal(err)
		}
		for i, of := range []func() (context.Context, context.CancelFunc){
			func() (context.Context, context.CancelFunc) { return context.WithTimeout(t.Context(), time.Second) },
			func() (context.Context, context.CancelFunc) {
				ctx, cancel := context.WithCancel(t.Context())
				time.AfterFunc(time.Second, cancel)
				return ctx, cancel
			},
		} {
			ctx, cancel := of()
			_, err := store.Get(ctx, "k")
			cancel()
			s := c.Stats()
			if err == nil || s.Calls[coord.OpLoadResult] != 1 || s.Failed[coord.OpLoadResult] != 1 {
				t.Errorf("%d: %v; %d calls, %d failed", i, err, s.Calls[coord.OpLoadResult], s.Failed[coord.OpLoadResult])
			}
		}
	})
}

// silentResults is an arbiter that does not answer calls for results.
type silentResults struct{ fallback.Arbiter }

func (a silentResults) Attach(ctx context.Context, s fallback.Settings) (fallback.Namespace, error) {
	n, err := a.Arbiter.Attach(ctx, s)
	if err != nil {
		return nil, err
	}
	return withSilentResults{n, n.(fallback.ResultStore)}, nil
}

type withSilentResults struct {
	fallback.Namespace
	fallback.ResultStore
}

func (withSilentResults) LoadResult(ctx context.Context, _ uint32, _ string) (fallback.Result, error) {
	<-ctx.Done()
	return fallback.Result{}, ctx.Err()
}

func report(t *testing.T, c *coord.Coordinator) coord.NodeReport {
	t.Helper()
	r, err := c.Report(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestReason_Names(t *testing.T) {
	if !errors.Is(fallback.ErrFull, fallback.ErrRefused) {
		t.Error("a server without room does not refuse")
	}
	got := fmt.Sprint(coord.ReasonOther, coord.ReasonTimeout, coord.ReasonRefused, coord.ReasonFull, coord.ReasonDenied, coord.ReasonReadOnly, coord.Reason(9))
	if got != "other timeout refused full denied readonly Reason(9)" {
		t.Error(got)
	}
}
