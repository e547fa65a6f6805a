package middleware

import (
	"context"
	"errors"
	"net/http"

	"github.com/holdfast-go/holdfast/coord"
)

// An attempt is one request with a key.
type attempt struct {
	m     *idempotency
	next  http.Handler
	w     http.ResponseWriter
	came  *http.Request // as it came
	r     *http.Request // with the body read
	id    string        // of the record
	print fingerprint
}

// lockPrefix begins the keys that are locked.
const lockPrefix = "idempotency/"

func (x *attempt) answer() {
	rec, err := x.load()
	if err != nil {
		x.unavailable(err)
		return
	}
	if reply := x.known(rec); reply != nil { // the usual repetition: no lock
		reply()
		return
	}
	if !x.m.queue.enter(x.id, x.m.opts.MaxWaiters) {
		x.inProgress(nil)
		return
	}
	x.turn()()
}

// turn waits for the request's turn, and takes it. What it returns is to be called when the request is no longer one of those that
// wait: its client may read slowly.
func (x *attempt) turn() (reply func()) {
	defer x.m.queue.leave(x.id)
	l, err := x.lock()
	if err != nil {
		return func() { x.notLocked(err) }
	}
	return x.locked(l)
}

// lock waits for the request's turn.
func (x *attempt) lock() (coord.Lock, error) {
	if x.m.opts.Wait < 0 {
		return x.m.c.TryLock(x.r.Context(), lockPrefix+x.id)
	}
	ctx, cancel := context.WithTimeout(x.r.Context(), x.m.opts.Wait)
	defer cancel()
	return x.m.c.Lock(ctx, lockPrefix+x.id)
}

// known returns how a request is answered that is not to be executed, whoever has the lock; nil if that remains to be seen.
// rec may be nil.
func (x *attempt) known(rec *record) (reply func()) {
	switch {
	case rec == nil:
		return nil
	case rec.print != x.print:
		return x.refusal(Problem{
			Type: TypeReused, Title: "Idempotency key used for another request", Status: http.StatusUnprocessableEntity,
			Detail: "A request with this key differed from this one, in its target or content. A new request needs a new key.",
		})
	case rec.state == answered:
		return func() {
			x.w.Header().Set(ReplayedHeader, "true")
			rec.answer.write(x.w)
		}
	case rec.state == notKept:
		return x.refusal(Problem{
			Type: TypeNotKept, Title: "Answer not kept", Status: http.StatusConflict,
			Detail: "The request was executed, but its answer was too large to be kept.",
		})
	}
	return nil
}

// locked executes the request, if it is still to be executed, and gives the lock back. What it returns is to be called after
// that: a client that reads slowly must not keep the lock.
func (x *attempt) locked(l coord.Lock) (reply func()) {
	h := x.hold(l)
	defer h.end()
	rec, err := x.load()
	if err != nil {
		return func() { x.unavailable(err) }
	}
	if reply := x.known(rec); reply != nil {
		return reply
	}
	if rec != nil && rec.state == started && !x.m.opts.Rerun {
		return x.refusal(Problem{
			Type: TypeOutcome, Title: "Outcome unknown", Status: http.StatusConflict,
			Detail: "This request was begun before, and it is not known whether it was executed.",
		})
	}
	if err := x.store(l, &record{state: started}); err != nil {
		// It may have been stored all the same, and nothing has happened yet: that should be known, if it can be.
		if !errors.Is(err, ErrStale) {
			_ = x.store(l, &record{state: failed})
		}
		return func() { x.unavailable(err) }
	}
	if lost := l.Context(); lost.Err() != nil { // while the store took its time; whoever has the lock now may not know of this
		_ = x.store(l, &record{state: failed})
		return func() { x.unavailable(context.Cause(lost)) }
	}
	rw := newRecorder(x.w, x.m.opts.MaxAnswer)
	x.execute(rw, h)
	if h.handed() { // "started" stays: its answer gets nowhere
		x.m.logger.Error("holdfast: a handler runs on after its answer; a repeated request will be refused", "key", l.Key(), "fence", l.Fence(),
			"pattern", x.r.Pattern, "status", rw.status)
		return rw.deliver
	}
	if rw.silent() && !rw.refused { // "started" stays: the outcome is unknown
		x.m.logger.Error("holdfast: a handler has returned without an answer; a repeated request will be refused", "key", l.Key(),
			"fence", l.Fence(), "pattern", x.r.Pattern)
		return rw.deliver
	}
	if err := x.store(l, x.outcome(rw)); err != nil {
		x.m.logger.Error("holdfast: the answer to a request could not be stored", "key", l.Key(), "fence", l.Fence(), "status", rw.status, "error", err)
		if errors.Is(err, ErrStale) && !rw.through {
			return x.refusal(Problem{
				Type: TypeOutcome, Title: "Executed again elsewhere", Status: http.StatusConflict, RetryAfter: x.m.retryAfter, Err: err,
				Detail: "The request took too long and was executed again. The answer is that of the last execution.",
			})
		}
	}
	return rw.deliver
}

// execute calls the handler.
func (x *attempt) execute(rw *recorder, h *held) {
	returned := false
	inner := x.r.WithContext(h)
	defer func() {
		keepForm(x.came, inner)
		if returned || x.m.opts.Final(http.StatusInternalServerError) {
			return
		}
		if err := x.store(h.lock, &record{state: failed}); err != nil {
			x.m.logger.Error("holdfast: the panic of a handler could not be stored", "key", h.lock.Key(), "fence", h.lock.Fence(), "error", err)
		}
	}()
	x.next.ServeHTTP(rw, inner)
	rw.end()
	returned = true
}

// outcome is the record of what the handler has answered.
func (x *attempt) outcome(rw *recorder) *record {
	switch {
	case rw.refused || !x.m.opts.Final(rw.status):
		return &record{state: failed}
	case !rw.kept:
		return &record{state: notKept, status: rw.status}
	}
	a := rw.answer()
	delete(a.header, "Date") // the replay has its own
	if !x.m.opts.KeepCookies {
		delete(a.header, "Set-Cookie")
	}
	return &record{state: answered, answer: a}
}

// load returns the request's record, nil if there is none.
func (x *attempt) load() (*record, error) {
	ctx, cancel := context.WithTimeout(x.r.Context(), x.m.opts.StoreTimeout)
	defer cancel()
	b, err := x.m.store.Get(ctx, x.id)
	if errors.Is(err, ErrNoRecord) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return decodeRecord(b)
}

// store puts the request's record. That the client has gone does not matter to it.
func (x *attempt) store(l coord.Lock, rec *record) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(x.r.Context()), x.m.opts.StoreTimeout)
	defer cancel()
	rec.print = x.print
	return x.m.store.Put(ctx, x.id, rec.encode(), uint64(l.Fence()), x.m.opts.TTL)
}

// hold returns the context for the handler. It ends when the lock is lost, and only if that is asked for with the request.
func (x *attempt) hold(l coord.Lock) *held {
	ctx := x.r.Context()
	if !x.m.opts.FollowClient {
		ctx = context.WithoutCancel(ctx)
	}
	return &held{Context: ctx, c: x.m.c, lock: l, holder: x.m}
}

func (m *idempotency) unlocked(h *held, err error) {
	if l := h.lock; errors.Is(err, coord.ErrLost) {
		m.logger.Warn("holdfast: the lock of a request was lost while its handler ran", "key", l.Key(), "fence", l.Fence(), "error", err)
	}
}

func (m *idempotency) ranOn(h *held) { warnRanOn(m.logger, h) }

// notLocked answers a request that did not get its lock.
func (x *attempt) notLocked(err error) {
	switch {
	case errors.Is(err, coord.ErrHeld):
		x.refusal(misconfigured(err))()
	case !errors.Is(err, coord.ErrLocked):
		x.unavailable(err)
	default:
		abort(x.r)
		x.inProgress(err)
	}
}

// inProgress answers a request that does not wait for the first one any longer.
func (x *attempt) inProgress(err error) {
	x.refusal(Problem{
		Type: TypeInProgress, Title: "Request in progress", Status: http.StatusConflict, RetryAfter: x.m.retryAfter, Err: err,
		Detail: "The first request with this key is still being executed.",
	})()
}

// unavailable answers a request that nothing can be said about now.
func (x *attempt) unavailable(err error) {
	abort(x.r)
	x.refusal(Problem{
		Type: TypeUnavailable, Title: "Not available now", Status: http.StatusServiceUnavailable, RetryAfter: x.m.retryAfter, Err: err,
	})()
}

func (x *attempt) refusal(p Problem) func() {
	return func() { x.m.refuse(x.w, x.r, p) }
}
