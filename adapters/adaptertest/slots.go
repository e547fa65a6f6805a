package adaptertest

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/coord"
)

// Slots is a scheduler that runs in each process. Run starts it, with a job that is due each
// period, in the process that has c. It returns a function that stops it and waits for running
// jobs.
type Slots struct {
	Period time.Duration
	Run    func(t *testing.T, c *coord.Coordinator, job func(ctx context.Context)) (stop func())
}

// RunSlots checks that two processes together run a job once per period, however short the job is.
// A crash in the middle must not end that.
func RunSlots(t *testing.T, s Slots) {
	t.Helper()
	for name, took := range map[string]time.Duration{"a job that takes no time": 0, "a job that takes half a period": s.Period / 2} {
		t.Run(name, func(t *testing.T) {
			inTime(t, false, func(t *testing.T) {
				w := newWorld(t, false)
				var mu sync.Mutex
				var began []time.Time
				job := func(context.Context) {
					mu.Lock()
					began = append(began, time.Now())
					mu.Unlock()
					time.Sleep(took)
				}
				stopA := s.Run(t, w.a, job)
				stopB := s.Run(t, w.b, job)
				time.Sleep(20*s.Period + 3*s.Period/4) // no job runs then: gocron waits for one busily, and virtual time stands still
				stopA()
				stopB()
				if n := len(began); n < 19 || n > 21 {
					t.Errorf("%d runs in 20 periods", n)
				}
				for i := range began {
					if i > 0 && began[i].Sub(began[i-1]) < s.Period/2 {
						t.Errorf("run %d began %v after the one before", i, began[i].Sub(began[i-1]))
					}
				}
			})
		})
	}
	t.Run("a process crashes in the middle", func(t *testing.T) {
		inTime(t, false, func(t *testing.T) {
			w := newWorld(t, false)
			crashed := make(chan struct{})
			var once sync.Once
			stopA := s.Run(t, w.a, func(ctx context.Context) {
				once.Do(func() { w.cut.Cut(); close(crashed) })
				<-time.After(30 * time.Second) // it does not come to its end while the other one begins
			})
			<-crashed
			var mu sync.Mutex
			runs := 0
			stopB := s.Run(t, w.b, func(context.Context) { mu.Lock(); runs++; mu.Unlock() })
			time.Sleep(15*time.Second + 5*s.Period)
			stopB()
			if runs < 3 {
				t.Errorf("%d runs after the crash", runs)
			}
			w.cut.Mend()
			stopA()
		})
	})
}
