package redisquorum

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"
)

// A cell is a server's part of a record.
type cell struct {
	promised string // a ballot; "" for none, as below
	ballot   string // of the accepted value
	version  string // of the value, which has it for good
	value    string
}

// A reply is a member's answer to a message.
type reply struct {
	from  int // the server
	epoch uint32
	cells []cell   // in the order of the records
	names []string // of all its records, if they were asked for
}

// members are the servers, as a register sees them. Methods send to one of them, and block until
// ctx ends at most. They return an [earlierError] where the message is of an earlier epoch than the
// server knows; with any other error the server does not count. The ballot of a read, or of a tell,
// is an epoch, or empty.
type members interface {
	count() int
	tell(ctx context.Context, server int, epoch string) (reply, error) // and asks for names
	read(ctx context.Context, server int, names []string) (reply, error)
	prepare(ctx context.Context, server int, ballot string, names []string) (reply, error)
	accept(ctx context.Context, server int, ballot string, names []string, cells []cell) (reply, error)
}

// An earlierError is of a server that knows a later epoch.
type earlierError struct{ epoch uint32 }

func (e earlierError) Error() string { return "the server knows epoch " + epochText(e.epoch) }

// A register swaps records at a majority of servers: CASPaxos (D. Rystsov, "CASPaxos: Replicated
// State Machines without logs", 2018). The addition is about servers that lose acknowledged state,
// promises included. Such a server does not answer until it is admitted again, in a new epoch that
// a majority of the others was told first. An epoch is the first part of a ballot, so the server's
// old promises are over. Rules and guards are in internal/model/quorum. A register is safe for
// concurrent use.
type register struct {
	members
	calls    *calls
	proposer string // random

	turns turns // of this process's swaps

	mu    sync.Mutex    // protects the fields below
	epoch uint32        // the highest that a majority knows
	heard uint32        // the highest that one server knows
	round uint64        // the highest that was seen in a ballot
	took  time.Duration // a proposal, on average of late
}

func newRegister(m members, c *calls) *register {
	return &register{members: m, calls: c, proposer: rand.Text()[:12], epoch: 1, heard: 1}
}

func epochText(epoch uint32) string { return fmt.Sprintf("%08x", epoch) }

// ballot returns one that is higher than all that were seen in the epoch. Ballots are compared as
// texts.
func (r *register) ballot() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.round++
	return fmt.Sprintf("%08x-%012x-%s", r.epoch, r.round, r.proposer)
}

// saw notes a ballot of another process.
func (r *register) saw(ballot string) {
	if len(ballot) < 21 {
		return
	}
	round, err := strconv.ParseUint(ballot[9:21], 16, 64)
	if err != nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.round = max(r.round, round)
}

// heardOf notes an epoch that a server knows.
func (r *register) heardOf(epoch uint32) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.heard = max(r.heard, epoch)
}

// establish sees to it that a majority knows the latest epoch, before it is used.
func (r *register) establish(ctx context.Context) error {
	r.mu.Lock()
	epoch, known := r.heard, r.epoch
	r.mu.Unlock()
	if epoch == known {
		return nil
	}
	_, err := r.ask(ctx, -1, func(ctx context.Context, i int) (reply, error) { return r.tell(ctx, i, epochText(epoch)) }, always)
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.epoch = max(r.epoch, epoch)
	return nil
}

func always([]reply) bool { return true }

// errMinority: fewer servers than a majority have answered.
var errMinority = errors.New("less than a majority of the servers answers")

// majority is how many servers have to agree. So many of the servers but one meet each majority
// with that one.
func majority(n int) int { return n/2 + 1 }

// ask sends to the servers, and returns their replies: a majority at least. It waits until enough
// says so, or, for those that are slower, half as long again as a majority took. skip is a server
// that is not asked, -1 for none.
func (r *register) ask(ctx context.Context, skip int, send func(ctx context.Context, server int) (reply, error), enough func([]reply) bool) ([]reply, error) {
	type answer struct {
		reply
		err error
	}
	n := r.count()
	answers := make(chan answer, n)
	left := 0
	for i := range n {
		if i == skip {
			continue
		}
		left++
		r.calls.start(ctx, func(ctx context.Context) {
			a, err := send(ctx, i)
			a.from = i
			answers <- answer{a, err}
		})
	}
	begin := time.Now()
	var all []reply
	var errs []error
	var late <-chan time.Time
	for ; left > 0; left-- {
		select {
		case a := <-answers:
			if a.err != nil {
				if e := (earlierError{}); errors.As(a.err, &e) {
					r.heardOf(e.epoch)
				}
				errs = append(errs, a.err)
				continue
			}
			r.heardOf(a.epoch)
			all = append(all, a.reply)
			if len(all) < majority(n) {
				continue
			}
			if enough(all) {
				return all, nil
			}
			if late == nil {
				t := time.NewTimer(max(time.Since(begin)/2, 5*time.Millisecond))
				defer t.Stop()
				late = t.C
			}
		case <-late:
			return all, nil
		case <-ctx.Done():
			return nil, cmp.Or(errors.Join(errs...), ctx.Err())
		}
	}
	if len(all) < majority(n) {
		return nil, fmt.Errorf("%w: %d of %d: %w", errMinority, len(all), n, errors.Join(errs...))
	}
	return all, nil
}

// load reads records, each with every swap that was acknowledged before. A cell that a majority
// tells alike was accepted by it; all else is written again first.
func (r *register) load(ctx context.Context, names []string) ([]cell, error) {
	agreed := func(all []reply, k int) (cell, bool) {
		for _, x := range all {
			same := 0
			for _, y := range all {
				if y.cells[k].ballot == x.cells[k].ballot {
					same++
				}
			}
			if same >= majority(r.count()) {
				return x.cells[k], true
			}
		}
		return cell{}, false
	}
	all, err := r.ask(ctx, -1, func(ctx context.Context, i int) (reply, error) { return r.read(ctx, i, names) },
		func(all []reply) bool {
			for k := range names {
				if _, ok := agreed(all, k); !ok {
					return false
				}
			}
			return true
		})
	if err != nil {
		return nil, err
	}
	cells := make([]cell, len(names))
	var torn []int
	for k := range names {
		var ok bool
		if cells[k], ok = agreed(all, k); !ok {
			torn = append(torn, k)
		}
	}
	err = r.until(ctx, torn, func(left []int) ([]bool, error) {
		found, sure, err := r.propose(ctx, -1, pick(names, left), again)
		for i := range found {
			if sure[i] {
				cells[left[i]] = found[i]
			}
		}
		return sure, err
	})
	return cells, err
}

// again proposes the found cell, if there is one.
func again(_ int, found cell) (cell, bool) { return found, found.ballot != "" }

// until tries those that have not succeeded again and again, a part at a time, until ctx ends.
func (r *register) until(ctx context.Context, left []int, try func(part []int) (done []bool, err error)) error {
	for n := 0; len(left) > 0; {
		part := left[:min(len(left), maxRecords)]
		err := r.establish(ctx)
		var done []bool
		if err == nil {
			done, err = try(part)
		}
		if e := (earlierError{}); err != nil && !errors.As(err, &e) {
			return err
		}
		rest, progress := left[len(part):], false
		for i, k := range part {
			if err != nil || !done[i] {
				rest = append(rest[:len(rest):len(rest)], k)
			} else {
				progress = true
			}
		}
		if left = rest; !progress {
			n++
			if err := r.pause(ctx, n); err != nil {
				return err
			}
		}
	}
	return ctx.Err()
}

// pause waits before a further try, for the time of some proposals: two processes that propose at
// once hinder each other.
func (r *register) pause(ctx context.Context, try int) error {
	r.mu.Lock()
	took := max(r.took, time.Millisecond)
	r.mu.Unlock()
	return pause(ctx, took<<min(try, 5))
}

// propose runs both phases for records, with one ballot. next returns the cell to be accepted,
// given the found one. If not ok, none is, and the record was only looked at: the found cell may be
// undone yet. sure tells of each record whether a majority is known to have accepted its cell; of
// the others some servers may have.
func (r *register) propose(ctx context.Context, skip int, names []string, next func(k int, found cell) (cell, bool)) (cells []cell, sure []bool, err error) {
	begin, ballot, n := time.Now(), r.ballot(), majority(r.count())
	defer func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.took += (time.Since(begin) - r.took) / 8
	}()
	enough := func(all []reply, of []int) bool {
		for _, k := range of {
			if promisedBy(all, k, ballot) < n {
				return false
			}
		}
		return true
	}
	every := make([]int, len(names))
	for k := range names {
		every[k] = k
	}
	all, err := r.ask(ctx, skip, func(ctx context.Context, i int) (reply, error) { return r.prepare(ctx, i, ballot, names) },
		func(all []reply) bool { return enough(all, every) })
	if err != nil {
		return nil, nil, err
	}
	cells, sure = make([]cell, len(names)), make([]bool, len(names))
	var wanted []int
	for k := range names {
		var best cell
		for _, x := range all {
			c := x.cells[k]
			r.saw(c.promised)
			if c.promised == ballot && c.ballot > best.ballot {
				best = c
			}
		}
		if promisedBy(all, k, ballot) < n {
			continue
		}
		var accept bool
		if cells[k], accept = next(k, best); accept {
			wanted = append(wanted, k)
		} else {
			sure[k] = true
		}
	}
	if len(wanted) == 0 {
		return cells, sure, nil
	}
	// A server that is slow is sent its message after propose has returned: cells may be the
	// caller's then, or none.
	theirs, values := pick(names, wanted), pick(cells, wanted)
	all, err = r.ask(ctx, skip, func(ctx context.Context, i int) (reply, error) { return r.accept(ctx, i, ballot, theirs, values) }, func(all []reply) bool {
		for i := range wanted {
			if promisedBy(all, i, ballot) < n {
				return false
			}
		}
		return true
	})
	if err != nil {
		return nil, nil, err
	}
	for i, k := range wanted {
		sure[k] = promisedBy(all, i, ballot) >= n
	}
	return cells, sure, nil
}

// promisedBy returns how many servers say that a ballot is the highest that they have promised for
// a record.
func promisedBy(all []reply, k int, ballot string) (n int) {
	for _, x := range all {
		if x.cells[k].promised == ballot {
			n++
		}
	}
	return n
}

func pick[T any](all []T, at []int) []T {
	some := make([]T, len(at))
	for i, k := range at {
		some[i] = all[k]
	}
	return some
}

// errUnknown: a swap may have taken effect, or not.
var errUnknown = errors.New("it is unknown whether a record was written: another process has swapped it since")

// swap writes records, each if it has the version that was. It tries until it is known of each
// whether it was written, or ctx ends.
func (r *register) swap(ctx context.Context, names, was, values []string) ([]bool, error) {
	end, err := r.turns.begin(ctx, names)
	if err != nil {
		return nil, err
	}
	defer end()
	done, sent := make([]bool, len(names)), make([]bool, len(names))
	mine := make([]string, len(names)) // the new value's version
	var left []int
	for k := range names {
		if mine[k] = rand.Text(); !r.turns.over(names[k], was[k]) {
			left = append(left, k)
		}
	}
	err = r.until(ctx, left, func(part []int) ([]bool, error) {
		mismatch := make([]bool, len(part))
		_, sure, err := r.propose(ctx, -1, pick(names, part), func(i int, c cell) (cell, bool) {
			k := part[i]
			if mismatch[i] = c.version != was[k] && c.version != mine[k]; mismatch[i] {
				return cell{}, false
			}
			sent[k] = true
			return cell{version: mine[k], value: values[k]}, true
		})
		for i, k := range part {
			switch {
			case err != nil || !sure[i]:
			case !mismatch[i]:
				done[k] = true
				r.turns.swapped(names[k], was[k])
			case sent[k]: // an earlier try may have been accepted, and have been swapped
				return nil, fmt.Errorf("%w: %q", errUnknown, names[k])
			}
		}
		return sure, err
	})
	if err != nil {
		return nil, err
	}
	return done, nil
}

// admit makes all records safe without a server that has forgotten, and returns the epoch in which
// it may be admitted. Accepted cells were accepted by a majority without it, in that epoch.
func (r *register) admit(ctx context.Context, server int) (epoch uint32, err error) {
	ask := func(epoch string) ([]reply, error) {
		return r.ask(ctx, server, func(ctx context.Context, i int) (reply, error) { return r.tell(ctx, i, epoch) }, always)
	}
	all, err := ask("")
	if err != nil {
		return 0, err
	}
	for _, x := range all {
		epoch = max(epoch, x.epoch)
	}
	epoch++
	if all, err = ask(epochText(epoch)); err != nil {
		return 0, err
	}
	r.mu.Lock()
	r.epoch, r.heard = max(r.epoch, epoch), max(r.heard, epoch)
	r.mu.Unlock()
	var names []string // each that a majority has accepted is known to one of these
	seen := make(map[string]bool)
	var left []int
	for _, x := range all {
		for _, name := range x.names {
			if !seen[name] {
				seen[name] = true
				names, left = append(names, name), append(left, len(left))
			}
		}
	}
	return epoch, r.until(ctx, left, func(part []int) ([]bool, error) {
		_, sure, err := r.propose(ctx, server, pick(names, part), again)
		return sure, err
	})
}
