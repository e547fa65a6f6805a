package gossip

import (
	"slices"
	"testing"
	"time"
)

// A member that is gone is out of the membership at once, whatever else changes; the rest waits as ever.
func TestDebounce_DropsWhatIsGone(t *testing.T) {
	begin := time.Unix(1, 0)
	d := newDebounce(2*time.Second, 10*time.Second, begin)
	gone := func(name string) bool { return name == "b" }
	if _, ok := d.drop(gone); ok {
		t.Error("nothing has settled, and something is dropped")
	}
	d.release(begin)
	d.observe(begin, []string{"a", "b", "c"})
	now := begin.Add(2 * time.Second)
	if got, ok := d.settle(now); !ok || len(got) != 3 {
		t.Fatal(got, ok)
	}
	d.observe(now, []string{"a", "c"})
	if got, ok := d.drop(gone); !ok || !slices.Equal(got, []string{"a", "c"}) {
		t.Errorf("the membership without b is %v, %v", got, ok)
	}
	if at, ok := d.due(); ok {
		t.Errorf("nothing else has changed, and something is due at %v", at)
	}
	if _, ok := d.drop(gone); ok {
		t.Error("b is dropped twice")
	}
	d.observe(now, []string{"a", "c", "d"})
	if got, ok := d.drop(func(name string) bool { return name == "c" }); !ok || !slices.Equal(got, []string{"a"}) {
		t.Errorf("the membership without c is %v, %v", got, ok)
	}
	if at, ok := d.due(); !ok || !at.Equal(now.Add(2*time.Second)) {
		t.Errorf("the new member is due at %v, %v", at, ok)
	}
}

// A process that was killed and has started again under its name takes the dead one's place at once: no other member has to give
// anything away.
func TestDebounce_AProcessThatStartsAgainTakesItsPlace(t *testing.T) {
	begin := time.Unix(1, 0)
	d := newDebounce(2*time.Second, 10*time.Second, begin)
	d.release(begin)
	d.observe(begin, []string{"shop-0/A", "shop-1/B", "shop-2/C"})
	now := begin.Add(2 * time.Second)
	if _, ok := d.settle(now); !ok {
		t.Fatal("nothing has settled")
	}
	d.observe(now, []string{"shop-0/A", "shop-1/B", "shop-1/Z", "shop-2/C", "shop-3/D"})
	got, ok := d.drop(func(name string) bool { return name == "shop-1/B" })
	if want := []string{"shop-0/A", "shop-1/Z", "shop-2/C"}; !ok || !slices.Equal(got, want) {
		t.Errorf("the membership is %v, %v, want %v", got, ok, want)
	}
	if at, ok := d.due(); !ok || !at.Equal(now.Add(2*time.Second)) {
		t.Errorf("the new member is due at %v, %v", at, ok)
	}
}
