package peer

import "time"

// A dead connection looks like a quiet one, so there is no quiet: a stream on which nothing
// was sent for a while carries a keepalive, and one on which nothing arrives is dead. One
// goroutine looks after all streams, a few times per keepalive, and compares counters: so
// the fast path neither reads the clock nor sets deadlines. Because it counts its own
// ticks instead of time, a process that was stopped for a while does not take its peers
// for dead before it has had the chance to hear them.

const (
	ticksPerKeepalive = 4
	idleTicks         = 3  // then a keepalive is sent: less than one keepalive, as it has to travel
	deadTicks         = 10 // 2.5 keepalives
)

// watch is what the keepalive goroutine knows about a stream.
type watch struct {
	reads, writes         uint64 // as seen last
	silent, idle, stalled int    // ticks since they changed; stalled: with bytes waiting
}

func (t *Transport) keepalive() {
	ticker := time.NewTicker(max(t.opts.Keepalive/ticksPerKeepalive, time.Millisecond))
	defer ticker.Stop()
	for {
		select {
		case <-t.ctx.Done():
			return
		case <-ticker.C:
		}
		for _, s := range *t.streams.Load() {
			s.tick()
		}
	}
}

// tick is one look at one stream.
func (s *Stream) tick() {
	w := &s.watch
	if n := s.reads.Load(); n != w.reads {
		w.reads, w.silent = n, 0
	} else if w.silent++; w.silent >= deadTicks {
		s.Close(ErrSilent)
		return
	}
	queued := s.queued()
	if n := s.writes.Load(); n != w.writes {
		w.writes, w.idle, w.stalled = n, 0, 0
		return
	}
	if queued == 0 {
		w.stalled = 0
	} else if w.stalled++; w.stalled >= deadTicks {
		s.Close(ErrStalled)
		return
	}
	if w.idle++; w.idle >= idleTicks {
		w.idle = 0
		s.sendKeepalive()
	}
}

// sendKeepalive sends a frame of no length, unless something is waiting to be sent anyway.
// Like Send, it does not wait for the network.
func (s *Stream) sendKeepalive() {
	s.mu.Lock()
	if s.err == nil && len(s.out) == 0 {
		s.out = append(s.out, 0, 0)
	}
	s.mu.Unlock()
	s.Flush()
}
