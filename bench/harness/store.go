package harness

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The store is the data of the critical sections of shared and zipf: numbers in a process of its
// own, read and written in one round trip each. A section reads a number and writes it back, one
// higher. The store is also the referee. A write that is not one more than the stored number tells
// that two sections ran at the same time. A token that is not above the last one tells that tokens
// do not rise.

const (
	storeRead  = 'r' // answer: the number
	storeWrite = 'w' // answer: 0
	storeCount = 'c' // answer: writes of the variant that were wrong << 32 | tokens that were stale

	storeRequest  = 1 + 4 + 4 + 8 + 8 // kind, variant, key, number, token
	storeAnswer   = 8
	storeKeys     = 1024 // at most, of a variant
	storeVariants = 64   // at most
)

type storeCell struct {
	mu     sync.Mutex // protects the fields below
	number uint64
	token  uint64
	wrong  uint64
	stale  uint64
}

func (c *storeCell) do(kind byte, number, token uint64) uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch kind {
	case storeRead:
		return c.number
	case storeCount:
		return c.wrong<<32 | c.stale
	}
	if number != c.number+1 {
		c.wrong++
	}
	if token != 0 {
		if token <= c.token {
			c.stale++
		}
		c.token = token
	}
	c.number = number
	return 0
}

// storeServer has the numbers of all variants.
type storeServer [storeVariants][storeKeys]storeCell

var storeTask = NewTask("store", serveStore)

// serveStore makes this worker a store, until it ends, and returns its address. The other processes
// close their connections, or end.
func serveStore(_ context.Context, h *Host, _ struct{}) (addr string, err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	s := new(storeServer)
	var work sync.WaitGroup
	work.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			work.Go(func() { s.serve(c) })
		}
	})
	h.AtEnd(func() error {
		err := l.Close()
		work.Wait()
		return err
	})
	return l.Addr().String(), nil
}

func (s *storeServer) serve(c net.Conn) {
	defer c.Close()
	var buf [storeRequest]byte
	for {
		if _, err := io.ReadFull(c, buf[:]); err != nil {
			return
		}
		variant, key := binary.LittleEndian.Uint32(buf[1:]), binary.LittleEndian.Uint32(buf[5:])
		if variant >= storeVariants || key >= storeKeys {
			return
		}
		answer := uint64(0)
		if cells := &s[variant]; buf[0] == storeCount {
			for i := range cells {
				answer += cells[i].do(storeCount, 0, 0)
			}
		} else {
			answer = cells[key].do(buf[0], binary.LittleEndian.Uint64(buf[9:]), binary.LittleEndian.Uint64(buf[17:]))
		}
		binary.LittleEndian.PutUint64(buf[:], answer)
		if _, err := c.Write(buf[:storeAnswer]); err != nil {
			return
		}
	}
}

// Store is a pool of connections to a store. The one that was used last is used first.
type Store struct {
	addr string
	mu   sync.Mutex // protects free
	free []*storeConn
}

type storeConn struct {
	net.Conn
	buf [storeRequest]byte
}

func NewStore(addr string) *Store { return &Store{addr: addr} }

// with calls f with a connection, which is of no use any more if f fails.
func (s *Store) with(f func(c *storeConn) error) error {
	s.mu.Lock()
	var c *storeConn
	if n := len(s.free); n > 0 {
		c, s.free = s.free[n-1], s.free[:n-1]
	}
	s.mu.Unlock()
	if c == nil {
		conn, err := net.Dial("tcp", s.addr)
		if err != nil {
			return err
		}
		c = &storeConn{Conn: conn}
	}
	if err := f(c); err != nil {
		return fmt.Errorf("store: %w", errors.Join(err, c.Close()))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.free = append(s.free, c)
	return nil
}

func (s *Store) Close() {
	for _, c := range s.free {
		_ = c.Close()
	}
}

func (c *storeConn) do(kind byte, variant, key int, number, token uint64) (uint64, error) {
	c.buf[0] = kind
	binary.LittleEndian.PutUint32(c.buf[1:], uint32(variant))
	binary.LittleEndian.PutUint32(c.buf[5:], uint32(key))
	binary.LittleEndian.PutUint64(c.buf[9:], number)
	binary.LittleEndian.PutUint64(c.buf[17:], token)
	if _, err := c.Write(c.buf[:]); err != nil {
		return 0, err
	}
	if _, err := io.ReadFull(c, c.buf[:storeAnswer]); err != nil {
		return 0, err
	}
	return binary.LittleEndian.Uint64(c.buf[:]), nil
}

// Increment is the critical section: two round trips.
func (s *Store) Increment(variant, key int, token uint64) error {
	return s.with(func(c *storeConn) error {
		n, err := c.do(storeRead, variant, key, 0, 0)
		if err == nil {
			_, err = c.do(storeWrite, variant, key, n+1, token)
		}
		return err
	})
}

// Counts returns how often two sections of a variant ran at the same time, and how often a token
// did not rise.
func (s *Store) Counts(variant int) (wrong, stale int64, err error) {
	err = s.with(func(c *storeConn) error {
		n, err := c.do(storeCount, variant, 0, 0, 0)
		wrong, stale = int64(n>>32), int64(n&(1<<32-1))
		return err
	})
	return wrong, stale, err
}

// Referee is memory that the worker processes share, a file mapped by each. The lock's holder goes
// through it, which costs a few nanoseconds, and two holders at a time would show. All of it is on
// one cache line.
type Referee struct {
	Inside   atomic.Uint64 // the number of the lock's holder; 0: none
	token    atomic.Uint64 // the last fencing token, which is the highest
	Sections atomic.Int64  // counted by a read and a write, so two holders would lose a section
	Two      atomic.Int64  // how often another holder was inside
	Stale    atomic.Int64  // how often a token was not above the last
	_        [24]byte
}

// Enter is called with the holder's number, not 0, as the first thing under the lock. fence is 0 if
// the lock has no tokens.
func (r *Referee) Enter(who, fence uint64) {
	if r.Inside.Swap(who) != 0 {
		r.Two.Add(1)
	}
	if fence != 0 && r.token.Swap(fence) >= fence {
		r.Stale.Add(1)
	}
	r.Sections.Store(r.Sections.Load() + 1)
}

// Leave is called with the holder's number as the last thing under the lock.
func (r *Referee) Leave(who uint64) {
	if r.Inside.Swap(0) != who {
		r.Two.Add(1)
	}
}

// Writer is the number that a writer of a lock for readers and writers adds to Inside. A reader
// adds 1.
const Writer = 1 << 32

// Join is called with 1, or with Writer, as the first thing under a lock for readers and writers,
// and Part as the last thing: a writer has to be alone.
func (r *Referee) Join(one uint64) {
	if now := r.Inside.Add(one); now >= Writer && now != Writer {
		r.Two.Add(1)
	}
}

func (r *Referee) Part(one uint64) { r.Inside.Add(-one) }

// OpenReferees maps the file, which gets the right size, as n referees until unmap is called.
func OpenReferees(path string, n int) (_ []Referee, unmap func() error, err error) {
	mem, unmap, err := MapFile(path, n*int(unsafe.Sizeof(Referee{})))
	if err != nil {
		return nil, nil, err
	}
	return unsafe.Slice((*Referee)(mem), n), unmap, nil
}

// MapFile maps the file, which gets this size, until unmap is called.
func MapFile(path string, size int) (_ unsafe.Pointer, unmap func() error, err error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	if err := f.Truncate(int64(size)); err != nil {
		return nil, nil, err
	}
	mem, err := unix.Mmap(int(f.Fd()), 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, nil, fmt.Errorf("map %s: %w", path, err)
	}
	return unsafe.Pointer(&mem[0]), func() error { return unix.Munmap(mem) }, nil
}
