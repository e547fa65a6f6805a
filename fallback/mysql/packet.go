package mysql

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"strings"
	"sync/atomic"

	"github.com/holdfast-go/holdfast/fallback"
)

// packets are the known values of max_allowed_packet: the server does not take a larger statement,
// and may end the connection without a word. A connection goes by the server's value when it began.
type packets struct {
	now   atomic.Int64 // as the server has told last; 0: not yet
	least atomic.Int64 // of all that was told
}

// saw notes a server's value.
func (p *packets) saw(n int64) {
	if p.now.Swap(n) == n {
		return
	}
	for least := p.least.Load(); least == 0 || n < least; least = p.least.Load() {
		if p.least.CompareAndSwap(least, n) {
			return
		}
	}
}

// head is more than a statement has besides records.
const head = 2048

// sizeOf returns how many bytes a record takes in a statement, or a few more: the driver writes
// values in quotation marks.
func sizeOf(key string, value []byte) int64 {
	escaped := 0
	for _, b := range value {
		if strings.IndexByte("\x00\n\r\x1a'\"\\", b) >= 0 {
			escaped++
		}
	}
	return int64(len(value) + escaped + 10*(len(key)+32)) // its name, which may be escaped, up to five times, and its versions
}

// fits refuses records that the server would not take.
func (p *packets) fits(changes []fallback.Change) error {
	if now := p.now.Load(); now > 0 && largest(changes) >= now {
		return tooLargeFor(changes)
	}
	return nil
}

// largest returns the size of a statement with the largest record.
func largest(changes []fallback.Change) (size int64) {
	for _, x := range changes {
		size = max(size, head+sizeOf(x.Key, x.Value))
	}
	return size
}

func tooLargeFor(changes []fallback.Change) error {
	return fallback.TooLarge(changes, "the server's max_allowed_packet has room for (a quotation mark takes two, and it may be raised)")
}

// agreed ends a connection that began while the server took smaller statements only.
func (p *packets) agreed(ctx context.Context, c *sql.Conn, size int64) error {
	if size < p.least.Load() {
		return nil
	}
	var packet int64
	if err := c.QueryRowContext(ctx, `SELECT @@session.max_allowed_packet`).Scan(&packet); err != nil {
		return notSent(err)
	}
	if size < packet {
		return nil
	}
	return c.Raw(func(any) error { return sqldriver.ErrBadConn })
}

// parts divides writes into those of one statement each: updates, then inserts. The largest has
// room, alone.
func (p *packets) parts(updates, inserts []write) (all []part) {
	limit := p.least.Load()
	split := func(list []write, of func([]write) part) {
		for len(list) > 0 {
			n, size := 0, int64(head)
			for n < len(list) {
				one := sizeOf(string(list[n].key), list[n].value)
				if n > 0 && limit > 0 && size+one >= limit {
					break
				}
				n, size = n+1, size+one
			}
			x := of(list[:n])
			x.size = size
			all, list = append(all, x), list[n:]
		}
	}
	split(updates, func(list []write) part { return part{updates: list} })
	split(inserts, func(list []write) part { return part{inserts: list} })
	return all
}

// A part is the writes of one statement.
type part struct {
	updates, inserts []write
	size             int64 // at most
}
