package middleware

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/singleflight"
)

// CoalesceOptions are the options of [Coalesce]. The zero value of each field means its default, and a nil *CoalesceOptions
// means all defaults.
type CoalesceOptions struct {
	// Headers are further request headers that have to be the same in requests that share an answer: name here what users are
	// told apart by, if that is neither Authorization nor Cookie nor a client certificate (X-Api-Key; X-Forwarded-User, if a
	// proxy sets it). Headers that answers differ by and that name them in Vary may be named here as well: the request is
	// then not made to wait for an answer that turns out to be of no use. Default: none.
	Headers []string

	// AcrossTargets makes requests of different targets (host, path and query) share an answer if the key is the same.
	// Default: the target has to be the same as well.
	AcrossTargets bool

	// MaxBody is how large an answer may be to be shared, in bytes of its body. A larger one is sent to the first request as
	// it is written, and the others run the handler themselves. It is also what an answer may take of memory, once for all
	// that share it. Default 1 MiB. Negative: only answers without a body are shared.
	MaxBody int

	// Lock makes each run of the handler hold the key's lock, so that the processes of the namespace run it one after
	// another: for handlers that fill a cache where the next one finds the answer. [Lock] returns it to the handler. A run
	// waits for its lock as long as a client waits for the run. Default: no lock.
	Lock bool

	// Observe is called for each request that has a key, once it is known how it is answered. Nil: not.
	Observe func(r *http.Request, how Coalesced)

	// Problem answers a request that is not let through. It may be called concurrently. Default [WriteProblem].
	Problem func(w http.ResponseWriter, r *http.Request, p Problem)
}

func (o *CoalesceOptions) filled() CoalesceOptions {
	f := CoalesceOptions{}
	if o != nil {
		f = *o
	}
	f.Headers = slices.Clone(f.Headers)
	setDefault(&f.MaxBody, 1<<20)
	f.MaxBody = max(f.MaxBody, 0)
	if f.Problem == nil {
		f.Problem = WriteProblem
	}
	if f.Observe == nil {
		f.Observe = func(*http.Request, Coalesced) {}
	}
	return f
}

func (o *CoalesceOptions) validate() error {
	var all []error
	for i, name := range o.Headers {
		all = append(all, checkHeader("CoalesceOptions.Headers", name))
		if name == "" {
			all = append(all, errors.New("middleware: CoalesceOptions.Headers has an empty name"))
		}
		o.Headers[i] = http.CanonicalHeaderKey(name)
	}
	return errors.Join(all...)
}

// retryAfter is what clients are told that were not answered in time.
const retryAfter = time.Second

// Coalesced is how [Coalesce] had a request answered.
type Coalesced uint8

const (
	CoalescedFirst  Coalesced = iota + 1 // it ran the handler, for itself and for those that came meanwhile
	CoalescedShared                      // it got the answer of another request's run
	CoalescedAlone                       // it waited for a run whose answer was not to be shared, and ran the handler itself
	CoalescedLeft                        // its client went away, or its time was up, while it waited for a run
)

func (c Coalesced) String() string {
	names := [...]string{"", "first", "shared", "alone", "left"}
	if int(c) < len(names) && c != 0 {
		return names[c]
	}
	return fmt.Sprintf("Coalesced(%d)", uint8(c))
}

// Coalesce makes GET and HEAD requests that ask for the same thing at the same time share one run of the handler, in this
// process; with [Route] around it, in all processes. A request that finds a run in progress gets that run's status, header,
// body and trailers. Nothing is kept after a run: this is not a cache.
//
// # What is the same
//
// The key says what may be shared. Besides it, two requests are the same only if method, target (but see
// CoalesceOptions.AcrossTargets), the use of TLS and the client certificate are, and the headers Authorization,
// Proxy-Authorization, Cookie, Range, If-Range, If-Match, If-None-Match, If-Modified-Since, If-Unmodified-Since and those in
// CoalesceOptions.Headers. Who tells users apart by anything else, such as the address, has to put it into the key.
//
// Requests with a body, with Upgrade, or with no-cache or no-store in Cache-Control or Pragma pass untouched, as do all other
// methods, and those whose key is [ErrSkip]. no-cache is for clients that must see what they have just written: a shared run
// may have begun before its later requests came, and have read older data.
//
// # What is not shared
//
// An answer that sets a cookie; whose Cache-Control has private or no-store (RFC 9111, 4, lets nobody use these for another
// request; no-cache is about later ones, and is shared); whose Vary is "*"; with status 101; larger than
// CoalesceOptions.MaxBody; that is flushed before its end or whose connection is hijacked; and that of a handler that panics.
// As soon as this is known, the requests that waited run the handler themselves, all at once and each for itself, and the
// first one's answer goes on as it is written. Where Vary names request headers, the answer is shared with requests that have
// the same values there; the others run the handler themselves at the end. So Coalesce is of no use, and costs the wait,
// where most answers are not to be shared.
//
// # The run
//
// It has the values of the first request's context and is cancelled when the clients of all that wait have gone, with
// [singleflight.ErrAbandoned] as the cause; of the first one alone as soon as the answer is not to be shared. A limit of the
// first request's context does not end it as long as others wait. Its answer is held back until the handler returns; a slow
// client makes nobody else wait. Trailers, 1xx (for the first request only), [http.ResponseController]'s deadlines
// (likewise), Flush and Hijack (not shared) work. [http.Pusher] and [io.ReaderFrom] are not there.
//
// The handler runs in the first request's goroutine, which also stays until the run's end when its own client has gone. A
// panic, also with [http.ErrAbortHandler], goes on to the server from there. The others, whose requests may not be to blame,
// run the handler themselves.
//
// A request that stops waiting is aborted by a panic with [http.ErrAbortHandler], or, if a limit of its context ended the
// wait, answered with 503. Headers that middlewares around this one have set for a request stay its own, also in a shared
// answer, but for those that the handler changed.
//
// c is used for CoalesceOptions.Lock only, and may be nil without. A nil key means that the target alone says what is the
// same. It panics if the options make no sense.
func Coalesce(c *coord.Coordinator, key KeyFunc, opts *CoalesceOptions) func(http.Handler) http.Handler {
	o := opts.filled()
	if err := o.validate(); err != nil {
		panic(err.Error())
	}
	switch {
	case o.Lock && (c == nil || key == nil):
		panic("middleware: CoalesceOptions.Lock needs a coordinator and a KeyFunc")
	case o.AcrossTargets && key == nil:
		panic("middleware: CoalesceOptions.AcrossTargets needs a KeyFunc")
	}
	return func(next http.Handler) http.Handler { // each handler by itself: two of them may be given the same key
		h := &coalescer{c: c, key: key, opts: o, next: next}
		h.flights.Spawn = func(f func()) {
			h.spawned = true
			go f()
		}
		return h
	}
}

type coalescer struct {
	c    *coord.Coordinator
	key  KeyFunc
	opts CoalesceOptions
	next http.Handler

	flights singleflight.Group[identity, *answer]
	mu      sync.Mutex // around each Join
	spawned bool       // by the Join that goes on; guarded by mu
}

func (h *coalescer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !coalesces(r) {
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
			h.opts.Problem(w, r, keyProblem(err))
			return
		}
	}
	run := newRun(r)
	m, first := h.join(r, h.identify(r, key), run)
	if first {
		h.lead(w, r, key, m, run)
		return
	}
	run.cancel(nil)
	h.follow(w, r, key, m)
}

// join joins the flight of the request's identity, or starts one, for the run. The flight only waits: the handler runs in the
// goroutine of the request that is first, where its panics belong.
func (h *coalescer) join(r *http.Request, id identity, run *run) (m *singleflight.Member[identity, *answer], first bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.spawned = false
	m = h.flights.Join(r.Context(), id, run.await)
	return m, h.spawned
}

// lead runs the handler for all.
func (h *coalescer) lead(w http.ResponseWriter, r *http.Request, key string, m *singleflight.Member[identity, *answer], run *run) {
	defer run.cancel(nil)
	stop := context.AfterFunc(r.Context(), func() {
		m.Leave()
		run.leave(context.Cause(r.Context()))
	})
	defer stop()
	defer run.settle(nil) // if the handler panics
	h.opts.Observe(r, CoalescedFirst)

	rec := newRecorder(w, h.opts.MaxBody)
	rec.accept, rec.dropped = shareable, run.alone
	h.run(rec, r.Clone(run.ctx), key)
	rec.end()
	if rec.kept {
		a := rec.answer()
		a.varies(rec.sent["Vary"], r)
		run.settle(a)
	}
	rec.deliver()
}

// follow waits for another request's run.
func (h *coalescer) follow(w http.ResponseWriter, r *http.Request, key string, m *singleflight.Member[identity, *answer]) {
	select {
	case <-m.Done():
	case <-r.Context().Done():
		m.Leave()
		h.opts.Observe(r, CoalescedLeft)
		h.gone(w, r, context.Cause(r.Context()))
		return
	}
	if a, _ := m.Result(); a != nil && a.suits(r) {
		h.opts.Observe(r, CoalescedShared)
		a.write(w)
		return
	}
	h.opts.Observe(r, CoalescedAlone)
	h.run(w, r, key)
}

// run calls the handler, with the lock if that is asked for.
func (h *coalescer) run(w http.ResponseWriter, r *http.Request, key string) {
	if !h.opts.Lock || heldBy(r.Context(), h.c, key) != nil {
		h.next.ServeHTTP(w, r)
		return
	}
	called := false
	err := h.c.Do(r.Context(), key, func(ctx context.Context, l coord.Lock) error {
		called = true
		h.next.ServeHTTP(w, r.WithContext(&held{Context: ctx, c: h.c, lock: l}))
		return nil
	})
	if !called {
		h.gone(w, r, err)
	}
}

// gone answers a request that has waited in vain.
func (h *coalescer) gone(w http.ResponseWriter, r *http.Request, err error) {
	if errors.Is(r.Context().Err(), context.Canceled) {
		panic(http.ErrAbortHandler)
	}
	h.opts.Problem(w, r, Problem{
		Type: TypeUnavailable, Title: "Not answered in time", Status: http.StatusServiceUnavailable, RetryAfter: retryAfter, Err: err,
	})
}
