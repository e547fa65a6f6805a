package subjects

import (
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/bench/report"
	"github.com/holdfast-go/holdfast/bench/stats"
)

func stallsAreSeen(t *testing.T, _ *Run, r report.Result) {
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("%q", r.Notes)
		}
	})
	if len(r.Figures) != 3 {
		t.Fatalf("%d figures", len(r.Figures))
	}
	for _, f := range r.Figures {
		if len(f.Timeline.Tracks) != 2 {
			t.Fatalf("%+v", f.Timeline)
		}
		for _, track := range f.Timeline.Tracks {
			if len(track.Events) == 0 || stats.Sum(track.Done) == 0 || slices.Max(track.Wait) == 0 || len(track.Done) != len(track.Wait) {
				t.Errorf("%s, %s: %+v", f.Timeline.Name, track.Name, track)
			}
		}
	}
	// What has its locks in Redis cannot lock while there is none: it is tried again for a while, and
	// fails. So the fault is committed, and it is seen.
	rival := r.Figures[2].Timeline.Tracks[1]
	if slices.Max(rival.Wait) < float64(stallSlow) && stats.Sum(rival.Failed) == 0 {
		t.Errorf("the rival did not notice that Redis was away: %+v", rival)
	}
	if c := named(t, r, "killed: longest wait"); c.Got < 1 {
		t.Errorf("a killed process's keys were free after %v s", c.Got)
	}
}

func TestStallBook(t *testing.T) {
	path := filepath.Join(t.TempDir(), "book")
	mine, unmapMine, err := openBook(path)
	if err != nil {
		t.Fatal(err)
	}
	defer unmapMine()
	other, unmapOther, err := openBook(path) // as another process would
	if err != nil {
		t.Fatal(err)
	}
	defer unmapOther()
	begin := time.Unix(1_800_000_000, 0)
	mine.begin.Store(begin.UnixNano())
	other.waited(begin.Add(250*time.Millisecond), 3*time.Second)
	mine.waited(begin.Add(290*time.Millisecond), time.Millisecond)
	mine.waited(begin.Add(-time.Second), time.Millisecond)
	mine.waited(begin.Add(time.Hour), time.Millisecond)
	for i, want := range map[int]time.Duration{0: time.Millisecond, 1: 0, 2: 3 * time.Second, stallMoments - 1: time.Millisecond} {
		if got := mine.moment[i].longest.Load(); got != int64(want) {
			t.Errorf("moment %d: %v, want %v", i, time.Duration(got), want)
		}
	}
	if h := mine.histogram(); h.Count() != 4 || h.Longest != 3*time.Second || mine.slow.Load() != 1 {
		t.Errorf("%d waits, longest %v, %d slow", h.Count(), h.Longest, mine.slow.Load())
	}
	for _, fence := range []uint64{1, 5, 5, 7, 0, 6} {
		other.granted(3, fence)
	}
	other.granted(4, 1)
	if got := mine.stale.Load(); got != 2 {
		t.Errorf("%d stale", got)
	}
}
