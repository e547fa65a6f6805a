package fallback_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/fallback/arbitertest"
	"github.com/holdfast-go/holdfast/internal/virtual"
)

func TestMemoryConforms(t *testing.T) {
	t.Parallel()
	shared := fallback.NewMemory()
	arbitertest.Run(t, arbitertest.Fixture{
		New: func(*testing.T) fallback.Arbiter { return shared },
		NewServer: func(*testing.T) arbitertest.Server {
			m := fallback.NewMemory()
			var saved *fallback.Snapshot
			return arbitertest.Server{
				Arbiter: m,
				Save:    func() { saved = m.Snapshot() },
				Crash:   func() { m.Restore(saved) },
			}
		},
	})
}

// attachMemory attaches to the namespace "ns" of a Memory.
func attachMemory(t *testing.T, m *fallback.Memory) fallback.Namespace {
	t.Helper()
	s := plain
	s.Grace = quiet
	n, err := m.Attach(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// A test of another program may crash the store in a bubble, in the bubble's time.
func TestMemoryInABubble(t *testing.T) {
	virtual.Test(t, func(t *testing.T) {
		m := fallback.NewMemory()
		n := attachMemory(t, m)
		open(t, n, "alice")
		last := lock(t, n, 0, "k", id("alice", 1))
		for range 3 {
			m.Restore(nil)
			if a := lock(t, n, 0, "k", id("bob", 1)); a.Verdict != fallback.InGrace || a.Record.Grace != quiet {
				t.Errorf("Lock after the crash: got %+v, want in grace for %v", a, quiet)
			}
			time.Sleep(quiet)
			a := lock(t, n, 0, "k", id("bob", 1))
			if a.Verdict != fallback.Granted || a.Token <= last.Token {
				t.Errorf("Lock after Grace: got %+v, want a token above %v", a, last.Token)
			}
			last = a
		}
	})
}

func TestSessionExpiresInABubble(t *testing.T) {
	virtual.Test(t, func(t *testing.T) {
		n := attachMemory(t, fallback.NewMemory())
		if _, err := n.Open(t.Context(), "alice", fallback.Registration{TTL: 10 * time.Second}); err != nil {
			t.Fatal(err)
		}
		dead := func() bool {
			l, err := n.Dead(t.Context(), "alice", fallback.Stamp{})
			if err != nil {
				t.Fatal(err)
			}
			return l.Dead
		}
		time.Sleep(10*time.Second - time.Millisecond)
		want(t, "dead at the last moment", dead(), false)
		time.Sleep(time.Millisecond)
		want(t, "dead after it", dead(), true)
	})
}

func TestSnapshotIsACopy(t *testing.T) {
	m := fallback.NewMemory()
	n := attachMemory(t, m)
	early := lock(t, n, 0, "early", id("alice", 1))
	s := m.Snapshot()
	for range 2 { // it can be restored more than once
		lock(t, n, 0, "late", id("alice", 2))
		if err := errors.Join(n.Unlock(t.Context(), []fallback.Release{{Key: "early", Identity: id("alice", 1)}})...); err != nil {
			t.Fatal(err)
		}
		m.Restore(s)
		states, err := fallback.Verify(t.Context(), n, []fallback.Read{{Keys: []string{"early", "late"}}})
		if err != nil {
			t.Fatal(err)
		}
		want(t, "rows", states[0].Rows, []fallback.Row{{Identity: id("alice", 1), Token: early.Token}, {}})
		want(t, "in Grace", states[0].Record.Grace > 0, true)
	}
}

// A listener that does not keep up loses messages, and is told so; the arbiter does not wait for
// it.
func TestSlowListenerIsToldOfAGap(t *testing.T) {
	virtual.Test(t, func(t *testing.T) {
		n := attachMemory(t, fallback.NewMemory())
		proceed := make(chan struct{})
		var got []fallback.Message
		stop, err := n.Listen(t.Context(), "alice", func(m fallback.Message) {
			<-proceed
			got = append(got, m)
		})
		if err != nil {
			t.Fatal(err)
		}
		lock(t, n, 0, "k", id("alice", 1))
		const many = 10_000
		for i := range uint64(many) {
			lock(t, n, 0, "k", id("bob", i)) // asks alice
		}
		close(proceed)
		synctest.Wait()
		lock(t, n, 0, "k", id("bob", many))
		synctest.Wait()
		stop()
		gaps := 0
		for _, m := range got {
			if m.Kind == fallback.Gap {
				gaps++
			}
		}
		if gaps == 0 || len(got)-gaps >= many || got[len(got)-1].Kind != fallback.Ask {
			t.Errorf("%d messages, %d of them gaps, the last one %+v", len(got), gaps, got[len(got)-1])
		}
	})
}
