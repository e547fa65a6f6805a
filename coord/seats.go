package coord

import (
	"math/bits"
	"runtime"
	"sync/atomic"
	"unsafe"

	"github.com/holdfast-go/holdfast/internal/guard"
)

// A seat is a word that a reader has to itself while it reads: its value is another one than any
// other reader has had there, so a lock that was unlocked is never taken for another one. Readers
// of different goroutines as a rule use seats of different cache lines, so that processors do not
// wait for each other. That is how BRAVO lets readers in (Dice and Kogan, "BRAVO - Biased Locking
// for Reader-Writer Locks", 2019, arXiv 1810.01553); its readers fall back on a lock that they
// share when a seat is taken, these on being counted under a mutex.
type seat struct {
	atomic.Uint64
	x *reading // the seat is one of its; it does not change
}

// A seat's value is the number of its readers so far, and these bits.
const (
	seatTaken    = 1 << iota
	seatFollowed // contexts end with the lock
	seatCounted  // the reader is counted; the seat is its own, and in no row
	seatTurn

	seatLeft = seatTurn - seatTaken // added by a reader that leaves
)

// A row is the seats of goroutines that are not expected to run on different processors: cache
// lines of their own.
type row struct{ at [rowSeats]seat }

const rowSeats = 8

// newSeats returns the seats of a reading: rows for many more goroutines than can run at the same
// time, as the row is chosen by a hash.
func (x *reading) newSeats() []row {
	n := max(16, min(64, 8*runtime.GOMAXPROCS(0)))
	rows := make([]row, 1<<bits.Len(uint(n-1)))
	for i := range rows {
		for j := range rows[i].at {
			rows[i].at[j].x = x
		}
	}
	return rows
}

// sit takes a seat, the first free one of the goroutine's row. It returns none if all of them are
// taken.
func (x *reading) sit() (*seat, uint64) {
	seats := x.seats
	r := &seats[goroutineHash()&uint64(len(seats)-1)]
	for i := range r.at {
		if v := r.at[i].Load(); v&seatTaken == 0 && r.at[i].CompareAndSwap(v, v|seatTaken) {
			return &r.at[i], v | seatTaken
		}
	}
	return nil, 0
}

// look reports whether a seat is taken, and returns a number that is another one after each use of
// a seat.
func (x *reading) look() (any bool, uses int) {
	for i := range x.seats {
		for j := range x.seats[i].at {
			v := x.seats[i].at[j].Load()
			if v == 0 { // nor has one after it ever been taken
				break
			}
			any = any || v&seatTaken != 0 && guard.Seats
			uses += int(v)
		}
	}
	return any, uses
}

// goroutineHash returns a number that differs between most goroutines, by where their stacks are.
// It may change while a goroutine runs.
func goroutineHash() uint64 {
	var here byte
	return uint64(uintptr(unsafe.Pointer(&here))) >> 11 * 0x9e3779b97f4a7c15 >> 40
}
