package coord

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/circle"
	"github.com/holdfast-go/holdfast/internal/guard"
	"github.com/holdfast-go/holdfast/internal/lease"
)

// A wait is part of a circle only if its caller has locks, and only those are known that its
// context carries. Such a wait is noted when it has lasted for Options.DeadlockAfter. Whatever
// closes a circle is noted last, so the process that notes a wait follows it: it asks all nodes for
// the waits of callers that have the wanted key. Then it asks for those of callers that have the
// keys that these want, and so on. A circle is believed when it is found twice, some time apart: a
// wait, request or lock that ended in between is not the same one. So all parts of a circle were
// there when the first look ended.
//
// A reader waits for another one because of a writer between them. Only the grantor knows their
// order: that a writer waits somewhere proves nothing, as the reader may have come before it, with
// a grant that is on its way. So the owner tells of the very requests. Where there is none, the
// arbiter's answer to a request says that another one waits before it. It counts once, and the
// arbiter is asked again: so the findings of two looks were true together at a time in between.

// mostDepth is how often all nodes are asked in one look, and so how long a circle may be.
const mostDepth = 16

// mostBackoff is by how much longer than DeadlockAfter the pause between two looks at a wait gets.
const mostBackoff = 8

// Parts of DeadlockAfter.
const (
	betweenLooks = 4  // between the two looks at a circle: its end is told to all its nodes meanwhile
	atRest       = 16 // after all looks, so that many waits are followed together
)

// A waitPart is a wait as a node tells of it.
type waitPart struct {
	ID    uint64     `json:"id"`
	Name  []byte     `json:"name"`  // of the hold that it waits for
	Began int64      `json:"began"` // in Unix nanoseconds
	Label string     `json:"label,omitempty"`
	Has   []heldPart `json:"has"`
}

func (x *waitPart) room() int {
	n := 2*len(x.Name) + 6*len(x.Label) + 128
	for _, h := range x.Has {
		n += 2*len(h.Name) + 64
	}
	return n
}

// A heldPart is a lock of a caller that waits.
type heldPart struct {
	Name  []byte `json:"name"`
	Fence Fence  `json:"fence"`
}

// A placePart is where a process's request waits behind a writer's, as the key's owner tells of it.
type placePart struct {
	Name  []byte `json:"name"` // of the hold that it asked for
	Epoch uint32 `json:"epoch"`
	Order uint64 `json:"order"`
}

// stuck has the waits of this process that have lasted for long, of callers that have locks.
type stuck struct {
	mu    mutex[leafRank] // protects the fields below
	waits map[uint64]*stuckWait
	last  uint64
	wake  chan struct{} // capacity 1: there is a new one

	timers sync.Pool // of waits that have not lasted for long yet
}

// mayCircle reports whether a wait for a name may be part of a circle. One for permits is none:
// callers share a block, and one that wants permits waits for any of several callers, so no context
// carries them. Nor is that of Downgrade, which waits for no caller: its hold is let in beside the
// caller's own, and before those that wait.
func mayCircle(name string) bool {
	_, mode := fallback.Split(name)
	return mode.Kind != fallback.Permits && mode.Kind != fallback.Downgraded
}

// A stuckWait is a call that waits. The mutex of stuck protects the fields that change.
type stuckWait struct {
	id    uint64
	name  string        // of the hold that it waits for; of readers any of the key's
	asks  func() string // of a reader: the one that its process asks for now
	label string
	began time.Time
	locks []carriedLock
	crew  *crew        // of the flight of Share that waits, or whose function does: it has more locks; nil: there is none
	next  lease.Moment // when it is looked at again
	pause time.Duration
	told  *DeadlockError // why it is to be sent away; nil: it is not
	away  chan struct{}  // closed when told is there
}

// endure waits as long as a call does, with a context that carries locks, or until the call is to
// be sent away: then it returns the wait. A value that it reads from ready is there again
// afterwards. A wait that does not last costs a timer, which is used again.
func (c *Coordinator) endure(ctx context.Context, name string, asks func() string, ready chan struct{}) *stuckWait {
	if c.opts.DeadlockAfter <= 0 {
		return nil
	}
	start := c.moment()
	if c.callers.stuck.brief(ctx, ready, c.opts.DeadlockAfter) {
		return nil
	}
	w := &stuckWait{name: name, asks: asks, began: c.now().Add(start - c.moment()), locks: c.carried(ctx), crew: crewOf(ctx),
		pause: c.opts.DeadlockAfter}
	if len(w.locks) == 0 && w.crew == nil {
		return nil
	}
	if labelled.Load() {
		w.label = labelOf(ctx)
	}
	w.away = make(chan struct{})
	c.callers.stuck.note(w)
	defer c.callers.stuck.end(w)
	select {
	case _, open := <-ready:
		if open {
			ready <- struct{}{}
		}
	case <-ctx.Done():
	case <-w.away:
		return w
	}
	return nil
}

// has returns the locks of the caller, and of those that wait for it in a flight of Share at this
// moment.
func (w *stuckWait) has(c *Coordinator) []carriedLock {
	if w.crew == nil {
		return w.locks
	}
	all := slices.Clone(w.locks)
	for _, x := range w.crew.has() {
		all = c.addCarried(all, x.h)
	}
	return all
}

// brief waits for d, and reports whether the wait ended before that.
func (s *stuck) brief(ctx context.Context, ready chan struct{}, d time.Duration) bool {
	late, ok := s.timers.Get().(*time.Timer)
	if ok {
		late.Reset(d)
	} else {
		late = time.NewTimer(d)
	}
	defer s.timers.Put(late)
	defer late.Stop()
	select {
	case _, open := <-ready:
		if open {
			ready <- struct{}{}
		}
		return true
	case <-ctx.Done():
		return true
	case <-late.C:
		return false
	}
}

// sentAway returns the error of a call that goes away, and tells of it.
func (c *Coordinator) sentAway(w *stuckWait) error {
	d := w.told // w.away is closed
	c.tells.stats.deadlocks.Add(1)
	c.opts.Logger.Warn("holdfast: callers wait for each other in a circle: one is sent away", "key", logged(d.Key),
		"waited", c.since(w.began).Round(time.Millisecond), "callers", len(d.Cycle), "circle", d.circle())
	return &WaitError{Key: d.Key, Reason: d}
}

func (s *stuck) note(w *stuckWait) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.waits == nil {
		s.waits = make(map[uint64]*stuckWait)
	}
	s.last++
	w.id = s.last
	s.waits[w.id] = w
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

func (s *stuck) end(w *stuckWait) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.waits, w.id)
}

// tell sends a wait away, if it has not ended.
func (s *stuck) tell(id uint64, why *DeadlockError) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if w := s.waits[id]; w != nil && w.told == nil {
		w.told = why
		close(w.away)
	}
}

// all returns the waits, in the order in which they were noted.
func (s *stuck) all() []*stuckWait {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.SortedFunc(maps.Values(s.waits), func(a, b *stuckWait) int { return int(a.id) - int(b.id) })
}

// due returns the names of the waits that are to be looked at now.
func (s *stuck) due(now lease.Moment, after time.Duration) (names []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range s.waits {
		if w.next <= now {
			w.next = now + w.pause
			if len(w.locks) == 0 && !w.crew.lends() { // callers with locks may come
				continue
			}
			names = append(names, w.name)
			w.pause = min(2*w.pause, mostBackoff*after)
		}
	}
	slices.Sort(names)
	return names
}

// rest returns how long it is until a wait is to be looked at. It reports false if there is none.
func (s *stuck) rest(now lease.Moment) (d time.Duration, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range s.waits {
		if left := max(w.next-now, 1); !ok || left < d {
			d, ok = left, true
		}
	}
	return d, ok
}

// keepFollowing looks for circles, until the coordinator stops.
func (c *Coordinator) keepFollowing() {
	s := &c.callers.stuck
	again := time.NewTimer(0)
	defer again.Stop()
	for {
		select {
		case <-s.wake:
		case <-again.C:
		case <-c.life.ctx.Done():
			return
		}
		if names := s.due(c.moment(), c.opts.DeadlockAfter); len(names) > 0 {
			c.lookForCircles(c.life.ctx, names)
			sleep(c.life.ctx, c.opts.DeadlockAfter/atRest)
		}
		if d, ok := s.rest(c.moment()); ok {
			again.Reset(d)
		}
	}
}

// lookForCircles looks twice, and sends those callers of this process away that are the youngest of
// the circles that it finds both times. The other processes do so with theirs.
func (c *Coordinator) lookForCircles(ctx context.Context, names []string) {
	s := c.look(ctx, names)
	first := c.ownVictims(s)
	again := first
	if guard.Twice {
		if len(first) == 0 || !sleep(ctx, c.opts.DeadlockAfter/betweenLooks) {
			return
		}
		s = c.look(ctx, names)
		again = c.ownVictims(s)
	}
	for _, found := range again {
		if slices.ContainsFunc(first, found.Same) {
			c.sendAway(found, s)
		}
	}
}

// ownVictims returns the circles whose youngest wait is one of this process.
func (c *Coordinator) ownVictims(s sight) []circle.Circle {
	own := c.sessions.id()
	return slices.DeleteFunc(circle.Find(s.found()), func(x circle.Circle) bool { return x[0].Process != own })
}

// A sight is the result of one look: waits, and the other findings about them.
type sight struct {
	waits  []seenWait
	behind map[string]circle.Place // of requests behind a writer's, by the name of the hold that they are for
	told   map[waitID]DeadlockWait
	wanted map[string]bool // keys about which the nodes were asked
}

// A seenWait is a wait, and the name of the hold that it waits for.
type seenWait struct {
	circle.Wait
	name string
}

// found returns the waits, with the places of their requests.
func (s *sight) found() (all []circle.Wait) {
	for _, w := range s.waits {
		w.Behind = s.behind[w.name]
		all = append(all, w.Wait)
	}
	return all
}

// A waitID is that of a wait among those of all processes.
type waitID struct {
	session string
	id      uint64
}

// look follows waits that want the names.
func (c *Coordinator) look(ctx context.Context, names []string) sight {
	s := sight{behind: make(map[string]circle.Place), told: make(map[waitID]DeadlockWait), wanted: make(map[string]bool)}
	var links []*link
	if c.cluster != nil {
		links = c.cluster.all()
	}
	for range mostDepth {
		q, size := question{About: "waits"}, 0
		for _, name := range names {
			key, _ := fallback.Split(name)
			if size += 2*len(key) + 16; s.wanted[key] || size > mostWaits {
				continue
			}
			s.wanted[key] = true
			q.Keys = append(q.Keys, []byte(key))
		}
		if len(q.Keys) == 0 {
			break
		}
		answers, _ := c.askAll(ctx, links, q)
		names = nil
		for i := range answers {
			names = append(names, s.add(&answers[i])...)
		}
	}
	return s
}

// add takes an answer, and returns the names that its waits want.
func (s *sight) add(a *reply) (names []string) {
	for _, x := range a.Behind {
		if at := s.behind[string(x.Name)]; x.Epoch >= at.Epoch { // an owner of before does not know yet that it is none
			s.behind[string(x.Name)] = circle.Place{Epoch: x.Epoch, Order: x.Order}
		}
	}
	for _, x := range a.Waits {
		id := waitID{a.Process.Session, x.ID}
		if _, known := s.told[id]; known || id.session == "" {
			continue
		}
		name := string(x.Name)
		w := circle.Wait{Process: id.session, ID: x.ID, Claim: claimOf(name), Began: x.Began}
		for _, h := range x.Has {
			w.Holds = append(w.Holds, circle.Hold{Claim: claimOf(string(h.Name)), Fence: uint64(h.Fence)})
		}
		s.waits = append(s.waits, seenWait{w, name})
		s.told[id] = DeadlockWait{Process: a.Process, Key: namedKey(name), Mode: modeOf(name), Label: x.Label, Since: time.Unix(0, x.Began)}
		names = append(names, name)
	}
	return names
}

func claimOf(name string) circle.Claim {
	key, mode := fallback.Split(name)
	return circle.Claim{Key: key, Read: mode.Reads()}
}

// sendAway ends the first wait of a circle, which is one of this process.
func (c *Coordinator) sendAway(found circle.Circle, s sight) {
	d := &DeadlockError{}
	for _, l := range found {
		w := s.told[waitID{l.Process, l.ID}]
		if w.Has = l.By.Key; l.By.Read {
			w.HasMode = modeRead
		}
		d.Cycle = append(d.Cycle, w)
	}
	d.Key = d.Cycle[0].Key
	c.callers.stuck.tell(found[0].ID, d)
}

// waitsFor returns the waits of this process's callers that have one of the keys. It also returns
// the requests for the keys that wait behind a writer's (see behind). It returns as many as an
// answer has room for, and the number of the others.
func (c *Coordinator) waitsFor(keys [][]byte) (all []waitPart, behind []placePart, more int) {
	asked, size := make(map[string]bool, len(keys)), 0
	for _, key := range keys {
		asked[string(key)] = true
		for _, x := range c.behind(string(key)) {
			if size += 2*len(x.Name) + 64; size > mostWaits {
				more++
				continue
			}
			behind = append(behind, placePart{[]byte(x.Name), x.Epoch, x.Order})
		}
	}
	for _, w := range c.callers.stuck.all() {
		x, wanted := waitPart{ID: w.id, Name: []byte(w.name), Began: w.began.UnixNano(), Label: w.label}, false
		if w.asks != nil {
			x.Name = []byte(cmp.Or(w.asks(), w.name))
		}
		for _, l := range w.has(c) {
			if !l.holds() {
				continue
			}
			name, fence := l.name()
			key, _ := fallback.Split(name)
			wanted = wanted || asked[key]
			x.Has = append(x.Has, heldPart{Name: []byte(name), Fence: Fence(fence)})
		}
		if !wanted {
			continue
		}
		if size += x.room(); size > mostWaits {
			more++
			continue
		}
		all = append(all, x)
	}
	return all, behind, more
}

// mostWaits is for how many bytes of waits an answer has room.
const mostWaits = maxText - 8<<10

// behind returns the requests for reading the key that wait behind one for writing: those that this
// node, its owner, knows of, or its own at the arbiter.
func (c *Coordinator) behind(key string) []lease.Request {
	var a after
	p := c.partitionOf(key)
	now := p.lock()
	all := p.Behind(key, now)
	for i := range mostShared {
		if r, ok := p.WaitsBehind(c.sharedName(key, i), now); ok {
			all = append(all, r)
		}
	}
	p.unlock(&a)
	a.do(c)
	return all
}
