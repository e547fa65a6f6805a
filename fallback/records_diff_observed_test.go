package fallback_test

import (
	"context"
	"fmt"
	"maps"
	"time"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/injure"
)

// Records without a clock, and durable ones, answer as a Memory does but for the differences here.
// Their processes judge by their own looks, so all of them look at all records after each step:
// then each has seen a change when it was made.

// seenSince is a beat, and when the processes have seen it first, in Unix milliseconds.
type seenSince struct{ beat, at int64 }

// saw notes a beat, and returns since when it is there.
func (x *pair) saw(thing string, beat int64) (since int64) {
	if s, ok := x.seen[thing]; !ok || s.beat != beat {
		x.seen[thing] = seenSince{beat, time.Now().UnixMilli()}
	}
	return x.seen[thing].at
}

// look has all processes look at the table of sessions and at all partitions.
func (x *pair) look(ctx context.Context) {
	x.observe()
	x.bear()
	for _, session := range []string{"a", "c"} { // one of each process
		x.same("List", session, func(n fallback.Namespace) (any, error) { return n.List(ctx) })
		reads := []fallback.Read{{Partition: 0, Keys: pairKeys}, {Partition: 1, Keys: pairKeys}}
		x.same("Verify of all", session, func(n fallback.Namespace) (any, error) { return n.Verify(ctx, reads), nil })
	}
	x.observe()
}

// stored decodes a record, each version once.
func (x *pair) stored(records map[string]fallback.Versioned, key string, decode func([]byte) (fallback.Stored, error)) fallback.Stored {
	v := records[key]
	s, ok := x.decoded[key+v.Version]
	if !ok {
		var err error
		if s, err = decode(v.Value); err != nil {
			x.trouble = err.Error()
		}
		x.decoded[key+v.Version] = s
	}
	return s
}

// observe gives the Memory the times of observers, which count from their first look at a beat:
// after a loss that is now, also for one that was there before.
func (x *pair) observe() {
	if !x.opts.NoClock {
		return
	}
	records := x.ledger.snapshot()
	injure.State(x.memory, "ns", func(s *fallback.Sessions, parts []fallback.Partition) {
		table := x.stored(records, "ns/s", fallback.StoredTable)
		for id, beat := range table.Beats {
			m, ok := s.Members[id]
			if !ok {
				continue // both will say
			}
			if beat == 0 {
				m.Expiry = x.saw("b"+id, 1)
			} else {
				m.Expiry = x.saw("m"+id, beat) + m.TTL
			}
			s.Members[id] = m
		}
		x.grace("table", table, &s.GraceEnd)
		for i := range parts {
			key := fmt.Sprint("ns/p", i)
			p := x.stored(records, key, fallback.StoredPartition)
			if x.opts.Durable && records[key].Version == "" {
				if parts[i].GraceEnd != 0 {
					parts[i].GraceEnd = s.GraceEnd // it is in Grace as long as the table is
				}
				continue
			}
			x.grace(fmt.Sprint("partition ", i), p, &parts[i].GraceEnd)
		}
	})
}

func (x *pair) grace(thing string, s fallback.Stored, end *int64) {
	if s.Beat == 0 {
		delete(x.seen, thing)
		return
	}
	if since := x.saw(thing, s.Beat); *end != 0 {
		*end = since + s.Length
	}
}

// bear gives the Memory the epoch of partitions that have no record in a durable store: that of the
// namespace's making, or, if it was emptied, that of the end of its Grace.
func (x *pair) bear() {
	if !x.opts.Durable {
		return
	}
	records := x.ledger.snapshot()
	injure.State(x.memory, "ns", func(_ *fallback.Sessions, parts []fallback.Partition) {
		for i := range parts {
			p := &parts[i]
			if records[fmt.Sprint("ns/p", i)].Version != "" || p.GraceEnd == 0 || time.Now().UnixMilli() < p.GraceEnd {
				continue
			}
			p.GraceEnd, p.Epoch = 0, x.stored(records, "ns/s", fallback.StoredTable).Born
		}
	})
}

// injureDurable empties the store, deletes a partition's record, or puts older data there. A
// Memory's earlier data are of another server then, so no earlier copy is put back after it.
func (x *pair) injureDurable() {
	p := x.rand.Uint32N(2)
	key := fmt.Sprint("ns/p", p)
	records := x.ledger.snapshot()
	switch n := x.rand.IntN(6); {
	case n == 0:
		x.log = append(x.log, "all is lost")
		x.copies = nil
		x.memory.Restore(nil)
		x.ledger.rewind(map[string]fallback.Versioned{})
		x.ledger.gap()
	case n < 3 && records[key].Version != "":
		x.log = append(x.log, "the record of a partition is deleted: "+key)
		x.copies = nil
		x.memory.RestorePartitions(nil, func(i uint32) bool { return i == p })
		maps.DeleteFunc(records, func(k string, _ fallback.Versioned) bool { return k == key })
		x.ledger.rewind(records)
		x.ledger.gap()
	case len(x.copies) > 0:
		x.log = append(x.log, "older data")
		c := choice(x, x.copies...)
		x.memory.Rewind(c.memory)
		x.ledger.rewind(c.records)
		x.observe()
	}
}
