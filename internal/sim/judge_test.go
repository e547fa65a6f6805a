package sim

import (
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/virtual"
)

// A reader may be let in before the caller knows that its lock is one for reading, and not if it
// does not become one.
func TestJudge_ReadersOfADowngrade(t *testing.T) {
	for name, x := range map[string]struct {
		reader uint64 // its token
		made   uint64 // that of the lock for reading; 0: there is none
		begun  bool   // to make it one, when the reader comes
		bad    bool
	}{
		"after it is one for reading": {6, 5, true, false},
		"before it is one":            {5, 6, true, true},
		"it is not made one":          {6, 0, true, true},
		"before it was begun":         {6, 5, false, true},
		"not begun, and not made one": {6, 0, false, true},
	} {
		h := newJudge(4 * time.Second)
		h.state = func(string) []string { return nil }
		by := &start{n: new(node), h: &host{clock: new(clock)}}
		at := func(token uint64) *grant {
			return &grant{by: by, ctx: t.Context(), token: token, called: time.Now(), at: time.Now()}
		}
		g := at(4)
		h.of("k").holder, h.of("k").token = g, g.token
		if x.begun {
			h.downgrading(g)
		}
		h.shares("k", &use{grant: at(x.reader)})
		if x.made > 0 {
			h.downgraded("k", g, &use{grant: at(x.made)})
		} else {
			h.notDowngraded("k", g)
		}
		if (len(h.bad) > 0) != x.bad || x.bad && !strings.Contains(h.bad[0], "I1: ") {
			t.Errorf("%s: %q", name, h.bad)
		}
	}
}

// A process that stood still for a moment has some time to notice its losses: its permits count
// before, unless they have ended, and after that.
func TestJudge_PermitsOfAProcessThatStoodStill(t *testing.T) {
	virtual.Test(t, func(t *testing.T) {
		h := newJudge(10 * time.Second)
		h.state = func(string) []string { return nil }
		at := func(by *start, token uint64, n int) *use {
			return &use{grant: &grant{by: by, ctx: t.Context(), token: token, called: time.Now(), at: time.Now()}, n: n}
		}
		stood := &start{n: new(node), h: &host{clock: newClock(1, 1, 1)}}
		other := &start{n: new(node), h: &host{clock: newClock(1, 1, 2)}}
		h.shares("k", at(stood, 1, semaphore))
		time.Sleep(time.Second)
		stood.h.clock.stand(200*time.Millisecond, 0)
		stood.h.clock.wait()
		h.shares("k", at(other, 2, 1))
		if len(h.bad) > 0 {
			t.Errorf("at once: %q", h.bad)
		}
		time.Sleep(10 * time.Second)
		if h.shares("k", at(other, 3, 1)); len(h.bad) == 0 || !strings.Contains(h.bad[0], "I1: ") {
			t.Errorf("it has had time to notice: %q", h.bad)
		}
	})
}
