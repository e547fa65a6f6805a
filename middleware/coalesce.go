package middleware

import (
	"context"
	"errors"
	"net/http"
	"sync"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/singleflight"
)

// Coalesce makes GET and HEAD requests that ask for the same at the same time share one run of the
// handler, in this process; with [Route] around it, in all processes (but requests that the owner
// got by TLS, and forwarded ones, apart). A request that finds a run in progress gets its status,
// header, body and trailers. Nothing is kept after a run: this is not a cache.
//
// # Equal requests
//
// Requests with the same key (a nil KeyFunc: all), method, scheme, host, path, query, pattern,
// server and client certificate, and the same headers. Left out are headers that identify a single
// request or its way, and no client: trace and request IDs, the addresses that proxies add
// (X-Forwarded-For, X-Real-Ip, Via), Priority, and those in CoalesceOptions.Ignore. docs/http.md
// has the list. So a handler with an answer that depends on the client's address needs the address
// in its key.
//
// Coalesce tells users apart by the request as it gets here. A middleware further out may take the
// credential off it, and keep the user in the context. Then put the user into the key, or all users
// get one user's answer.
//
// All handlers in one Coalesce share its runs. With CoalesceOptions.AcrossTargets, handlers that
// answer differently need different keys, or a Coalesce each.
//
// All methods but GET and HEAD pass untouched, and requests with the key [ErrSkip]. So do requests
// with a body, with Upgrade (but for h2c, which net/http never accepts), or with no-cache or
// no-store in Cache-Control or Pragma. Clients that must see their own last writes say no-cache: a
// run may have begun before some of its requests came.
//
// # Answers that are not shared
//
// An answer with Set-Cookie, with private or no-store in Cache-Control, with "*" in Vary, with
// status 101, or larger than CoalesceOptions.MaxAnswer; one that is flushed before its end; a
// hijacked connection; the end of a handler that panics, and of one that has written nothing. As
// soon as this is known, each request that waited runs the handler itself, and the first one's
// answer goes on as it is written. Where Vary names headers, requests with other values there run
// the handler themselves, after the wait. So do not put Coalesce around handlers that seldom have
// an answer to be shared.
//
// # The run
//
// Its context has the values of the first request's. It is cancelled when all clients that wait for
// it have gone, with [singleflight.ErrAbandoned] as the cause. Once the answer is not to be shared,
// it is cancelled when the first client has gone. The answer is held back until the handler
// returns; no slow client makes another one wait. 1xx responses and the deadlines of
// [http.ResponseController] are for the first request; [http.Pusher] and [io.ReaderFrom] are not
// there. The handler runs in the first request's goroutine; a panic goes on to the server of that.
//
// A request that stops waiting is aborted by a panic with [http.ErrAbortHandler]. It is answered
// with 503 instead if a limit of its own context ended the wait. One without a usable key is
// answered with 400. Headers that were set around Coalesce stay each request's own, but for those
// that the handler changed.
//
// c is for CoalesceOptions.Lock, and may be nil without. It panics if the options make no sense.
func Coalesce(c *coord.Coordinator, key KeyFunc, opts *CoalesceOptions) func(http.Handler) http.Handler {
	o := opts.filled()
	if err := o.validate(); err != nil {
		panic(err.Error())
	}
	if o.AcrossTargets && key == nil {
		panic("middleware: CoalesceOptions.AcrossTargets needs a KeyFunc")
	}
	if o.Lock && (c == nil || key == nil) {
		panic("middleware: CoalesceOptions.Lock needs a coordinator and a KeyFunc")
	}
	// The flights are not those of one wrapped handler: adapters for other routers wrap a new
	// handler for each request.
	h := &coalescer{key: key, opts: o, refusals: newRefusals(o.Problem, o.Logger, o.RetryAfter)}
	h.flights.Spawn = func(f func()) {
		h.spawned = true
		go f()
	}
	locked := func(next http.Handler) http.Handler { return next }
	if o.Lock {
		locked = Serialize(c, key, &SerializeOptions{
			Methods: []string{http.MethodGet, http.MethodHead}, RetryAfter: o.RetryAfter, Problem: o.Problem, Logger: o.Logger,
		})
	}
	return func(next http.Handler) http.Handler {
		return &coalesced{coalescer: h, next: next, shared: locked(next)}
	}
}

// A coalescer is the state that the handlers in one Coalesce share.
type coalescer struct {
	key  KeyFunc
	opts CoalesceOptions
	refusals

	flights singleflight.Group[identity, *answer]
	mu      sync.Mutex // around each Join
	spawned bool       // by the Join that goes on; guarded by mu
	silent  sync.Once  // a handler that answers nothing is logged once
}

// coalesced is a handler in Coalesce.
type coalesced struct {
	*coalescer
	next   http.Handler // for requests that pass untouched
	shared http.Handler // for the others: with the lock, if there is to be one
}

// running is the key of a context's value that says that the coalescer's run is under way. A
// request that meets the coalescer again, further in, passes.
type running struct{ *coalescer }

func (h *coalesced) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !coalesces(r) || r.Context().Value(running{h.coalescer}) != nil {
		h.next.ServeHTTP(w, r)
		return
	}
	key := ""
	if h.key != nil {
		var err error
		key, err = h.key.of(r)
		if errors.Is(err, ErrSkip) {
			h.next.ServeHTTP(w, r)
			return
		}
		if err != nil {
			h.refuse(w, r, keyProblem(err))
			return
		}
	}
	run := newRun(r, running{h.coalescer})
	m, first := h.join(r, h.identify(r, key), run)
	if first {
		h.lead(w, r, m, run)
		return
	}
	run.cancel(nil)
	h.follow(w, r, m)
}

// join joins the flight of the request's identity, or starts one, for the run. The flight only
// waits: the handler runs in the goroutine of the request that is first, where its panics belong.
func (h *coalescer) join(r *http.Request, id identity, run *run) (m *singleflight.Member[identity, *answer], first bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.spawned = false
	m = h.flights.Join(r.Context(), id, run.await)
	return m, h.spawned
}

// lead runs the handler for all.
func (h *coalesced) lead(w http.ResponseWriter, r *http.Request, m *singleflight.Member[identity, *answer], run *run) {
	defer run.cancel(nil)
	stop := context.AfterFunc(r.Context(), func() {
		m.Leave()
		run.leave(context.Cause(r.Context()))
	})
	defer stop()
	defer run.settle(nil) // if the handler panics
	h.opts.Observe(r, CoalescedFirst)

	rec := newRecorder(w, h.opts.MaxAnswer)
	rec.accept, rec.dropped = shareable, run.alone
	h.shared.ServeHTTP(rec, r.Clone(run.ctx))
	rec.end()
	if rec.silent() {
		h.coalescer.silent.Do(func() {
			h.logger.Warn("holdfast: a handler has returned without an answer; such requests do not share a run", "pattern", r.Pattern)
		})
	}
	if rec.kept {
		a := rec.answer()
		a.varies(rec.sent["Vary"], r)
		run.settle(a)
	}
	rec.deliver()
}

// follow waits for another request's run.
func (h *coalesced) follow(w http.ResponseWriter, r *http.Request, m *singleflight.Member[identity, *answer]) {
	select {
	case <-m.Done():
	case <-r.Context().Done():
		m.Leave()
		h.opts.Observe(r, CoalescedLeft)
		abort(w, r)
		h.refuse(w, r, Problem{
			Type: TypeUnavailable, Title: "Not answered in time", Status: http.StatusServiceUnavailable, RetryAfter: h.retryAfter,
			Err: context.Cause(r.Context()),
		})
		return
	}
	if a, _ := m.Result(); a != nil && a.suits(r) {
		h.opts.Observe(r, CoalescedShared)
		a.write(w)
		return
	}
	h.opts.Observe(r, CoalescedAlone)
	h.shared.ServeHTTP(w, r)
}
