package harness

import (
	"fmt"
	"os"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

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

// Writer is what a writer of a lock for readers and writers adds to those inside, and a reader 1.
const Writer = 1 << 32

// Join is called with 1, or with Writer, as the first thing under a lock for readers and writers, and
// Part as the last thing: a writer has to be alone.
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
