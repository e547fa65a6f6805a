package peer

import "time"

// A dead connection looks like a quiet one, so there is no quiet: a stream carries a keepalive
// after a while without other bytes, and it is dead if nothing arrives. One goroutine looks after
// all streams, a few times per keepalive, and compares counters: so the fast path neither reads the
// clock nor sets deadlines. It counts its own ticks instead of time. So a process that was stopped
// for a while has the chance to hear its peers before it takes them for dead.

const (
	ticksPerKeepalive = 4
	idleTicks         = 3  // then a keepalive is sent: less than one keepalive, as it has to travel
	deadTicks         = 10 // 2.5 keepalives
)

// The bounds of the values of SetKeepalive.
const (
	leastKeepalive = 10 * time.Millisecond
	mostKeepalive  = time.Hour
)

// rhythm is the pair of values that SetKeepalive has set.
type rhythm struct{ send, hear time.Duration }

func newRhythm(send, hear time.Duration) rhythm {
	send = min(max(send, leastKeepalive), mostKeepalive)
	return rhythm{send, min(max(send, hear), mostKeepalive)}
}

// tick returns the interval between two looks at all streams.
func (r rhythm) tick() time.Duration { return max(r.send/ticksPerKeepalive, time.Millisecond) }

// dead returns the number of ticks that make a silent or stalled stream dead.
func (r rhythm) dead() int { return int((deadTicks*r.hear + r.send - 1) / r.send) }

// SetKeepalive replaces Options.Keepalive, where those of the other nodes differ. send, the
// shortest one, is the longest time without sending. A silent or stalled stream is closed after 2.5
// of hear, the longest one. Neither is less than 10 ms or more than an hour. It never blocks.
func (t *Transport) SetKeepalive(send, hear time.Duration) {
	r := newRhythm(send, hear)
	t.mu.Lock()
	defer t.mu.Unlock()
	select {
	case <-t.rhythms:
	default:
	}
	t.rhythms <- r // it has room
}

// watch is the keepalive goroutine's view of a stream.
type watch struct {
	reads, writes         uint64 // as seen last
	silent, idle, stalled int    // ticks since they changed; stalled: with bytes waiting
}

func (t *Transport) keepalive() {
	r := rhythm{t.opts.Keepalive, t.opts.Keepalive}
	ticker := time.NewTicker(r.tick())
	defer ticker.Stop()
	for {
		select {
		case <-t.ctx.Done():
			return
		case next := <-t.rhythms:
			if next != r {
				r = next
				ticker.Reset(r.tick())
			}
			continue
		case <-ticker.C:
		}
		for _, s := range *t.streams.Load() {
			s.tick(r.dead())
		}
	}
}

// tick is one look at one stream, which is dead after so many of them.
func (s *Stream) tick(dead int) {
	w := &s.watch
	if n := s.reads.Load(); n != w.reads {
		w.reads, w.silent = n, 0
	} else if w.silent++; w.silent >= dead {
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
	} else if w.stalled++; w.stalled >= dead {
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
