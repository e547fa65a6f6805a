package coord_test

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
)

// Processes change their arbiter one after another, by the procedure of docs/arbiters.md. The old
// release locks at the old arbiter, and the next one at both, the old one first. The last release
// locks at the new arbiter. No two hold a key at the same time. Without the release in between they
// do.
func TestMove_ProcessesChangeTheirArbiterOneAfterAnother(t *testing.T) {
	for _, between := range []bool{true, false} {
		bubble(t, func(t *testing.T, old *fallback.Memory) {
			const processes = 3
			next := fallback.NewMemory()
			var release [processes]atomic.Int32
			var inside, overlaps, sections atomic.Int32
			var running sync.WaitGroup
			done := make(chan struct{})
			for i := range processes {
				one, two := start(t, old, nil), start(t, next, &coord.Options{Namespace: "moved"})
				running.Go(func() {
					for {
						select {
						case <-done:
							return
						default:
						}
						var held []coord.Lock
						now := release[i].Load()
						if now < 2 {
							held = append(held, lock(t, one, "k"))
						}
						if now > 0 {
							held = append(held, lock(t, two, "k"))
						}
						if inside.Add(1) > 1 {
							overlaps.Add(1)
						}
						time.Sleep(time.Millisecond)
						inside.Add(-1)
						sections.Add(1)
						for _, l := range held {
							unlock(t, l)
						}
					}
				})
			}
			for to := range int32(3) {
				for i := range release {
					if between || to == 2 {
						release[i].Store(to)
					}
					time.Sleep(150 * time.Millisecond)
				}
			}
			close(done)
			running.Wait()
			t.Logf("with a release in between: %t: %d sections, %d overlaps", between, sections.Load(), overlaps.Load())
			if none := overlaps.Load() == 0; none != between || sections.Load() < 100 {
				t.Errorf("with a release in between: %t: %d sections, %d overlaps", between, sections.Load(), overlaps.Load())
			}
		})
	}
}
