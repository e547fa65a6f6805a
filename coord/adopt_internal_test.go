package coord

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/gossip"
	"github.com/holdfast-go/holdfast/internal/lease"
)

func TestAdoption(t *testing.T) {
	o := (&Options{Cluster: &Cluster{Membership: gossip.Start, Takeover: -1}}).filled()
	for _, tt := range []struct {
		name   string
		took   time.Duration
		silent bool
		holds  int
		gone   bool
		left   time.Duration
		due    bool
		rests  bool
	}{
		{"all is well", time.Millisecond, false, 100, false, 6 * time.Second, false, true},
		{"renewals are late", time.Millisecond, false, 100, false, time.Second, false, false},
		{"its deadline nears", time.Millisecond, false, 100, false, 500 * time.Millisecond, true, false},
		{"many holds take longer", time.Millisecond, false, 200_000, false, 2 * time.Second, true, false},
		{"calls take long", time.Second, false, 100, false, 2400 * time.Millisecond, true, false},
		{"no more than R and two calls", 5 * time.Second, false, 1 << 30, false, 4501 * time.Millisecond, false, false},
		{"the owner is gone", time.Millisecond, false, 100, true, 6 * time.Second, true, false},
		{"nothing is asked of an arbiter that is away", time.Second, true, 100, true, 2 * time.Second, false, false},
		{"but at last", time.Second, true, 100, true, 1400 * time.Millisecond, true, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			x := adoptionOf(&o, tt.took, tt.silent, tt.holds)
			if due, rests := x.Due(tt.gone, tt.left), x.Trusts(tt.gone, tt.left); due != tt.due || rests != tt.rests {
				t.Errorf("%+v: due %t, rests %t; want %t, %t", x, due, rests, tt.due, tt.rests)
			}
		})
	}
}

// Where owners announce less, holds are adopted later, and given back for less.
func TestAdoption_WithTakeover(t *testing.T) {
	o := (&Options{Cluster: &Cluster{Membership: gossip.Start, Takeover: 3 * time.Second}}).filled()
	valid := o.promises().Valid()
	for name, x := range map[string]lease.Adoption{
		"all is well":     adoptionOf(&o, time.Millisecond, false, 100),
		"calls take long": adoptionOf(&o, 5*time.Second, false, 1<<30),
	} {
		if left := valid - o.pingEvery(); x.Due(false, left) || !x.Trusts(false, left) {
			t.Errorf("%s, an owner that answers for another %v: %+v", name, left, x)
		}
		if !x.Due(false, 400*time.Millisecond) {
			t.Errorf("%s: a hold is not adopted 400 ms before its deadline: %+v", name, x)
		}
	}
	if x := adoptionOf(&o, time.Second, true, 100); x.Due(true, valid-o.pingEvery()) || !x.Due(true, time.Second) {
		t.Errorf("an arbiter that is away: %+v", x)
	}
}

// Whatever the times are, holds are looked at twice in Lead and in Last at least, and once in the
// shortest grant; and an owner that meets its guardians in time may grant.
func TestAdoption_LooksAreInTime(t *testing.T) {
	for _, ttl := range []time.Duration{2 * time.Second, 10 * time.Second, 35 * time.Second, time.Hour} {
		for _, takeover := range []time.Duration{-1, minTakeover, 170 * time.Millisecond, time.Second, 3 * time.Second} {
			for _, renew := range []time.Duration{0, 100 * time.Millisecond} {
				o := (&Options{
					SessionTTL: ttl, RenewEvery: renew, Cluster: &Cluster{Membership: gossip.Start, Takeover: min(takeover, ttl/2)},
				}).filled()
				look, x := o.moment(), adoptionOf(&o, 0, false, 0)
				if look > x.Lead/2 || look > x.Last/2 || look > o.leastGrant() {
					t.Errorf("T %v, D %v, R %v: a look each %v, %+v, and a grant is good for %v", ttl, takeover, renew, look, x, o.leastGrant())
				}
				if left := o.promises().Valid() - 2*o.pingEvery(); takeover > 0 && left < o.leastGrant() {
					t.Errorf("T %v, D %v, R %v: an owner with %v left does not grant: %v", ttl, takeover, renew, left, o.leastGrant())
				}
			}
		}
	}
}

// A pass begins with few calls, is wide open when the arbiter answers, and ends when it does not
// answer at all. One of several servers that does not answer ends none.
func TestWindow(t *testing.T) {
	for spread, x := range map[bool]struct{ first, most, patient int }{
		false: {2, reclaimers, 1},
		true:  {reclaimers / 2, 4 * reclaimers, reclaimers},
	} {
		w := newWindow(spread)
		if !w.open(x.first-1) || w.open(x.first) {
			t.Errorf("spread %t: %+v is not open for %d at first", spread, w, x.first)
		}
		for range 10 {
			w.ended(nil)
		}
		for range 100 {
			w.ended(errExpired)
		}
		if !w.open(x.most-1) || w.open(x.most) {
			t.Errorf("spread %t: %+v is not open for %d", spread, w, x.most)
		}
		w = newWindow(spread)
		for range x.patient {
			if !w.open(0) {
				t.Fatalf("spread %t: %+v is shut", spread, w)
			}
			w.ended(errExpired)
		}
		if w.open(0) {
			t.Errorf("spread %t: open, though nothing was answered", spread)
		}
	}
}

// Owners come first. Each partition has its turn before one that has many holds has its second.
func TestInCalls(t *testing.T) {
	many, few, other := numbered(1), numbered(2), numbered(3)
	hold := make([]fallback.Claim, 1200)
	own := lease.Claims{Own: lease.Tenure{Epoch: 1}, Holds: hold[:1]}
	all := []claims{{many, lease.Claims{Holds: hold}}, {few, own}, {other, own}, {p: few}}
	for _, tt := range []struct {
		spread bool
		want   string // of each call: the partitions, and of how many holds, none for an owner
	}{
		{false, "2:0 3:0 | 1:256 2:1 3:1 1:256 1:256 | 1:256 1:176"},
		{true, "2:0 | 3:0 | 1:256 | 2:1 | 3:1 | 1:256 | 1:256 | 1:256 | 1:176"},
	} {
		var got []string
		for i, call := range inCalls(all, tt.spread) {
			if i > 0 {
				got = append(got, "|")
			}
			for _, x := range call {
				if (x.Own.Epoch > 0) != (len(x.Holds) == 0) {
					t.Errorf("a call has an owner's claim with %d holds", len(x.Holds))
				}
				got = append(got, fmt.Sprintf("%d:%d", x.p.Number(), len(x.Holds)))
			}
		}
		if got := strings.Join(got, " "); got != tt.want {
			t.Errorf("spread %t: got %s, want %s", tt.spread, got, tt.want)
		}
	}
}

// numbered returns a partition that has a number, and nothing else.
func numbered(n uint32) *partition {
	p := new(partition)
	p.Init(&lease.Config{}, n)
	return p
}

// A partition is in one pass at a time, until that has gone on after its call.
func TestAdopting(t *testing.T) {
	a, b := due(numbered(1), 1), due(numbered(2), 1)
	x := adopting{busy: make(map[*partition]underway)}
	is := func(what string, these, want []claims) {
		t.Helper()
		if len(these) != len(want) || len(these) > 0 && these[0].p != want[0].p {
			t.Errorf("%s: %d partitions", what, len(these))
		}
	}
	first, these := x.begin([]claims{a}, 2)
	is("the first", these, []claims{a})
	second, these := x.begin([]claims{a, b}, 2)
	is("beside it", these, []claims{b})
	_, these = x.begin([]claims{a}, 3)
	is("again", these, nil)
	x.called(first, []claims{a}, false)
	_, these = x.begin([]claims{a}, 2)
	is("of more than are to be", these, nil)
	x.end(second, []claims{b})
	third, these := x.begin([]claims{a, b}, 2)
	is("after the call", these, []claims{a, b})
	x.end(first, []claims{a})
	_, these = x.begin([]claims{a}, 9)
	is("when another pass has ended", these, nil)
	if !x.vain() {
		t.Error("no call of a pass that has ended was answered")
	}
	x.called(third, []claims{a}, true)
	if x.end(third, []claims{a, b}); x.running() || x.vain() {
		t.Error("none is under way, and a call was answered")
	}
}
