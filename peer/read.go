package peer

import (
	"encoding/binary"
	"fmt"
	"io"
	"sync"
	"time"
)

// run is a stream's life, from the end of the handshake on. prev is the stream with the
// same node before it, nil if there is none.
func (s *Stream) run(prev *Stream) {
	t := s.t
	if prev != nil {
		<-prev.done
	}
	if !s.closed.Load() {
		t.wg.Go(s.writer)
		s.mu.Lock()
		s.first = unlimited
		s.mu.Unlock()
		t.opts.Handler.Up(s)
		s.mu.Lock()
		s.first = len(s.out) + s.flying
		s.mu.Unlock()
		t.publish(s)
		s.Close(s.read())
		t.unpublish(s)
		t.opts.Handler.Down(s, s.closeErr())
	}
	t.ended(s)
	close(s.done)
}

// readBuffers has those of streams that have ended.
var readBuffers = sync.Pool{New: func() any { return new([readBuffer]byte) }}

// read delivers frames until the stream ends, and returns why.
func (s *Stream) read() error {
	b := readBuffers.Get().(*[readBuffer]byte)
	defer readBuffers.Put(b)
	buf := b[:]
	var f Frame
	n := 0 // buf[:n] is read and not used yet
	s.endBatch()
	for {
		m, err := s.readInto(buf[n:])
		if m > 0 {
			s.reads.Add(1)
			n += m
			s.mu.Lock()
			s.batch = true
			s.mu.Unlock()
			used, err := s.deliver(&f, buf[:n])
			queued := s.endBatch() // also after an error: frames passed to others are theirs
			if err != nil {
				return err
			}
			n = copy(buf, buf[used:n])
			if queued > softQueue {
				s.pause()
			}
		}
		if err != nil {
			return fmt.Errorf("%w: %w", ErrLost, err)
		}
	}
}

// readInto reads the bytes that have arrived, at least one.
func (s *Stream) readInto(buf []byte) (int, error) {
	if s.safe != nil {
		return s.safe.read(buf, s.moreFn)
	}
	return s.readSocket(buf)
}

// readSocket is sock.Read, by a shorter way if there is one: see readNow.
func (s *Stream) readSocket(buf []byte) (int, error) {
	if s.readFn == nil {
		return s.sock.Read(buf)
	}
	s.readBuf = buf
	if err := s.direct.Read(s.readFn); err != nil {
		return 0, err
	}
	if s.readN == 0 && s.readErr == nil {
		return 0, io.EOF
	}
	return s.readN, s.readErr
}

// deliver gives the frames in b to the handler and returns how many bytes they were. Part
// of a frame may be left.
func (s *Stream) deliver(f *Frame, b []byte) (used int, err error) {
	for {
		rest := b[used:]
		if len(rest) < lengthSize {
			return used, nil
		}
		n := lengthSize + int(binary.BigEndian.Uint16(rest))
		if n > lengthSize+MaxFrame {
			return used, fmt.Errorf("%w: a frame of %d bytes", ErrProtocol, n)
		}
		if n > len(rest) {
			return used, nil
		}
		if n > lengthSize { // else a keepalive
			if err := f.Decode(rest[:n:n]); err != nil {
				return used, err
			}
			if s.closed.Load() {
				return used, ErrClosed // Close was first, with its own cause
			}
			s.t.opts.Handler.Frame(s, f)
		}
		used += n
	}
}

// endBatch writes the frames that were sent during the batch, without waiting, and returns how many
// bytes are waiting then.
func (s *Stream) endBatch() int {
	s.mu.Lock()
	s.batch = false
	queued, idle := len(s.out)+s.flying, s.idle()
	s.writing = s.writing || !idle
	s.mu.Unlock()
	if !idle {
		s.write()
		queued = s.queued()
	}
	for _, to := range s.passed {
		to.Flush()
	}
	clear(s.passed)
	s.passed = s.passed[:0]
	return queued
}

// pause lets the queue to a peer drain that asks faster than it reads the answers: while we
// do not read, TCP slows it down.
//
// Both sides may pause at once, each waiting for the other to read. So a pause ends when the peer
// has taken nothing for a step, or after a few steps in any case. Then one more batch is read. Thus
// both go on, at some 3 MB/s by default, until one of them has got below the limit. A peer that
// reads nothing at all is found by MaxQueue or by the keepalive.
func (s *Stream) pause() {
	const steps = 5
	select {
	case <-s.drained: // maybe of an earlier time
	default:
	}
	step := s.t.opts.Keepalive / 10 / steps
	timer := time.NewTimer(step)
	defer timer.Stop()
	for range steps {
		if s.queued() < softQueue/2 {
			return
		}
		before := s.writes.Load()
		select {
		case <-s.drained:
			return
		case <-timer.C:
		}
		if s.writes.Load() == before {
			return
		}
		timer.Reset(step)
	}
}
