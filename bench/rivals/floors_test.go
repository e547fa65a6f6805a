package rivals

import (
	"sync"
	"testing"
)

func TestKeyedMutex(t *testing.T) {
	k := KeyedMutex{Keys: make(map[string]*CountedMutex)}
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
	if n[0] != 400 || n[1] != 400 || n[2] != 400 || len(k.Keys) != 0 {
		t.Errorf("%v, %d keys left", n, len(k.Keys))
	}
}
