package gossip

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/internal/virtual"
	"github.com/holdfast-go/holdfast/ring"
)

// Each step: at second N something happens, and then a settlement is due at second M (-1: none).
// "joined": another node has placed this one.
func TestDebounce(t *testing.T) {
	type step struct {
		at      float64
		do      string // a membership, "released", or "settle [membership]": it settles as that, or not at all
		nextDue float64
	}
	for name, steps := range map[string][]step{
		"nobody, at first": {
			{0, "released", 2}, {1.9, "settle no", 2}, {2, "settle ", -1},
		},
		"held until most, then alone": {
			{0, "a", 10}, {9.9, "settle no", 10}, {10, "settle a", -1}, {11, "released", -1}, {12, "a b", 14},
		},
		"quiet counts from the release": {
			{0, "a", 10}, {3, "released", 5}, {4, "a b", 6}, {6, "settle a b", -1},
		},
		"released twice": {
			{0, "released", 2}, {1, "released", 2}, {2, "settle ", -1},
		},
		"each change starts quiet anew, up to most": {
			{0, "released", 2}, {1, "a", 3}, {2.5, "a b", 4.5}, {4, "a b c", 6}, {5.5, "a b", 7.5}, {7, "a", 9}, {8.5, "a b", 10},
			{9.5, "a", 10}, {10, "settle a", -1}, {10.5, "a b", 12.5}, {12.5, "settle a b", -1},
		},
		"the same again is no change": {
			{0, "released", 2}, {1, "a", 3}, {2, "a", 3}, {3, "settle a", -1}, {4, "a", -1},
		},
		"somebody comes and goes": {
			{0, "released", 2}, {0, "a", 2}, {2, "settle a", -1}, {3, "a b", 5}, {4, "a", -1}, {5, "settle no", -1},
			{6, "a b", 8}, {8, "settle a b", -1},
		},
		"most counts from the first difference to what is settled": {
			{0, "released", 2}, {0, "a", 2}, {2, "settle a", -1}, {3, "a b", 5}, {4, "a", -1}, {20, "a b", 22}, {21, "a c", 23},
			{23, "settle a c", -1},
		},
		"placed by another one: at once, and only the first time": {
			{0, "released", 2}, {0.4, "a b", 2.4}, {1.5, "joined", 1.5}, {1.5, "settle a b", -1}, {2, "a", 4}, {3, "joined", 4},
		},
		"placed by another one, with nodes that others have not settled": {
			{0, "a b", 10}, {0, "released", 2}, {0.6, "a b c", 2.6}, {2.3, "a b c d", 4.3}, {2.7, "joined", 2.7}, {2.7, "settle a b c", 4.3}, {4.3, "settle a b c d", -1},
		},
		"placed by another one, before it has looked": {
			{0, "a", 10}, {1, "joined", 10}, {1.5, "settle no", 10}, {2, "released", 4}, {2, "joined", 2}, {2, "settle a", -1},
		},
		"late": {
			{0, "released", 2}, {0, "a", 2}, {60, "settle a", -1},
		},
	} {
		t.Run(name, func(t *testing.T) {
			start := time.Now()
			d := newDebounce(2*time.Second, 10*time.Second, start)
			for i, s := range steps {
				now := start.Add(time.Duration(s.at * float64(time.Second)))
				want, settles := strings.CutPrefix(s.do, "settle ")
				switch {
				case settles:
					members, ok := d.settle(now)
					if got := strings.Join(members, " "); ok != (want != "no") || ok && got != want {
						t.Errorf("step %d: settled %v as %q, want %q", i, ok, got, want)
					}
				case s.do == "released":
					d.release(now)
				case s.do == "joined":
					d.join(now)
				default:
					d.observe(now, strings.Fields(s.do))
				}
				due := -1.0
				if at, ok := d.due(); ok {
					due = at.Sub(start).Seconds()
				}
				if due != s.nextDue {
					t.Errorf("step %d, %q: due at %v, want %v", i, s.do, due, s.nextDue)
				}
			}
		})
	}
}

// The ring's goroutine with the clock of a bubble, and with the roster in the place of memberlist.
// Section 8: Debounce.
func TestViewsOverTime(t *testing.T) {
	virtual.Test(t, func(t *testing.T) {
		opts := options("a")
		opts.Debounce, opts.MaxDebounce = 0, 0
		r, err := newRing(opts)
		if err != nil {
			t.Fatal(err)
		}
		r.self.NodeMeta(512) // nothing is left to tell
		r.wg.Go(r.run)
		defer r.wg.Wait()
		defer r.cancel()

		set := func(n ring.Node) {
			r.roster.mu.Lock()
			r.roster.nodes[n.Name] = n
			r.roster.mu.Unlock()
			r.roster.poke()
			synctest.Wait()
		}
		after := func(d time.Duration, members int) *ring.View {
			t.Helper()
			time.Sleep(d)
			synctest.Wait()
			v := r.View()
			if n := len(v.Placement().Members()); n != members {
				t.Errorf("%d members are placed, want %d", n, members)
			}
			return v
		}
		a, b := ring.Node{Name: "a", State: ring.Active, Session: "s1"}, ring.Node{Name: "b", State: ring.Active}
		set(a)
		v := after(5*time.Second, 0)
		if !v.Settled().IsZero() || len(v.Nodes()) != 1 {
			t.Errorf("settled %v, nodes %v", v.Settled(), v.Nodes())
		}
		r.searched.Store(true)
		r.roster.poke()
		after(2*time.Second-1, 0)
		v = after(1, 1)
		if v.Settled() != time.Now() || !v.Stable() {
			t.Errorf("settled %v, stable %v", v.Settled(), v.Stable())
		}

		set(b)
		if m := r.Members(); len(m) != 2 {
			t.Errorf("members %v: not at once", m)
		}
		after(time.Second, 1)
		a.Session = "s2"
		set(a) // is no change of the membership
		w := after(0, 1)
		if w.Stable() {
			t.Error("stable, and b is not placed")
		}
		if n, ok := w.BySession("s2"); !ok || n.Name != "a" || w.Placement() != v.Placement() {
			t.Errorf("%+v", n)
		}
		after(time.Second-1, 1)
		select {
		case <-v.Resettled():
			t.Error("too early")
		default:
		}
		w = after(1, 2)
		<-v.Resettled()
		<-v.Replaced()

		// A flap makes Views, and no placement.
		for range 30 {
			b.State = ring.Joining
			set(b)
			after(time.Second, 2)
			b.State = ring.Active
			set(b)
			after(time.Second, 2)
		}
		if r.View().Placement() != w.Placement() || r.View().Settled() != w.Settled() {
			t.Error("a flap was settled")
		}

		// Changes that never end are settled after 10 s.
		for i := range 10 {
			set(ring.Node{Name: "c" + string(rune('0'+i)), State: ring.Active})
			after(time.Second-1, 2)
			time.Sleep(time.Nanosecond)
		}
		after(0, 12)

		// Nothing new: no View.
		v = r.View()
		r.roster.poke()
		if after(time.Hour, 12) != v {
			t.Error("a View for nothing")
		}
	})
}

// The search for others is rarer and rarer, but happens at once when it is asked for. Then it is
// often again.
func TestSearch(t *testing.T) {
	virtual.Test(t, func(t *testing.T) {
		opts := options("a")
		opts.RediscoverEvery = time.Hour
		var searches atomic.Int64
		opts.Discover = func(context.Context) ([]string, error) {
			searches.Add(1)
			return nil, errors.New("not known yet")
		}
		r, err := newRing(opts)
		if err != nil {
			t.Fatal(err)
		}
		r.wg.Go(r.searchOthers)
		defer r.wg.Wait()
		defer r.cancel()
		time.Sleep(5 * time.Hour)
		synctest.Wait()
		for range 3 {
			before := searches.Load()
			r.Search()
			r.Search()
			synctest.Wait()
			if n := searches.Load() - before; n < 1 || n > 2 {
				t.Errorf("%d searches without any time, want 1 or 2", n)
			}
		}
		before := searches.Load()
		time.Sleep(time.Second)
		synctest.Wait()
		if n := searches.Load() - before; n < 1 || n > 3 {
			t.Errorf("%d searches in the next second, want 1 to 3", n)
		}
		if r.searched.Load() {
			t.Error("it is said that everybody was found")
		}
	})
}
