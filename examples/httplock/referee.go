package main

import "errors"

// A record is the store's state of an order.
type record struct {
	Items int64 `json:"items"`
}

// findings are the referee's counts, of all orders together.
type findings struct {
	writes   int64 // that were stored; each adds an item to the record that its section has read
	items    int64 // in the orders
	broken   int64 // writes that did not go on from the write before them, because they had not read it
	overlaps int64 // sections that began while another one of the same order had not ended
	late     int64 // writes that were refused: their token was missing or not above the one before it
}

// lost is the number of updates that were stored and are not there: they were overwritten. It is 0
// only if broken is.
func (f *findings) lost() int64 { return f.writes - f.items }

func (f *findings) add(other findings) {
	f.writes += other.writes
	f.items += other.items
	f.broken += other.broken
	f.overlaps += other.overlaps
	f.late += other.late
}

// A ledger is one order and its referee. It is not safe for concurrent use.
type ledger struct {
	fenced bool
	record record
	fence  uint64              // the highest
	open   map[string]struct{} // sections that have read and not written
	seen   findings
}

var (
	errSection = errors.New("no such section has read the order, or it has ended")
	errFence   = errors.New("the fencing token is missing, or not above that of an earlier write")
)

// read begins a section.
func (l *ledger) read(section string) record {
	if _, again := l.open[section]; !again { // a client may repeat a read after a lost answer
		if len(l.open) > 0 {
			l.seen.overlaps++
		}
		l.open[section] = struct{}{}
	}
	return l.record
}

// write ends a section. fence is 0 if the writer has none.
func (l *ledger) write(section string, r record, fence uint64) error {
	if _, ok := l.open[section]; !ok {
		return errSection
	}
	delete(l.open, section)
	if l.fenced {
		if fence <= l.fence {
			l.seen.late++
			return errFence
		}
		l.fence = fence
	}
	// The writes of an order, in sequence, count 1, 2, 3 and so on.
	if r.Items != l.record.Items+1 {
		l.seen.broken++
	}
	l.record = r
	l.seen.writes++
	l.seen.items = r.Items
	return nil
}

// leave ends a section that does not write, if there is one.
func (l *ledger) leave(section string) { delete(l.open, section) }
