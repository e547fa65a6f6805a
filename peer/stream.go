package peer

import (
	"fmt"
	"math"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
)

// Stream is an ordered stream of frames to and from one node. Its methods are safe for
// concurrent use.
type Stream struct {
	// Data is for the handler, to be set in Up: this package neither reads nor writes it.
	Data any

	t      *Transport
	node   string
	gen    uint64        // rises per transport
	id     uint64        // the decider's number of this connection
	sock   net.Conn      // the socket
	frames uint16        // see Frames
	safe   *records      // nil without TLS
	done   chan struct{} // closed after Down has returned, or instead if Up was never called

	closed atomic.Bool // err is set; for loops that do not want the mutex

	mu      sync.Mutex
	err     error  // protected by mu: why the stream was closed; matches ErrClosed
	out     []byte // protected by mu: frames that the writer has not taken yet
	spare   []byte // protected by mu: the other buffer, if not in use
	flying  int    // protected by mu: bytes of the buffer in the writer's hands
	first   int    // protected by mu: bytes that Up left in out; unlimited before
	writing bool   // protected by mu: there is a writer; it looks at out again before it stops
	handed  bool   // protected by mu: the writer is to be the stream's own goroutine
	batch   bool   // protected by mu: the read loop is handling a batch and flushes afterwards

	// Owned by the writer.
	direct    syscall.RawConn       // for writes that do not wait; nil if there are none
	directFn  func(fd uintptr) bool // made once, because each closure would be an allocation
	directBuf []byte
	directN   int
	directErr error
	plain     []byte        // the buffer of take that is being written
	rest      []byte        // bytes that the stream's own goroutine has still to write
	kick      chan struct{} // capacity 1: that goroutine has to look
	drained   chan struct{} // capacity 1: it has got below half of softQueue

	// Owned by the read loop.
	readFn  func(fd uintptr) bool // as directFn; nil if sock has to read
	readBuf []byte
	readN   int
	readErr error
	moreFn  func([]byte) (int, error) // readSocket, made once
	passed  []*Stream                 // those that Pass has left frames in

	reads  atomic.Uint64 // reads that brought something
	writes atomic.Uint64 // writes that the socket took at least in part

	watch watch // owned by the keepalive goroutine
}

const (
	readBuffer = 64 << 10  // of each stream: holds at least one frame
	keepBuffer = 256 << 10 // larger write buffers are let go once they are empty
	flushAt    = 64 << 10  // a batch's replies and queued frames are not held back beyond this
	softQueue  = 1 << 20   // reading pauses if more bytes wait
)

// newStream returns a stream on a socket. safe is nil without TLS.
func newStream(t *Transport, node string, sock net.Conn, safe *records) *Stream {
	s := &Stream{
		t: t, node: node, sock: sock, safe: safe,
		done: make(chan struct{}), kick: make(chan struct{}, 1), drained: make(chan struct{}, 1),
		batch: true, // until the read loop has flushed the frames of Up
	}
	s.moreFn = s.readSocket
	if _, ok := s.sock.(prompt); ok {
		s.direct = promptly{}
		s.directFn = func(uintptr) bool {
			s.directN, s.directErr = s.sock.Write(s.directBuf)
			return true
		}
		return s
	}
	s.direct = rawConn(s.sock)
	s.directFn = func(fd uintptr) bool {
		s.directN, s.directErr = writeNow(fd, s.directBuf)
		return true // also if the socket is full: we do not wait for it
	}
	if s.direct != nil {
		s.readFn = func(fd uintptr) (ready bool) {
			s.readN, ready, s.readErr = readNow(fd, s.readBuf)
			return ready
		}
	}
	return s
}

// Node returns the other node's name.
func (s *Stream) Node() string { return s.node }

// Frames returns the version of the frames' meaning on this stream: the newest that both nodes
// speak, by their [Options].Frames.
func (s *Stream) Frames() uint16 { return s.frames }

// Generation returns a number that is higher for each later stream of the transport.
func (s *Stream) Generation() uint64 { return s.gen }

// String returns the node and the generation, for logs.
func (s *Stream) String() string { return fmt.Sprintf("%q#%d", s.node, s.gen) }

// Send sends f after all frames that were sent before; f is not used after Send has
// returned. It does not wait for the network: at most it hands bytes to a socket that takes
// them. That includes one system call or a few, with frames of other senders too.
//
// During [Handler.Frame] of the same stream it only appends, while less than 64 KiB wait: the read
// loop writes when the batch that it has read is used up. Nil does not mean that the frame arrives: see the
// package comment. The error matches [ErrFrame] if f is not valid, and [ErrClosed] and the
// cause if the stream is closed. If more than Options.MaxQueue bytes are waiting, the
// stream is closed with [ErrQueueFull].
func (s *Stream) Send(f *Frame) error {
	return s.send(f, false)
}

// Queue is Send without the writing, for callers that hold a lock: the frame's place in the
// order is taken, and the caller calls Flush once it has let go of the lock. (Send yields
// the processor before it writes, so others may wait for the lock longer than a system call
// takes.) A frame without a Flush goes with the next that is sent, with the next FlushSoon of
// any stream, or with the next keepalive. Once 64 KiB wait, the stream's own goroutine writes them
// without a Flush.
func (s *Stream) Queue(f *Frame) error { return s.send(f, true) }

// Pass sends f on another stream, as to.Send(f) does, but leaves the writing to the end of the
// batch that s is reading. So all frames of a batch to one node are one write. It must only be
// called by [Handler.Frame] for s.
func (s *Stream) Pass(to *Stream, f *Frame) error {
	if to != s && !slices.Contains(s.passed, to) {
		s.passed = append(s.passed, to)
	}
	return to.send(f, true)
}

// unlimited is Stream.first while Handler.Up runs: its statement has to be sent whole, however long
// it is. Closed for that, the stream would begin anew, and with it the statement.
const unlimited = math.MaxInt

// send appends f and writes, unless there is a writer already. later says that the caller will
// call Flush: it may hold a lock, so if much waits, the stream's own goroutine is to write.
func (s *Stream) send(f *Frame, later bool) error {
	if err := f.Check(); err != nil {
		return err
	}
	s.mu.Lock()
	if s.err != nil {
		s.mu.Unlock()
		return s.err // never changes once set
	}
	s.out = appendFrame(s.out, f)
	switch n := len(s.out) + s.flying; {
	case n <= s.t.opts.MaxQueue:
		if s.first != unlimited {
			s.first = 0
		}
	case n-s.first > s.t.opts.MaxQueue:
		s.mu.Unlock()
		s.Close(ErrQueueFull)
		return s.closeErr()
	}
	if s.writing || (s.batch || later) && len(s.out) < flushAt {
		s.mu.Unlock()
		return nil
	}
	s.writing = true
	if later {
		s.handed = true
		s.mu.Unlock()
		wake(s.kick)
		return nil
	}
	s.mu.Unlock()
	s.write()
	return nil
}

// Flush writes the frames that Queue has left, unless another goroutine is writing or is about to.
// It waits no more than Send does.
func (s *Stream) Flush() {
	s.mu.Lock()
	if s.idle() {
		s.mu.Unlock()
		return
	}
	s.writing = true
	s.mu.Unlock()
	s.write()
}

// FlushSoon is Flush for frames that need not leave at once: they leave within about a millisecond.
// They share one system call with the frames sent until then, or with the answers to arriving
// frames.
func (s *Stream) FlushSoon() { wake(s.t.soon) }

// idle reports whether there is nothing to write, or another goroutine will. s.mu is held.
func (s *Stream) idle() bool { return s.writing || s.batch || len(s.out) == 0 || s.err != nil }

// Close closes the stream because of err; nil means [ErrClosed]. Only the first call
// counts. It does not wait: Down follows, with err, after the handler's current Frame if
// there is one. Frames that were sent just before may be lost. Unless the node is removed,
// the transport goes on to make a new stream.
func (s *Stream) Close(err error) {
	s.mu.Lock()
	if s.err != nil {
		s.mu.Unlock()
		return
	}
	if err == nil || err == ErrClosed {
		s.err = ErrClosed
	} else {
		s.err = fmt.Errorf("%w: %w", ErrClosed, err)
	}
	s.out, s.spare = nil, nil
	s.mu.Unlock()
	s.closed.Store(true)
	s.sock.Close() // ends the read loop, and a write that waits
	wake(s.kick)   // ends the stream's own goroutine
	wake(s.drained)
}

// closeErr returns why the stream was closed, nil if it was not.
func (s *Stream) closeErr() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// wake puts a token into c, which has capacity 1, unless there is one.
func wake(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
