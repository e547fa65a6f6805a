package coord_test

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/await"
)

// A process without a session says whether its arbiter is away, or answers and lacks replicas.
func TestLog_WhyThereIsNoSession(t *testing.T) {
	for err, text := range map[error]string{
		fmt.Errorf("x: %w", fallback.ErrReplicas): "holdfast: no session: too few replicas of the arbiter are there",
		errCut: "holdfast: no session: the arbiter cannot be reached",
	} {
		bubble(t, func(t *testing.T, m *fallback.Memory) {
			a := &faulty{Arbiter: m}
			a.set(func(op string) fault {
				if op == "open" {
					return fault{err: err}
				}
				return fault{}
			})
			h := newRecords()
			o := named("one", h)
			o.StartUnavailable = true
			start(t, a, o)
			time.Sleep(3 * time.Second)
			if all := h.atLeast(slog.LevelWarn); len(all) != 1 || len(h.about(text)) != 1 {
				t.Errorf("%v: %v", err, all)
			}
			a.mend()
		})
	}
}

// A failover and a start in Grace say so, and the loss of a single lock too.
func TestLog_GraceAndASingleLoss(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		h, late := newRecords(), newRecords()
		c := start(t, a, named("one", h))
		l := lock(t, c, "k")
		a.Restore(nil)
		time.Sleep(3 * time.Second)
		start(t, a, named("two", late))
		time.Sleep(time.Minute)
		unlock(t, l)
		for _, text := range []string{"holdfast: the arbiter was restarted, or another server has taken over", "holdfast: Grace: nothing new is granted by the arbiter", "holdfast: Grace is over"} {
			if n := len(h.about(text)); n != 1 {
				t.Errorf("%d records %q", n, text)
			}
		}
		grace := late.about("holdfast: Grace: nothing new is granted by the arbiter")
		if len(grace) != 1 || grace[0].level != slog.LevelWarn || grace[0].attrs["left"].Duration() <= 0 || len(late.about("holdfast: Grace is over")) != 1 {
			t.Errorf("a start in Grace: %v", grace)
		}
		if got := h.about("holdfast: locks lost"); len(got) != 0 {
			t.Errorf("%v", got)
		}

		l = lock(t, c, "k")
		removeRows(t, a)
		time.Sleep(time.Minute)
		got := h.about("holdfast: locks lost")
		if len(got) != 1 || got[0].attrs["count"].Int64() != 1 || got[0].attrs["cause"].Any() != coord.Superseded ||
			got[0].attrs["key"].String() != "k" || got[0].attrs["fence"].String() != l.Fence().String() {
			t.Errorf("%v", got)
		}
	})
}

// The record of a lost session counts the same locks as that of lost locks, though a holder may
// have lost one before the session was taken away.
func TestLog_ALostSessionAndItsLocks(t *testing.T) {
	t.Parallel()
	h := newRecords()
	c := start(t, fallback.NewMemory(), &coord.Options{Logger: slog.New(h)})
	for i := range 3 {
		lock(t, c, fmt.Sprint("k", i))
	}
	if !coord.StepClock(c, c.Stats().Session, 3600) {
		t.Fatal("no session")
	}
	for text, attr := range map[string]string{"holdfast: session lost, and all locks with it": "locks", "holdfast: locks lost": "count"} {
		await.Until(t, text, func() bool { return len(h.about(text)) > 0 })
		if r := h.about(text)[0]; r.attrs[attr].Int64() != 3 {
			t.Errorf("%v, want 3", r)
		}
	}
	if r := h.about("holdfast: session lost, and all locks with it")[0]; !strings.Contains(fmt.Sprint(r.attrs["error"]), "its clock stepped forward by 1h0m0s") {
		t.Errorf("%v", r)
	}
}

// A server that has come back with this session says that its data are kept, and one that is empty
// that they are lost.
func TestLog_ARestartWithAndWithoutData(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		h := newRecords()
		start(t, a, named("one", h))
		for i, want := range []string{"kept", "lost, or older than this session"} {
			if want == "kept" {
				a.Restore(a.Snapshot())
			} else {
				a.Restore(nil)
			}
			time.Sleep(time.Minute)
			all := h.about("holdfast: the arbiter was restarted, or another server has taken over")
			if len(all) != i+1 || all[i].attrs["data"].String() != want {
				t.Errorf("%v, want %s", all, want)
			}
		}
	})
}
