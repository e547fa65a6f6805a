package sim

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/coord"
)

// judge records the clients' observations of the locks, and judges them as they come.
type judge struct {
	mu     sync.Mutex // protects the fields below
	keys   map[string]*past
	grants int
	writes int // to the resource
	late   int // that it refused, because a later holder had been there
	bad    []string
	begin  time.Time
	ttl    time.Duration
	slack  time.Duration
	state  func(key string) []string // of all processes
	tasks  tasks
	breaks map[coord.Fence]bool // that Break was called for
}

// past is the known history of a key.
type past struct {
	holder  *grant // the last one
	token   uint64 // its token
	written uint64 // the highest token that the resource has seen
	uses    []*use // of readers, and of those that have permits
	read    uint64 // the highest token of a reader
}

// semaphore is how many permits each key has.
const semaphore = 4

// A use is a reader's lock, or a caller's permits.
type use struct {
	*grant
	n int // permits; 0: it is a reader
}

// grant is a lock as its holder sees it: from Lock's return to the call of Unlock, or until its
// context has ended.
type grant struct {
	by       *start
	ctx      context.Context
	token    uint64
	called   time.Time // when Lock was
	at       time.Time
	released bool
	resting  bool // on nothing, which has been told

	downgrades bool     // it is being made one for reading
	beside     []uint64 // tokens of readers that were let in meanwhile
}

// newJudge returns one for sessions of that length. Processes that have stood still get some time
// to notice the events meanwhile.
func newJudge(ttl time.Duration) *judge {
	return &judge{keys: make(map[string]*past), breaks: make(map[coord.Fence]bool), begin: time.Now(), ttl: ttl, slack: ttl/4 + 50*time.Millisecond}
}

func (h *judge) fail(format string, args ...any) {
	h.bad = append(h.bad, fmt.Sprintf("%8.3fs ", time.Since(h.begin).Seconds())+fmt.Sprintf(format, args...))
}

// say is fail for callers that do not hold mu.
func (h *judge) say(format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.fail(format, args...)
}

func (h *judge) of(key string) *past {
	k := h.keys[key]
	if k == nil {
		k = &past{}
		h.keys[key] = k
	}
	return k
}

// end is a context that tells without a look at the clock whether the lock has ended. The judge
// asks under its mutex, also for a process whose clock stands still: virtual time would stand still
// with it.
type end struct{ context.Context }

func endOf(l interface{ Context() context.Context }) context.Context {
	ctx := l.Context()
	ctx.Done() // which looks at the clock the first time
	return end{ctx}
}

func (e end) Err() error {
	select {
	case <-e.Done():
		return e.Context.Err()
	default:
		return nil
	}
}

// granted notes that a lock was granted, unless it has been lost since.
func (h *judge) granted(by *start, key string, l coord.Lock, called time.Time) *grant {
	g := &grant{by: by, ctx: endOf(l), token: uint64(l.Fence()), called: called, at: time.Now()}
	h.mu.Lock()
	defer h.mu.Unlock()
	k := h.of(key)
	if g.ctx.Err() != nil {
		return g
	}
	h.grants++
	if g.token <= max(k.token, k.read) && h.excused(g) {
		return g
	}
	if o := k.holder; o != nil && !o.released && !o.by.dead.Load() && o.ctx.Err() == nil && !h.excused(o) {
		h.fail("I1: %s has %q with token %d.%d, and since %v ago %s has it with %d.%d", by, key, g.token>>32, uint32(g.token),
			time.Since(o.at), o.by, o.token>>32, uint32(o.token))
		h.bad = append(h.bad, h.state(key)...)
	}
	h.inUse(k)
	for _, u := range k.uses {
		if u.n == 0 && !h.excused(u.grant) {
			h.fail("I1: %s has %q with token %d.%d, and since %v ago %s reads it with %d.%d", by, key, g.token>>32, uint32(g.token),
				time.Since(u.at), u.by, u.token>>32, uint32(u.token))
			h.bad = append(h.bad, h.state(key)...)
		}
	}
	if g.token <= k.read {
		h.fail("I2: %s has %q with token %d.%d after a reader's %d.%d", by, key, g.token>>32, uint32(g.token), k.read>>32, uint32(k.read))
		h.bad = append(h.bad, h.state(key)...)
	}
	if g.token <= k.token {
		h.fail("I2: %s has %q with token %d.%d after %d.%d", by, key, g.token>>32, uint32(g.token), k.token>>32, uint32(k.token))
		h.bad = append(h.bad, h.state(key)...)
	}
	k.holder, k.token = g, max(k.token, g.token)
	return g
}

// inUse forgets the uses of a key that have ended.
func (h *judge) inUse(k *past) {
	k.uses = slices.DeleteFunc(k.uses, func(u *use) bool {
		return u.released || u.by.dead.Load() || u.ctx.Err() != nil
	})
}

// downgraded notes that a lock has become one for reading. No writer may have come in between.
func (h *judge) downgraded(key string, g *grant, u *use) {
	h.mu.Lock()
	k := h.of(key)
	if !g.released && k.token != g.token && u.ctx.Err() == nil && !h.excused(g) && !h.excused(u.grant) {
		h.fail("I1: %s has downgraded %q with token %d.%d to %d.%d, and %d.%d was granted in between", u.by, key, g.token>>32, uint32(g.token),
			u.token>>32, uint32(u.token), k.token>>32, uint32(k.token))
		h.bad = append(h.bad, h.state(key)...)
	}
	for _, token := range g.beside {
		if token < u.token {
			h.besides(key, g, token)
		}
	}
	g.released = true
	h.mu.Unlock()
	h.shares(key, u)
}

// downgrading notes that the holder is about to make its lock one for reading. Readers may be let
// in before it knows that it is one.
func (h *judge) downgrading(g *grant) {
	h.mu.Lock()
	defer h.mu.Unlock()
	g.downgrades = true
}

// notDowngraded notes that a lock was not downgraded, or has been lost since: no reader may have
// been let in while it was in force.
func (h *judge) notDowngraded(key string, g *grant) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, token := range g.beside {
		h.besides(key, g, token)
	}
	g.downgrades, g.beside = false, nil
}

// besides tells of a reader beside a lock. The mutex is held.
func (h *judge) besides(key string, g *grant, token uint64) {
	h.fail("I1: %q was read with token %d.%d while %s had it with %d.%d", key, token>>32, uint32(token), g.by, g.token>>32, uint32(g.token))
	h.bad = append(h.bad, h.state(key)...)
}

// shares notes that a key is read, or that permits are had, unless they have been lost since.
func (h *judge) shares(key string, u *use) {
	h.mu.Lock()
	defer h.mu.Unlock()
	k := h.of(key)
	if u.ctx.Err() != nil {
		return
	}
	h.inUse(k)
	k.uses = append(k.uses, u)
	if h.excused(u.grant) { // it counts once its process has had time to notice
		return
	}
	h.grants++
	if u.n > 0 {
		sum := 0
		for _, x := range k.uses {
			if !h.excused(x.grant) {
				sum += x.n
			}
		}
		if sum > semaphore {
			h.fail("I1: %d permits of %q are in force, %d of them are %s's", sum, key, u.n, u.by)
			h.bad = append(h.bad, h.state(key)...)
		}
		return
	}
	switch o := k.holder; {
	case o == nil || o.released || o.by.dead.Load() || o.ctx.Err() != nil || h.excused(o):
	case o.downgrades:
		o.beside = append(o.beside, u.token)
	default:
		h.fail("I1: %s reads %q with token %d.%d, and since %v ago %s has it with %d.%d", u.by, key, u.token>>32, uint32(u.token),
			time.Since(o.at), o.by, o.token>>32, uint32(o.token))
		h.bad = append(h.bad, h.state(key)...)
	}
	if u.token <= k.token {
		h.fail("I2: %s reads %q with token %d.%d after %d.%d", u.by, key, u.token>>32, uint32(u.token), k.token>>32, uint32(k.token))
		h.bad = append(h.bad, h.state(key)...)
	}
	k.read = max(k.read, u.token)
}

// excused reports whether the holder cannot know that it has lost the lock: its process stands
// still or did so a moment ago, after Lock was called. No lock can help that: tokens are for this
// case.
func (h *judge) excused(g *grant) bool { return g.by.h.stoodSince(g.called, h.slack) }

// releasing notes that the holder is about to unlock.
func (h *judge) releasing(g *grant) {
	h.mu.Lock()
	defer h.mu.Unlock()
	g.released = true
}

// write is a write to the resource that the key protects, by a process that may have lost the lock
// meanwhile.
func (h *judge) write(key string, g *grant) {
	h.mu.Lock()
	defer h.mu.Unlock()
	k := h.of(key)
	h.writes++
	if g.token < k.written {
		h.late++
		if g.ctx.Err() == nil && !g.by.dead.Load() && !h.excused(g) {
			h.fail("%s was refused a write of %q with token %d.%d, and has not lost its lock", g.by, key, g.token>>32, uint32(g.token))
		}
		return
	}
	k.written = g.token
}
