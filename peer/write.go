package peer

import (
	"fmt"
	"runtime"
	"syscall"
	"time"
)

// The choice of the writer: the sender that finds no writer becomes the writer. A goroutine of its
// own costs each lone request a switch, or a wake-up of another core, before the first byte leaves.
// That is 1.35 times a bare round trip instead of 1.18. With 64 callers it is 0.96 million
// requests/s instead of 1.18 (both sides in one process, 2 cores). But a sender may hold locks and
// a read loop must go on reading, so neither may wait for a peer that does not read. Hence they
// write without waiting. The bytes that the socket does not take are left, together with the role
// of the writer, to the stream's own goroutine, which may wait. It stays the writer until nothing
// is left, so that order is kept and a slow peer costs senders no further system calls.

// A prompt connection is one of a simulation: its Write never waits. So senders write there as they
// do to a socket.
type prompt interface{ Prompt() }

type promptly struct{ syscall.RawConn }

func (promptly) Write(write func(uintptr) bool) error {
	write(0)
	return nil
}

// A sender that finds new frames after each of its writes hands over after this many:
// others' frames must not keep it from its own business.
const maxRounds = 8

// write writes until nothing is left or the socket is full. The caller has set writing.
func (s *Stream) write() {
	if s.direct == nil {
		s.hand() // there are no writes that do not wait
		return
	}
	for range maxRounds {
		// Lets others that are ready append to the same write: that is where the throughput
		// of many callers comes from, and with processes pinned to cores a lone one
		// loses nothing.
		runtime.Gosched()
		b := s.next()
		if b == nil {
			return
		}
		s.directBuf = b
		err := s.direct.Write(s.directFn)
		if err == nil {
			err = s.directErr
		}
		s.directBuf = nil
		if err != nil {
			s.Close(fmt.Errorf("%w: %w", ErrLost, err))
			return // and stay the writer, so that there is no other
		}
		if n := s.directN; n < len(b) {
			if n > 0 {
				s.writes.Add(1)
			}
			s.rest = b[n:]
			s.hand()
			return
		}
		s.writes.Add(1)
		s.written()
	}
	s.hand()
}

// next returns the bytes that go to the socket next, nil if there are none: then the caller is no
// longer the writer. Under TLS they are the records of the bytes that take returned.
func (s *Stream) next() []byte {
	b := s.take()
	if b == nil {
		return nil // another sender may be the writer by now
	}
	s.plain = b
	if s.safe == nil {
		return b
	}
	return s.safe.seal(b)
}

// written gives back the buffer of next after the socket has taken all of it.
func (s *Stream) written() {
	b := s.plain
	s.plain = nil
	s.give(b)
}

// hand makes the stream's own goroutine the writer. The caller is it no longer.
func (s *Stream) hand() {
	s.mu.Lock()
	s.handed = true
	s.mu.Unlock()
	wake(s.kick)
}

// take returns the bytes to be written next, nil if there are none: then the caller is no longer
// the writer.
func (s *Stream) take() []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil || len(s.out) == 0 {
		s.writing = false
		return nil
	}
	b := s.out
	s.out, s.spare = s.spare, nil
	s.flying = len(b)
	return b
}

// give gives back the buffer of take, which was written.
func (s *Stream) give(b []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.flying = 0
	if len(b) > softQueue/2 {
		wake(s.drained)
	}
	if cap(b) <= keepBuffer && s.err == nil {
		s.spare = b[:0]
	}
}

// writer is the stream's own goroutine for writes that have to wait. It ends when the
// stream is closed.
func (s *Stream) writer() {
	const chunk = 64 << 10 // small enough for the keepalive to see that it goes on
	for range s.kick {
		for handed := s.claim(); handed && !s.closed.Load(); {
			if s.rest == nil {
				if s.direct == nil {
					runtime.Gosched() // as in write
				}
				b := s.next()
				if b == nil {
					break // rest may be another writer's already
				}
				s.rest = b
			}
			for len(s.rest) > 0 {
				n, err := s.sock.Write(s.rest[:min(chunk, len(s.rest))])
				if err != nil {
					s.Close(fmt.Errorf("%w: %w", ErrLost, err))
					return
				}
				s.writes.Add(1)
				s.rest = s.rest[n:]
				s.mu.Lock()
				s.flying = len(s.rest)
				low := len(s.out)+s.flying < softQueue/2
				s.mu.Unlock()
				if low {
					wake(s.drained)
				}
			}
			s.rest = nil
			s.written()
		}
		if s.closed.Load() {
			return
		}
	}
}

// claim reports whether the stream's own goroutine has been made the writer, once each time.
func (s *Stream) claim() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	handed := s.handed
	s.handed = false
	return handed
}

// soonest is the time that FlushSoon may leave frames where they are.
const soonest = time.Millisecond

// flushSoon is the goroutine behind FlushSoon. It is one for all streams, and looks at most once
// every soonest: to wake a goroutine for each lone frame would cost the sender more than the frame
// does. It would cost the frame a system call, and the peer a wake-up, of its own.
func (t *Transport) flushSoon() {
	timer := time.NewTimer(soonest) // one for all times: under load it is once per millisecond
	defer timer.Stop()
	for {
		select {
		case <-t.ctx.Done():
			return
		case <-t.soon:
		}
		timer.Reset(soonest)
		select {
		case <-t.ctx.Done():
		case <-timer.C:
		}
		for _, s := range *t.streams.Load() {
			s.Flush()
		}
	}
}

// queued returns how many bytes are waiting.
func (s *Stream) queued() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.out) + s.flying
}
