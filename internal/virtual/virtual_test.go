package virtual_test

import (
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/virtual"
)

// With synctest.Test and the race detector on, this ends the process on two processors.
func TestFiredTimers(t *testing.T) {
	virtual.Test(t, func(*testing.T) {
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				for i := range 10_000 {
					select {
					case <-time.NewTimer(0).C:
					default:
					}
					if i%1000 == 0 {
						time.Sleep(time.Nanosecond)
					}
				}
			})
			time.AfterFunc(5*time.Nanosecond, func() {})
		}
		all.Wait()
	})
}
