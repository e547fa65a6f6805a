package coord

import (
	"cmp"
	"context"
	"os"
	"runtime"
	"slices"
	"strconv"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/lease"
)

// Bounds of an answer.
const (
	mostKeys    = 1000 // of Held and Top
	mostWaiters = 64   // of each key, callers of one process and nodes
)

// By is the order of [Coordinator.Top].
type By uint8

// Orders of keys.
const (
	LongestHeld   By = iota + 1 // the lock that has been held for longest comes first
	LongestWait                 // the caller that has waited for longest; keys with KeySummary.Expected come last
	MostWaitedFor               // callers that wait; these keys come last here, too
	MostTaken                   // locks that were taken under the holder's present hold: in one process, without another in between
	LongestWanted               // as LongestHeld, of locks with KeySummary.Wanted only
)

var orders = [...]string{"", "held", "wait", "waiters", "taken", "wanted"}

// String returns a short name: held, wait, waiters, taken or wanted.
func (b By) String() string {
	if b > 0 && int(b) < len(orders) {
		return orders[b]
	}
	return "By(" + strconv.Itoa(int(b)) + ")"
}

// ParseBy is the inverse of String.
func ParseBy(name string) (b By, ok bool) {
	i := slices.Index(orders[1:], name)
	return By(i + 1), i >= 0
}

// weight returns the number that places a key in the order, 0 if it is not to be among the first.
func (b By) weight(g *lease.Glance) int64 {
	switch {
	case b == LongestHeld:
		return int64(max(g.Held, g.Given)) // the holder may not answer
	case b == LongestWait:
		return int64(g.Waited)
	case b == MostWaitedFor:
		return int64(g.Waiting)
	case b == MostTaken && g.Locked:
		return int64(g.Turns)
	case b == LongestWanted && g.Wanted:
		return int64(g.Held)
	}
	return 0
}

// unexpected is added to the weights of waits that ExpectLong does not expect: they come first.
const unexpected = 1 << 62

// weight returns the key's weight in the order. Expected keys come behind all others in the orders
// of waits, and are left out of LongestWanted.
func (c *Coordinator) weight(by By, g *lease.Glance) int64 {
	w := by.weight(g)
	if w == 0 || !by.waits() && by != LongestWanted {
		return w
	}
	switch expected := c.tells.expected.has(g.Name); {
	case expected && by == LongestWanted:
		return 0
	case !expected && by.waits():
		return w + unexpected
	}
	return w
}

// waits reports whether keys are compared by their waiters.
func (b By) waits() bool { return b == LongestWait || b == MostWaitedFor }

// process describes this process.
func (c *Coordinator) process() Process {
	p := Process{Name: c.opts.Name, Session: c.sessions.id(), Host: hostName(), PID: os.Getpid()}
	if c.cluster != nil {
		p.ID = c.cluster.self.name
	}
	return p
}

// answer answers a question about this node. Where there are many keys it takes half a CallTimeout
// at most, so that the answer comes in time, and ends early with ctx.
func (c *Coordinator) answer(ctx context.Context, q question) reply {
	ctx, cancel := context.WithTimeout(ctx, c.opts.CallTimeout/2)
	defer cancel()
	a := reply{Process: c.process()}
	most := max(0, min(q.Most, mostKeys))
	switch q.About {
	case "keys":
		if len(q.Keys) > mostKeys {
			a.Error = "too many keys"
			return a
		}
		for _, key := range q.Keys {
			if ctx.Err() != nil {
				a.Error = "there was no time for all keys"
				return a
			}
			if validateName(string(key)) != nil {
				a.Error = "a key is not valid"
				return a
			}
			k := c.partOf(string(key))
			if q.Names {
				k.Names = c.namesHere(string(key))
			}
			a.Keys = append(a.Keys, k)
		}
	case "held":
		a.Keys, a.More, a.Left = c.heldHere(ctx, most)
	case "top":
		if q.By == 0 || int(q.By) >= len(orders) {
			a.Error = "this version does not know that order"
			return a
		}
		by := q.By
		if by == LongestHeld && q.Wanted {
			by = LongestWanted
		}
		a.Keys, a.Left = c.topHere(ctx, most, by)
	case "waits":
		a.Waits, a.Behind, a.More = c.waitsFor(q.Keys)
	case "node":
		r := c.report()
		a.Node = &r
	case "drain":
		switch {
		case c.opts.Unbreakable:
			a.Error = "Options.Unbreakable is set there"
		default:
			if err := c.beginDrain(q.Why[:min(len(q.Why), maxReason+maxProcessName+3)]); err != nil {
				a.Error = err.Error()
			}
		}
	case "break":
		switch {
		case c.opts.Unbreakable:
			a.Error = "Options.Unbreakable is set there"
		case len(q.Keys) == 1 && validateName(string(q.Keys[0])) == nil:
			a.Broken = c.breakHere(string(q.Keys[0]), q.Fence, q.Why[:min(len(q.Why), maxReason+maxProcessName+3)])
		}
	default:
		a.Error = "this version does not know that question"
	}
	return a
}

// partOf returns this node's knowledge of a key, or of the name of a hold.
func (c *Coordinator) partOf(key string) keyPart {
	p := c.partitionNamed(key)
	now := c.moment()
	p.mu.Lock()
	s := p.StatusOf(key, now, mostWaiters)
	p.mu.Unlock()
	k := keyPart{
		Key: []byte(key), Epoch: s.Epoch, Locked: s.Locked, Kept: s.Kept, Fence: Fence(s.Fence), Held: s.Held, Turns: s.Turns, Wanted: s.Wanted,
		Waiting: s.Waiting, Waited: s.Waited, Expected: c.tells.expected.has(key),
	}
	if s.Locked {
		k.Label = labelIn(s.Tag, s.Fence)
	}
	for _, w := range s.Waits {
		if label := labelIn(w.Tag, 0); label != "" {
			k.Labels = append(k.Labels, label)
		}
	}
	if g := s.Other; g.Session != "" {
		k.Given = &givenPart{Session: g.Session, Node: g.Node, Token: Fence(g.Token), Held: s.Given}
	}
	for _, id := range s.Queue {
		k.Queue = append(k.Queue, id.Session)
	}
	if plain, m := fallback.Split(key); m.Reads() && k.Waiting > 0 {
		n, labels := c.waitToRead(plain)
		k.Waiting, k.Labels = max(k.Waiting, n), labels
	}
	if x, ok := s.Share.(*reading); ok {
		if k.Readers = x.readers(); k.Readers == 0 {
			k.Locked, k.Kept = false, true // it lasts from one reader to the next
		}
		if k.Reading = x.labels(); len(k.Reading) > 0 {
			k.Label = k.Reading[0]
		}
	}
	if b, ok := s.Share.(*block); ok {
		if k.Free, k.Readers, k.Reading = b.callers(); k.Readers == 0 {
			k.Locked, k.Kept = false, true
		}
		if len(k.Reading) > 0 {
			k.Label = k.Reading[0]
		}
	}
	return k
}

// survey calls f with each key of this process that is held or waited for, until it has seen all or
// ctx ends. It returns how many keys it has not looked at then. f is called without a mutex.
func (c *Coordinator) survey(ctx context.Context, f func(*lease.Glance)) (left int) {
	now := c.moment()
	var seen []lease.Glance
	tell := func() {
		for i := range seen {
			f(&seen[i])
		}
		seen = seen[:0]
	}
	for i := range c.parts {
		p := &c.parts[i]
		p.mu.Lock()
		before := p.Len()
		if ctx.Err() != nil {
			p.mu.Unlock()
			left += before
			continue
		}
		p.Survey(now, func() bool {
			before -= len(seen)
			p.mu.Unlock()
			tell()
			runtime.Gosched() // as p.letIn
			p.mu.Lock()
			return ctx.Err() == nil
		}, func(g lease.Glance) { seen = append(seen, g) })
		if before -= len(seen); ctx.Err() != nil {
			left += max(before, 0)
		}
		p.mu.Unlock()
		tell()
	}
	return left
}

// weighed is a key with its place in an order.
type weighed struct {
	name   string
	weight int64
}

func heaviest(a, b weighed) int {
	return cmp.Or(cmp.Compare(b.weight, a.weight), cmp.Compare(a.name, b.name))
}

// topHere returns the first keys of this process in an order, and how many keys it has not looked
// at when ctx ended.
func (c *Coordinator) topHere(ctx context.Context, most int, by By) (_ []keyPart, left int) {
	if most == 0 {
		return nil, 0
	}
	var first []weighed // sorted from time to time
	var least int64     // a lighter key is not among the first
	trim := func() {
		slices.SortFunc(first, heaviest)
		if len(first) >= most {
			first = first[:most]
			least = first[most-1].weight
		}
	}
	left = c.survey(ctx, func(g *lease.Glance) {
		if w := c.weight(by, g); w > least {
			if first = append(first, weighed{g.Name, w}); len(first) >= 2*most {
				trim()
			}
		}
	})
	trim()
	keys := make([]keyPart, len(first))
	for i, x := range first {
		keys[i] = c.partOf(x.name)
	}
	return keys, left
}

// heldHere returns the keys that callers of this process have locked, sorted. more is how many of
// them were left out, and left how many keys it had not looked at when ctx ended.
func (c *Coordinator) heldHere(ctx context.Context, most int) (keys []keyPart, more, left int) {
	var names []string
	left = c.survey(ctx, func(g *lease.Glance) {
		if !g.Locked {
			return
		}
		if len(names) < most {
			names = append(names, g.Name)
		} else {
			more++
		}
	})
	slices.Sort(names)
	for _, name := range names {
		if k := c.partOf(name); k.Locked {
			keys = append(keys, k)
		}
	}
	return keys, more, left
}
