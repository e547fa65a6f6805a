package debug

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// Requests that come while a slow node is asked get its answer, and do not ask it one after another; one whose client goes does not wait.
func TestLooks_ASlowNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rounds := 0
		l := &looks{turn: make(chan struct{}, 1), ask: func(context.Context) *Overview {
			rounds++
			time.Sleep(2 * time.Second)
			return &Overview{}
		}}
		began := time.Now()
		var all sync.WaitGroup
		for range 20 {
			all.Go(func() {
				if l.look(t.Context()) == nil {
					t.Error("no answer")
				}
			})
		}
		synctest.Wait()
		gone, leave := context.WithTimeout(t.Context(), time.Second)
		defer leave()
		if o, late := l.look(gone), time.Since(began); o != nil || late != time.Second {
			t.Errorf("a client that has gone: %v, after %v", o, late)
		}
		all.Wait()
		if late := time.Since(began); rounds != 1 || late != 2*time.Second {
			t.Errorf("%d rounds of questions, %v", rounds, late)
		}
		time.Sleep(999 * time.Millisecond)
		if l.look(t.Context()); rounds != 1 {
			t.Error("it asks again within a second")
		}
		time.Sleep(time.Millisecond)
		if l.look(t.Context()); rounds != 2 {
			t.Error("it does not ask again after a second")
		}
	})
}
