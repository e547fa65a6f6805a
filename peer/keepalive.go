package peer

import "time"

// A dead connection looks like a quiet one, so there is no quiet: a stream on which nothing
// was sent for a while carries a keepalive, and one on which nothing arrives is dead. One
// goroutine looks after all streams, a few times per keepalive, and compares counters: so
// the fast path neither reads the clock nor sets deadlines. Because it counts its own
// rounds instead of time, a process that was stopped for a while does not take its peers
// for dead before it has had the chance to hear them.

const (
	roundsPerKeepalive = 4
	idleRounds         = 3  // then a keepalive is sent: less than one keepalive, as it has to travel
	deadRounds         = 10 // 2.5 keepalives
)

// watch is what the keepalive goroutine knows about a stream.
type watch struct {
	reads, writes         uint64 // as seen last
	silent, idle, stalled int    // rounds since they changed; stalled: with bytes waiting
}

func (t *Transport) keepalive() {
	tick := time.NewTicker(max(t.opts.Keepalive/roundsPerKeepalive, time.Millisecond))
	defer tick.Stop()
	for {
		select {
		case <-t.ctx.Done():
			return
		case <-tick.C:
		}
		for _, s := range *t.streams.Load() {
			s.check()
		}
	}
}

// check is one round for one stream.
func (s *Stream) check() {
	w := &s.watch
	if n := s.reads.Load(); n != w.reads {
		w.reads, w.silent = n, 0
	} else if w.silent++; w.silent >= deadRounds {
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
	} else if w.stalled++; w.stalled >= deadRounds {
		s.Close(ErrStalled)
		return
	}
	if w.idle++; w.idle >= idleRounds {
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
