package coord

import (
	"slices"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/lease"
)

func TestSweep_Stale(t *testing.T) {
	begin := time.Now()
	at := func(s int) time.Time { return begin.Add(time.Duration(s) * time.Second) }
	x := newSweep(4, at(0), true)
	stale := func(now, grace, other int) []uint32 { return x.stale(at(now), at(grace), at(other)) }
	for _, tt := range []struct {
		what              string
		now, grace, other int
		saw               []uint32 // and then
		want              []uint32
	}{
		{"nothing has happened", 1, -5, -5, nil, nil},
		{"Grace was seen somewhere", 10, 9, -5, []uint32{1, 2}, []uint32{0, 1, 2, 3}},
		{"what was answered is not asked for again", 11, 9, -5, []uint32{0}, []uint32{0, 3}},
		{"nor because Grace began later elsewhere", 12, 11, -5, []uint32{3}, []uint32{3}},
		{"all is seen", 13, 11, -5, nil, nil},
		{"another server", 15, 14, 14, nil, []uint32{0, 1, 2, 3}},
	} {
		if got := stale(tt.now, tt.grace, tt.other); !slices.Equal(got, tt.want) {
			t.Errorf("%s: got %v, want %v", tt.what, got, tt.want)
		}
		for _, p := range tt.saw {
			x.saw(p, at(tt.now), 12*time.Second)
		}
	}
	if got := newSweep(2, at(0), false).stale(at(1), at(-1), time.Time{}); len(got) != 2 {
		t.Errorf("a session that begins in Grace looks at %v", got)
	}
}

// A node looks at its share at once, and at some of the others' partitions.
func TestLookAt(t *testing.T) {
	var all []uint32
	for p := range uint32(100) {
		all = append(all, p)
	}
	mine := func(p uint32) bool { return p%4 == 0 }
	got := lookAt(all, mine, 10)
	if len(got) != 35 || !slices.IsSorted(got[:25]) || slices.ContainsFunc(got[:25], func(p uint32) bool { return !mine(p) }) {
		t.Errorf("got %v", got)
	}
	if again := lookAt(all, mine, 10); slices.Equal(got[25:], again[25:]) {
		t.Errorf("twice the same ones of the others': %v", again[25:])
	}
	if got := lookAt(all[:1], mine, 10); len(got) != 1 {
		t.Errorf("got %v", got)
	}
}

// No call reads more than it may, all keys are read once, and only a partition's first snapshot is
// of its ownership.
func TestInReads(t *testing.T) {
	of := func(number uint32, keys, busy int) snapshot {
		k := snapshot{numbered(number), lease.Snapshot{Own: lease.Tenure{Epoch: 1}, Keys: make([]string, keys), Busy: busy}}
		k.Rows = make([]fallback.Row, keys)
		return k
	}
	all := []snapshot{of(0, 10_000, 5000), of(1, 0, 0), of(2, 100, 100)}
	for range 600 {
		all = append(all, of(3, 0, 0))
	}
	keys, busy, firsts := 0, 0, 0
	for _, call := range inReads(all) {
		n := 0
		for _, k := range call {
			n += len(k.Keys)
			busy += k.Busy
			if len(k.Rows) != len(k.Keys) || k.Further != (k.Own.Epoch == 0) {
				t.Errorf("%d keys, %d rows, further %t", len(k.Keys), len(k.Rows), k.Further)
			}
			if !k.Further {
				firsts++
			}
		}
		keys += n
		if n > keysPerCall || len(call) > readsPerCall {
			t.Errorf("%d keys of %d partitions in one call", n, len(call))
		}
	}
	if keys != 10_100 || busy != 5100 || firsts != len(all) {
		t.Errorf("%d keys, %d busy, %d partitions", keys, busy, firsts)
	}
}
