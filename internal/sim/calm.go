package sim

import (
	"context"
	"sync"
	"time"
)

// calm mends everything, and then everything must work again (I8).
func (w *world) calm() {
	w.say("calm")
	w.resting.Store(true)
	w.net.heal()
	w.net.setLatency(usual)
	w.s.setDown(false)
	for _, n := range w.nodes {
		if n.now == nil {
			n.start()
		} else {
			n.now.client.set(func(x *weather) { *x = weather{latency: usual} })
		}
	}
	time.Sleep(w.t(90 * time.Second)) // sessions end, Grace, doubts, pauses, and the longest a client works
	w.h.missed(w.t(25 * time.Second))
	var work sync.WaitGroup
	for _, n := range w.nodes {
		for i, k := range w.keys {
			work.Go(func() { n.now.lockFinally(k, w.cfg.Clients+i) })
		}
	}
	work.Wait()
}

func (s *start) lockFinally(key string, number int) {
	w := s.n.w
	<-s.ready
	if s.c == nil {
		return // which has been told
	}
	ctx, cancel := context.WithTimeout(context.Background(), w.t(90*time.Second))
	defer cancel()
	call, called := s.rec.Lock(number, key), time.Now()
	done := w.h.wants(s, key, false)
	l, err := s.c.Lock(ctx, key)
	done()
	if err != nil {
		call.Refused()
		w.h.mu.Lock()
		defer w.h.mu.Unlock()
		w.h.fail("I8: %v cannot lock %q: %v", s, key, err)
		w.h.bad = append(w.h.bad, w.state(key)...)
		return
	}
	s.use(key, l, called, call.Granted(uint64(l.Fence())), 0, -1, false)
	s.shareFinally(ctx, number, key)
}

// shareFinally reads the key, and takes a permit of it.
func (s *start) shareFinally(ctx context.Context, number int, key string) {
	w := s.n.w
	for _, permits := range []int{0, 1} {
		u := &use{grant: &grant{by: s, called: time.Now()}, n: permits}
		take := s.read
		if permits > 0 {
			take = s.acquire
		}
		call, end, err := take(ctx, number, key, u, false)
		if err != nil {
			call.Refused()
			w.h.mu.Lock()
			w.h.fail("I8: %v cannot share %q, permits: %d: %v", s, key, permits, err)
			if permits > 0 {
				key = "\x00" + key // the semaphore's
			}
			w.h.bad = append(w.h.bad, w.state(key)...)
			w.h.mu.Unlock()
			continue
		}
		u.at = time.Now()
		hold := call.Granted(u.token)
		w.h.shares(key, u)
		s.have(key, u, hold, s.ctx, 0, end)
	}
}
