package middleware

import (
	"context"
	"errors"
	"net/http"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/internal/once"
)

// An attempt is one request with a key. It is the once.Job of the handler's run.
type attempt struct {
	m     *idempotency
	next  http.Handler
	w     http.ResponseWriter
	came  *http.Request // as it came
	r     *http.Request // with the body read
	id    string        // of the record
	print fingerprint
	h     *held     // the lock
	rw    *recorder // of the run
}

// answer executes the request, or answers it from its record, once the lock was given back: its
// client may read slowly.
func (x *attempt) answer() {
	res, err := x.m.machine.Do(x.r.Context(), x.id, x.print, x)
	if res.NotSaved != nil {
		x.m.logger.Error("holdfast: the answer to a request could not be stored", "key", x.h.lock.Key(), "fence", x.h.lock.Fence(),
			"status", x.rw.status, "error", res.NotSaved)
	}
	switch {
	case err != nil:
		x.refused(err)
	case !res.Ran:
		x.replay(res.Record)
	case errors.Is(res.NotSaved, ErrStale) && !x.rw.through:
		x.refusal(Problem{
			Type: TypeOutcome, Title: "Executed again elsewhere", Status: http.StatusConflict, RetryAfter: x.m.retryAfter, Err: res.NotSaved,
			Detail: "The request took too long and was executed again. The answer is that of the last execution.",
		})
	default:
		x.rw.deliver()
	}
}

// refused answers a request that was not executed.
func (x *attempt) refused(err error) {
	switch {
	case errors.Is(err, once.ErrReused):
		x.refusal(Problem{
			Type: TypeReused, Title: "Idempotency key used for another request", Status: http.StatusUnprocessableEntity,
			Detail: "A request with this key differed from this one, in its target or content. A new request needs a new key.",
		})
	case errors.Is(err, once.ErrUnknown):
		x.refusal(Problem{
			Type: TypeOutcome, Title: "Outcome unknown", Status: http.StatusConflict,
			Detail: "This request was begun before, and it is not known whether it was executed.",
		})
	case errors.Is(err, once.ErrInProgress):
		if !errors.Is(err, once.ErrCrowded) { // it has waited
			abort(x.w, x.r)
		}
		x.refusal(Problem{
			Type: TypeInProgress, Title: "Request in progress", Status: http.StatusConflict, RetryAfter: x.m.retryAfter, Err: err,
			Detail: "The first request with this key is still being executed.",
		})
	case errors.Is(err, coord.ErrHeld):
		x.refusal(misconfigured(err))
	default:
		x.unavailable(err)
	}
}

// replay answers a request that was executed before.
func (x *attempt) replay(found once.Record) {
	rec, err := decodePayload(found)
	switch {
	case err != nil:
		x.unavailable(err)
	case rec.state == notKept:
		x.refusal(Problem{
			Type: TypeNotKept, Title: "Answer not kept", Status: http.StatusConflict,
			Detail: "The request was executed, but its answer was too large to be kept.",
		})
	default:
		x.w.Header().Set(ReplayedHeader, "true")
		if f := x.m.opts.Replayed; f != nil {
			f(x.r)
		}
		rec.answer.write(x.w)
	}
}

// Hold makes the context for the handler. It ends when the lock is lost, and only if that is asked
// for with the request.
func (x *attempt) Hold(l coord.Lock) {
	ctx := x.r.Context()
	if !x.m.opts.FollowClient {
		ctx = context.WithoutCancel(ctx)
	}
	x.h = &held{Context: ctx, c: x.m.c, lock: l, holder: x.m}
}

// Release gives the lock back, or leaves that to a handler that runs on.
func (x *attempt) Release() { x.h.end() }

// Run calls the handler, and returns the record of its answer; nil if that is not known.
func (x *attempt) Run(l coord.Lock) []byte {
	x.rw = newRecorder(x.w, x.m.opts.MaxAnswer)
	x.execute(x.rw, x.h)
	if x.h.handed() { // its answer gets nowhere
		x.m.logger.Error("holdfast: a handler runs on after its answer; a repeated request will be refused", "key", l.Key(), "fence", l.Fence(),
			"pattern", x.r.Pattern, "status", x.rw.status)
		return nil
	}
	if (x.rw.silent() || x.rw.cut()) && !x.rw.refused {
		x.m.logger.Error("holdfast: a handler has returned without an answer; a repeated request will be refused", "key", l.Key(),
			"fence", l.Fence(), "pattern", x.r.Pattern)
		return nil
	}
	return x.outcome(x.rw).encode()
}

// execute calls the handler.
func (x *attempt) execute(rw *recorder, h *held) {
	returned := false
	inner := x.r.WithContext(h)
	if !x.m.opts.FollowClient {
		untimed(inner)
	}
	defer func() {
		keepForm(x.came, inner)
		if returned || !rw.refused && x.m.opts.Final(http.StatusInternalServerError) {
			return
		}
		if err := x.m.machine.Put(x.r.Context(), h.lock, x.id, once.Encode(failed, x.print)); err != nil {
			x.m.logger.Error("holdfast: the panic of a handler could not be stored", "key", h.lock.Key(), "fence", h.lock.Fence(), "error", err)
		}
	}()
	x.next.ServeHTTP(rw, inner)
	rw.end()
	returned = true
}

// untimed takes the client's timeout out of a call by gRPC or Connect: the handler, such as a
// grpc.Server, would end its context by it.
func untimed(r *http.Request) {
	for _, name := range []string{"Grpc-Timeout", "Connect-Timeout-Ms"} {
		if _, ok := r.Header[name]; ok {
			r.Header = r.Header.Clone()
			delete(r.Header, name)
		}
	}
}

// outcome returns the record of the handler's answer.
func (x *attempt) outcome(rw *recorder) *record {
	switch {
	case rw.refused || !x.m.opts.Final(rw.meant()):
		return &record{state: failed, print: x.print}
	case !rw.kept:
		return &record{state: notKept, print: x.print, status: rw.status}
	}
	a := rw.answer()
	delete(a.header, "Date") // the replay has its own
	if !x.m.opts.KeepCookies {
		delete(a.header, "Set-Cookie")
	}
	return &record{state: answered, print: x.print, answer: a}
}

func (m *idempotency) unlocked(h *held, err error) {
	if l := h.lock; errors.Is(err, coord.ErrLost) {
		m.logger.Warn("holdfast: the lock of a request was lost while its handler ran", "key", l.Key(), "fence", l.Fence(), "error", err)
	}
}

func (m *idempotency) ranOn(h *held) { warnRanOn(m.logger, h) }

// unavailable answers a request that nothing can be said about now.
func (x *attempt) unavailable(err error) {
	abort(x.w, x.r)
	x.refusal(Problem{
		Type: TypeUnavailable, Title: "Not available now", Status: http.StatusServiceUnavailable, RetryAfter: x.m.retryAfter, Err: err,
	})
}

func (x *attempt) refusal(p Problem) { x.m.refuse(x.w, x.r, p) }
