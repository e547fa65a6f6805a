package coord

import (
	"sync"
	"time"
)

// spread calls f for all of a list, in goroutines, at most n at a time: but one that takes longer than a quarter of RetryEvery, as its
// server does not answer, makes room for another one, so that it holds up nobody else's. It returns when each call has ended or
// takes longer than that; work tells when all have ended.
func spread[T any](c *Coordinator, work *sync.WaitGroup, list []T, n int, f func(T)) {
	n = min(n, len(list))
	room := make(chan struct{}, n)
	for _, v := range list {
		room <- struct{}{}
		work.Add(1)
		c.pool.Go(func() {
			defer work.Done()
			leave := sync.OnceFunc(func() { <-room })
			defer leave()
			defer time.AfterFunc(c.opts.RetryEvery/4, leave).Stop()
			f(v)
		})
	}
	for range n {
		room <- struct{}{}
	}
}
