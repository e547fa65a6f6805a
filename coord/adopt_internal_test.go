package coord

import (
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/gossip"
	"github.com/holdfast-go/holdfast/internal/lease"
)

func TestAdoption(t *testing.T) {
	o := (&Options{Cluster: &Cluster{Membership: gossip.Start}}).filled()
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
			if due, rests := x.Due(tt.gone, tt.left), x.Rests(tt.gone, tt.left); due != tt.due || rests != tt.rests {
				t.Errorf("%+v: due %t, rests %t; want %t, %t", x, due, rests, tt.due, tt.rests)
			}
		})
	}
}

// A pass begins with few calls, is wide open when the arbiter answers, and ends when it does not answer at all.
func TestWindow(t *testing.T) {
	var w window
	for n, open := range []bool{true, true, false} {
		if w.open(n) != open {
			t.Errorf("at first, with %d in flight: open is %t", n, !open)
		}
	}
	for range 10 {
		w.ended(nil)
	}
	w.ended(errExpired)
	if !w.open(reclaimers-1) || w.open(reclaimers) {
		t.Errorf("%+v is not open for %d", w, reclaimers)
	}
	var shut window
	shut.ended(errExpired)
	if shut.open(0) {
		t.Error("open, though nothing was answered")
	}
}

// Each partition has its turn before one that has many holds has its second.
func TestInCalls(t *testing.T) {
	many, few := numbered(1), numbered(2)
	hold := make([]fallback.Claim, 600)
	calls := inCalls([]claims{
		{many, lease.Claims{Holds: hold}}, {few, lease.Claims{Own: lease.Tenure{Epoch: 1}, Holds: hold[:1]}}, {p: few},
	})
	var got [][2]int
	for _, x := range calls {
		got = append(got, [2]int{int(x.p.Number()), len(x.Holds)})
	}
	want := [][2]int{{1, 256}, {2, 0}, {2, 1}, {1, 256}, {1, 88}}
	if len(got) != len(want) {
		t.Fatalf("got %v, want %v", got, want)
	}
	for i := range want {
		if got[i] != want[i] || i == 1 && calls[i].Own.Epoch == 0 {
			t.Fatalf("got %v, want %v", got, want)
		}
	}
}

// numbered returns a partition that has a number, and nothing else.
func numbered(n uint32) *partition {
	p := new(partition)
	p.Init(&lease.Config{}, n)
	return p
}
