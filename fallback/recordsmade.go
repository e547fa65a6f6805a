package fallback

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
)

// A durable store has no record of a partition that was never changed. So a record that is missing
// may never have been there, or was deleted: then processes may hold keys in it. The table of
// sessions tells the two apart. It has a bit for each partition that has a record
// ([Sessions.Made]). The record is written first, and its content counts when the bit is set. So a
// bit says that there was a record. Rules and guards are in internal/model (Emptied).

// errAbsent: there is no record of a partition. errUntold: there is one, and this process does not
// know that the table tells that.
var (
	errAbsent = errors.New("fallback: no record")
	errUntold = errors.New("fallback: a record that the table of sessions may not tell of")
)

// knowledge is a call's knowledge of a partition in a durable store.
type knowledge struct {
	asked   bool       // the table was asked about the partition without a record
	as      *Partition // and it is this, where nil is a lost one
	told    bool       // the table tells that there was a record
	created bool       // the call's last try began without a record
}

// enter returns the state of a loaded partition that has no record yet. It is nil if the partition
// has a record, or is lost. An error is for learn, which has to come first. has says that this
// process has seen that the table tells of the record.
func (k *knowledge) enter(p *Partition, has bool) (as *Partition, err error) {
	k.created = p.Server == ""
	switch {
	case k.created && k.told:
		return nil, nil // deleted during the call
	case k.created && !k.asked:
		return nil, errAbsent
	case k.created:
		return k.as, nil
	case !k.told && !has:
		return nil, errUntold
	}
	return nil, nil
}

// learn asks the table of sessions about the partitions without a record, and tells it of those
// that have a record now. It returns the indices of those to be run again.
func (n *recordsSpace) learn(ctx context.Context, parts []uint32, left []int, know []knowledge, errs []error) (again []int) {
	var absent, there []int
	var numbers []uint32
	for _, i := range left {
		switch {
		case errors.Is(errs[i], errAbsent):
			absent = append(absent, i)
		case errors.Is(errs[i], errUntold), errs[i] == nil && know[i].created:
			there, numbers = append(there, i), append(numbers, parts[i])
		}
	}
	if len(there) > 0 {
		err := n.tell(ctx, numbers)
		for _, i := range there {
			switch {
			case errs[i] == nil && notExecuted(err): // the call was, in part
				errs[i] = fmt.Errorf("a record was written that the table of sessions does not tell of: %s", err.Error())
			case errs[i] == nil: // this call has created the record, and its answer counts now
				errs[i] = err
			case err != nil:
				errs[i] = err
			default:
				know[i].told, again = true, append(again, i)
			}
		}
	}
	if len(absent) > 0 {
		err := n.onSessions(ctx, func(m Moment, s *Sessions) {
			s.enter(m)
			for _, i := range absent {
				know[i].asked, know[i].as = true, n.without(s, parts[i])
			}
		})
		for _, i := range absent {
			if errs[i] = err; err == nil {
				again = append(again, i)
			}
		}
	}
	return again
}

// without returns the state of a partition that has no record; nil: lost.
//
// One that never had a record is in Grace while the table of sessions is. Else it is Shared, at the
// epoch of the namespace's making, which the table tells. If that is another one than when this
// process attached or saw a Grace of the table, the partition is missing because it was lost.
func (n *recordsSpace) without(s *Sessions, number uint32) *Partition {
	switch {
	case hasBit(s.Made, number):
		return nil
	case s.GraceEnd != 0:
		return &Partition{GraceEnd: s.GraceEnd}
	case s.Born == n.born.Load():
		return &Partition{Epoch: max(s.Born, 1)}
	default:
		return nil
	}
}

// made is this process's knowledge of [Sessions.Made].
type made struct {
	turn chan struct{} // of the call that writes it, for all that wait

	mu   sync.Mutex      // protects the fields below
	bits []byte          // as the table had them last
	want map[uint32]bool // partitions that the table has yet to tell of
}

func newMade() made { return made{turn: make(chan struct{}, 1), want: make(map[uint32]bool)} }

func hasBit(bits []byte, i uint32) bool { return int(i/8) < len(bits) && bits[i/8]>>(i%8)&1 != 0 }

func withBit(bits []byte, i uint32) []byte {
	if missing := int(i/8) + 1 - len(bits); missing > 0 {
		bits = append(bits, make([]byte, missing)...)
	}
	bits[i/8] |= 1 << (i % 8)
	return bits
}

// saw notes the bits of the table.
func (x *made) saw(bits []byte) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.bits = append(x.bits[:0], bits...)
}

func (x *made) has(part uint32) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return hasBit(x.bits, part)
}

// tell has the table tell that partitions have a record. Calls at the same time share a write.
func (n *recordsSpace) tell(ctx context.Context, parts []uint32) error {
	x := &n.made
	x.mu.Lock()
	for _, p := range parts {
		x.want[p] = true
	}
	x.mu.Unlock()
	select {
	case x.turn <- struct{}{}:
		defer func() { <-x.turn }()
	case <-ctx.Done():
		return ctx.Err()
	}
	x.mu.Lock()
	all := maps.Clone(x.want)
	x.mu.Unlock()
	if !slices.ContainsFunc(parts, func(p uint32) bool { return all[p] }) {
		return nil // another call has told it
	}
	err := n.onSessions(ctx, func(_ Moment, s *Sessions) {
		for p := range all {
			s.Made = withBit(s.Made, p)
		}
	})
	if err == nil {
		x.mu.Lock()
		maps.DeleteFunc(x.want, func(p uint32, _ bool) bool { return all[p] })
		x.mu.Unlock()
	}
	return err
}
