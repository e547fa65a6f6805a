package coord_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/redistest"
)

func TestAnnounce_ReachesWatchersOfAllProcesses(t *testing.T) {
	t.Run("in memory", func(t *testing.T) { a := fallback.NewMemory(); testAnnounce(t, a, a) })
	t.Run("Redis", func(t *testing.T) {
		s := redistest.Start(t)
		testAnnounce(t, overRedis(t, s), overRedis(t, s))
	})
}

func testAnnounce(t *testing.T, a, b fallback.Arbiter) {
	c, other := start(t, a, nil), start(t, b, nil)
	apart := start(t, b, &coord.Options{Namespace: "apart"})
	here, stop := c.Watch("k")
	defer stop()
	there, stop := other.Watch("k")
	defer stop()
	elsewhere, stop := apart.Watch("k")
	defer stop()
	another, stop := other.Watch("another")
	defer stop()
	if err := c.Announce(t.Context(), "k"); err != nil {
		t.Fatal(err)
	}
	<-here
	<-there
	if err := other.Announce(t.Context(), "another"); err != nil { // it comes after what is to be missing
		t.Fatal(err)
	}
	<-another
	select {
	case <-elsewhere:
		t.Error("a watcher in another namespace was told")
	default:
	}
}

// A watcher that may have missed something is told to look.
func TestWatch_IsToldOfAGap(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		c := start(t, a, nil)
		changed, stop := c.Watch("k")
		a.Restore(a.Snapshot())
		<-changed
		stop()
		stop()
		if err := c.Announce(t.Context(), "k"); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if len(changed) > 0 {
			t.Error("told after stop")
		}
	})
}

func TestExpectLong_SilencesRecords(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		var out bytes.Buffer
		logger := slog.New(slog.NewTextHandler(&out, nil))
		c, other := start(t, a, nil), start(t, a, &coord.Options{Logger: logger, LongWait: time.Second, LongHold: time.Second})
		stop := other.ExpectLong("k")
		l := lock(t, c, "k")
		done := make(chan struct{})
		go func() {
			defer close(done)
			l := lock(t, other, "k")
			time.Sleep(5 * time.Second)
			l.Unlock()
		}()
		time.Sleep(5 * time.Second)
		l.Unlock()
		<-done
		if s := out.String(); strings.Contains(s, "for long") {
			t.Error(s)
		}
		stop()
		l = lock(t, other, "k")
		time.Sleep(5 * time.Second)
		l.Unlock()
		if s := out.String(); strings.Count(s, "held for long") != 1 {
			t.Error(s)
		}
	})
}
