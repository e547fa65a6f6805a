package rivals

import (
	"sync"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestKeyedMutex(t *testing.T) {
	var k KeyedMutex
	var work sync.WaitGroup
	n := make([]int, 3)
	for range 4 {
		work.Go(func() {
			for i := range 300 {
				key := "abc"[i%3 : i%3+1]
				k.Lock(key)
				n[i%3]++ // the race detector would see two at a time
				k.Unlock(key)
			}
		})
	}
	work.Wait()
	if n[0] != 400 || n[1] != 400 || n[2] != 400 || len(k.keys) != 0 {
		t.Errorf("%v, %d keys left", n, len(k.keys))
	}
}
