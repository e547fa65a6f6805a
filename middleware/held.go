package middleware

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/coord"
	locks "github.com/holdfast-go/holdfast/internal/held"
)

// held is the context of a handler that runs with a lock. It ends with the request's, and when the
// lock is lost; but the lock's own context is asked for only on request, because it costs more than
// the lock.
type held struct {
	context.Context // the request's
	c               *coord.Coordinator
	lock            coord.Lock
	limit           limit // of the wait for the lock: here to be allocated with the rest
	holder          holder

	mu       sync.Mutex      // protects the fields below; not held while another package is called
	own      context.Context // the lock's, once it was asked for
	live     context.Context
	cancel   context.CancelCauseFunc
	stop     func() bool
	kept     int  // handlers in KeepLocked that run
	returned bool // the middleware's next handler has returned
	over     bool // the lock was given back
	warned   bool // of a handler that runs on
}

// A holder is a middleware that holds a lock for a handler.
type holder interface {
	// unlocked is called once, with no mutex held, when the lock was given back. err is the error
	// of Unlock.
	unlocked(h *held, err error)

	// ranOn is called, with no mutex held, if a handler asks for its lock after that was given
	// back.
	ranOn(h *held)
}

type heldKey struct{}

// Held tells package coord which lock a handler holds, so that it does not wait for itself.
func (h *held) Held() (coord.Lock, context.Context) { return h.lock, h.Context }

// ask returns the context that ends. Package coord may call it, by Done, under a mutex of its own,
// which Unlock waits for.
func (h *held) ask() context.Context {
	h.mu.Lock()
	live, over := h.live, h.over
	h.mu.Unlock()
	if live != nil {
		return live
	}
	ctx, cancel := context.WithCancelCause(h.Context)
	stop := func() bool { return true }
	if !over {
		own := h.ofLock()
		stop = context.AfterFunc(own, func() {
			if cause := lossOf(own); cause != nil {
				cancel(cause)
			}
		})
	}
	end := func() {
		stop()
		cancel(coord.ErrUnlocked)
	}
	h.mu.Lock()
	first := h.live == nil
	if first {
		h.live, h.cancel, h.stop = ctx, cancel, stop
	}
	live, over = h.live, h.over
	h.mu.Unlock()
	if !first || over {
		end()
	}
	return live
}

// ofLock returns the lock's own context.
func (h *held) ofLock() context.Context {
	h.mu.Lock()
	own := h.own
	h.mu.Unlock()
	if own == nil {
		own = h.lock.Context()
		h.mu.Lock()
		h.own = own
		h.mu.Unlock()
	}
	return own
}

// lossOf returns why a lock was lost, by its context; nil if it is in force, or was unlocked: the
// handler may do so early, and go on.
func lossOf(own context.Context) error {
	if own.Err() == nil {
		return nil
	}
	if cause := context.Cause(own); !errors.Is(cause, coord.ErrUnlocked) {
		return cause
	}
	return nil
}

// begin says that a handler in KeepLocked begins. It reports false if that may not run: the lock
// was, or is about to be, given back.
func (h *held) begin() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.returned {
		return false
	}
	h.kept++
	return true
}

// finish says that a handler in KeepLocked has ended.
func (h *held) finish() {
	h.mu.Lock()
	h.kept--
	h.release()
}

// handed notes that the middleware's next handler has returned. It reports whether a handler in
// KeepLocked runs on.
func (h *held) handed() (runsOn bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.returned = true
	return h.kept > 0
}

// end unlocks, or leaves that to the last handler in KeepLocked that runs on. It reports whether
// one does.
func (h *held) end() (runsOn bool) {
	h.mu.Lock()
	h.returned = true
	runsOn = h.kept > 0
	h.release()
	return runsOn
}

// release unlocks if nothing runs any more. The context ends with it, if it has not before. The
// caller holds mu; release frees it.
func (h *held) release() {
	if !h.returned || h.kept > 0 || h.over {
		h.mu.Unlock()
		return
	}
	h.over = true
	live, stop, cancel := h.live, h.stop, h.cancel
	h.mu.Unlock()
	if live != nil {
		stop() // before, or it would take a goroutine to find that the lock was unlocked
	}
	err := h.lock.Unlock()
	if live != nil {
		cancel(coord.ErrUnlocked)
	}
	h.holder.unlocked(h, err)
}

// check calls ranOn once if the lock was given back.
func (h *held) check() {
	h.mu.Lock()
	warn := h.over && !h.warned
	h.warned = h.warned || warn
	h.mu.Unlock()
	if warn {
		h.holder.ranOn(h)
	}
}

func (h *held) Done() <-chan struct{} { return h.ask().Done() }

// Err asks the request's context and the lock's each time, as that looks at the clock: a goroutine
// that ends this one may be later than the handler's next write. It makes nothing if the lock is in
// force.
func (h *held) Err() error {
	h.mu.Lock()
	live, over := h.live, h.over
	h.mu.Unlock()
	if over || live != nil && live.Err() != nil {
		return h.ask().Err()
	}
	if err := h.Context.Err(); err != nil {
		live = h.ask()
		if errors.Is(err, context.Canceled) {
			h.cancel(context.Cause(h.Context))
		}
		return cmp.Or(live.Err(), err) // that its deadline has passed ends the live one, too, a moment later
	}
	cause := lossOf(h.ofLock())
	if cause == nil {
		return nil
	}
	live = h.ask()
	h.cancel(cause)
	return live.Err()
}

// Value goes by way of live once that is there: the context package looks there for the context
// that ends this one.
func (h *held) Value(key any) any {
	if key == (heldKey{}) || key == (locks.Key{}) {
		return h
	}
	h.mu.Lock()
	ctx := h.live
	h.mu.Unlock()
	if ctx == nil {
		ctx = h.Context
	}
	return ctx.Value(key)
}

// Lock returns the lock that [Serialize] or [Idempotent] holds for the request that ctx belongs to,
// the innermost if there are several. ok is false if there is none: the request's method or a
// KeyFunc made it pass without. The handler may unlock that of Serialize before it returns; not
// that of Idempotent, as the next request with the idempotency key would not know the outcome.
func Lock(ctx context.Context) (l coord.Lock, ok bool) {
	h, ok := ctx.Value(heldKey{}).(*held)
	if !ok {
		return coord.Lock{}, false
	}
	h.check()
	return h.lock, true
}

// Locks returns all the locks that [Serialize], [SerializeAll] and [Idempotent] hold for the
// request that ctx belongs to, the innermost first; those of one SerializeAll are in the order of
// its keys.
func Locks(ctx context.Context) coord.Locks {
	var all coord.Locks
	for h, _ := ctx.Value(heldKey{}).(*held); h != nil; h, _ = h.Context.Value(heldKey{}).(*held) {
		h.check()
		all = append(all, h.lock)
	}
	return all
}

// heldBy returns the lock of c's key that is in force for the request, nil if there is none.
func heldBy(ctx context.Context, c *coord.Coordinator, key string) *held {
	h, _ := ctx.Value(heldKey{}).(*held)
	for h != nil {
		if h.c == c && h.lock.Key() == key && h.lock.Context().Err() == nil { // the handler may have unlocked it
			return h
		}
		h, _ = h.Context.Value(heldKey{}).(*held)
	}
	return nil
}

// limit is context.WithTimeout for one goroutine. Its timer is started when that first waits: most
// locks are there at once.
type limit struct {
	context.Context
	wait    time.Duration
	since   time.Time // when it was started
	started bool
	cancel  context.CancelFunc
}

func (l *limit) start() {
	if !l.started {
		l.started, l.since = true, time.Now()
		l.Context, l.cancel = context.WithTimeout(l.Context, l.wait)
	}
}

// stop ends the context if it was started.
func (l *limit) stop() {
	if l.started {
		l.cancel()
	}
}

func (l *limit) Deadline() (time.Time, bool) {
	l.start()
	return l.Context.Deadline()
}

func (l *limit) Done() <-chan struct{} {
	l.start()
	return l.Context.Done()
}
