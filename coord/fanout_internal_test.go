package coord

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/virtual"
)

// fanOut spreads calls that take as long as do says, and returns how many were in flight at the
// same time at most.
func fanOut(calls int, do func(call int)) (most int64, took time.Duration) {
	c := &Coordinator{opts: (&Options{}).filled()}
	list := make([]int, calls)
	for i := range list {
		list[i] = i
	}
	var running, highest atomic.Int64
	var work sync.WaitGroup
	begun := time.Now()
	spread(c, &work, list, balancers, func(i int) {
		if n := running.Add(1); n > highest.Load() {
			highest.Store(n)
		}
		do(i)
		running.Add(-1)
	})
	work.Wait()
	c.life.pool.Close()
	return highest.Load(), time.Since(begun)
}

// A server that has much to do is not given more to do because it is slow: calls would time out
// that it is at work on.
func TestSpread_OneBusyServer(t *testing.T) {
	virtual.Test(t, func(t *testing.T) {
		server := make(chan struct{}, 1) // does one thing at a time
		most, _ := fanOut(200, func(int) {
			server <- struct{}{}
			time.Sleep(25 * time.Millisecond)
			<-server
		})
		if most > 2*balancers {
			t.Errorf("%d calls were in flight, want %d at most", most, 2*balancers)
		}
	})
}

// A server of several that does not answer holds up nothing that others answer for.
func TestSpread_OneDeadServerOfSeveral(t *testing.T) {
	virtual.Test(t, func(t *testing.T) {
		_, took := fanOut(200, func(call int) {
			if call < 40 {
				time.Sleep(10 * time.Second)
			} else {
				time.Sleep(time.Millisecond)
			}
		})
		if took > 11*time.Second {
			t.Errorf("it took %v, want little more than 10 s", took)
		}
	})
}
