package coord_test

import (
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
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
		for _, text := range []string{"holdfast: the arbiter is another server now", "holdfast: Grace: nothing new is granted by the arbiter", "holdfast: Grace is over"} {
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
			got[0].attrs["key"].String() != `"k"` || got[0].attrs["fence"].String() != l.Fence().String() {
			t.Errorf("%v", got)
		}
	})
}
