package middleware

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/internal/once"
	"github.com/holdfast-go/holdfast/internal/unit"
)

// SerializeOptions are the options of [Serialize]. The zero value of each field means its default,
// and a nil *SerializeOptions means all defaults.
type SerializeOptions struct {
	// Methods are those that are serialized. Default: all but GET, HEAD, OPTIONS and TRACE.
	// Requests of other methods pass without a lock, and may run while another request has it.
	Methods []string

	// Shared are methods whose requests run beside each other, but not beside one that is
	// serialized: they lock the key for reading, see [coord.Coordinator.RLock]. [ReadLock] returns
	// that lock, and [Lock] none. Such a request's body is not read ahead or limited, and the lock
	// ends when the handler returns, also in [KeepLocked]. MaxWaiters is about those that wait, of
	// both kinds together. Default: none. As a rule: GET and HEAD. A method must not be in Methods,
	// or its default, as well. Not for [SerializeAll].
	Shared []string

	// Wait is the longest wait of a request for its turn. Default 10 s; at least 1 ms. Negative:
	// not at all. It then takes the lock only if it is free at once; a key that another process has
	// just used may be reported as locked for some milliseconds (see [coord.Coordinator.TryLock]).
	Wait time.Duration

	// MaxWaiters is the most requests for one key that may wait in this process, besides the one
	// that runs. Default 128. Negative: no limit. Handlers that run on after they have unlocked are
	// not counted. It is counted where a request waits: with [Route] around, that is the key's
	// owner, and so the limit for all processes; without, each process lets so many wait.
	MaxWaiters int

	// ReadAhead is the part of a request's body that is read before the request waits, in bytes; it
	// is held in memory then. So a client that sends slowly keeps no lock. Default 64 KiB.
	// Negative: bodies are left to the handler, for handlers that talk both ways (streams of gRPC,
	// EnableFullDuplex): with the default such a handler runs after 2 s. In two cases it runs only
	// when ReadAhead bytes, or the whole body, are there: if the body is in an
	// [http.MaxBytesReader] on HTTP/1; or if the ResponseWriter cannot set a read deadline, as
	// inside of an [http.TimeoutHandler]. Requests with Upgrade are left to the handler as well,
	// which may take over the connection; one that takes it over without Upgrade, before the body
	// has ended, needs a negative ReadAhead.
	ReadAhead int64

	// BodyTimeout limits a handler's wait, with the lock, for the rest of a body that was not
	// wholly read ahead. Then reading fails with an error that Is [os.ErrDeadlineExceeded]. It
	// needs a ResponseWriter that can set a read deadline, and yields to a shorter ReadTimeout of
	// the server. Default 10 s; at least 1 ms; none if ReadAhead is negative. Negative: no limit.
	BodyTimeout time.Duration

	// LockedStatus is the status of a request that does not get its turn in time. Default 423
	// (Locked). The other possible value is 409 (Conflict).
	LockedStatus int

	// RetryAfter is the Retry-After of answers to clients that were sent away, in whole seconds,
	// rounded up. Default 1 s. Negative: nothing.
	RetryAfter time.Duration

	// FenceHeader is the name of a response header for the lock's token in decimal. The client can
	// hand the token on to a resource that checks tokens. The header is set before the handler
	// runs. Default: none is sent. The handler itself has the token from [Lock].
	FenceHeader string

	// Problem answers a request that is not let through. It may be called concurrently. Default
	// [WriteProblem].
	Problem func(w http.ResponseWriter, r *http.Request, p Problem)

	// Logger gets a record for each request that has waited for its turn in vain, for each lock that
	// was lost while its handler ran, and for each handler that ran on after its answer. It also
	// gets one for each body that took too long, and for each error of the program. Nil: silent.
	Logger *slog.Logger
}

// Options are those of [Serialize], by a shorter name.
type Options = SerializeOptions

// filled returns a copy with the defaults filled in.
func (o *SerializeOptions) filled() SerializeOptions {
	f := SerializeOptions{}
	if o != nil {
		f = *o
	}
	f.Methods, f.Shared = slices.Clone(f.Methods), slices.Clone(f.Shared)
	setDefault(&f.Wait, 10*time.Second)
	setDefault(&f.MaxWaiters, 128)
	setDefault(&f.ReadAhead, 64<<10)
	if f.ReadAhead > 0 {
		setDefault(&f.BodyTimeout, 10*time.Second)
	}
	setDefault(&f.LockedStatus, http.StatusLocked)
	setDefault(&f.RetryAfter, time.Second)
	return f
}

func (o *SerializeOptions) validate() error {
	if o.LockedStatus != http.StatusLocked && o.LockedStatus != http.StatusConflict {
		return fmt.Errorf("middleware: SerializeOptions.LockedStatus is %d, must be 423 or 409", o.LockedStatus)
	}
	for _, m := range o.Shared {
		if o.applies(m) {
			return fmt.Errorf("middleware: SerializeOptions.Shared and Methods, perhaps by default, both have %s", m)
		}
	}
	return errors.Join(checkMethods("SerializeOptions.Methods", o.Methods), checkMethods("SerializeOptions.Shared", o.Shared),
		checkHeader("SerializeOptions.FenceHeader", o.FenceHeader),
		unit.Check("middleware: SerializeOptions.Wait", o.Wait, time.Millisecond, "10 * time.Second"),
		unit.Check("middleware: SerializeOptions.BodyTimeout", o.BodyTimeout, time.Millisecond, "10 * time.Second"))
}

// applies reports whether requests of the method are serialized. Safe methods change nothing, so
// they need no lock.
func (o *SerializeOptions) applies(method string) bool {
	if len(o.Methods) > 0 {
		return slices.Contains(o.Methods, method)
	}
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace, "": // "" is GET
		return false
	}
	return true
}

// serializer is the state that the requests of one Serialize share.
type serializer struct {
	c     *coord.Coordinator
	key   KeyFunc
	opts  SerializeOptions
	queue once.Counter
	refusals
}

// Serialize makes requests with the same key run one after another, in all processes of the
// coordinator's namespace: a handler runs with the key locked. A process serves its own requests in
// order of arrival.
//
// The handler's context has the values of the request's and ends with it. It also ends when the
// lock is lost, with a cause that Is [coord.ErrLost]; the handler has to heed it. [Lock] returns
// the lock, for its token. The lock is held until the handler has returned or panicked, also after
// Hijack and however long that takes, unless the handler unlocks it; a panic goes on to the server.
// The handler gets the server's own ResponseWriter: Flush, Hijack, HTTP/2 and
// [http.ResponseController] work as without.
//
// Not let through, and told so by SerializeOptions.Problem: requests without a usable key (400);
// without a turn within SerializeOptions.Wait (423, or 409); that find too many others waiting
// (429); that wait while a lock further out is lost (503); and all while locks are not to be had
// (503). The request of a client that has gone is taken out of the queue. It is aborted by a panic
// with [http.ErrAbortHandler], as net/http has it, so that an empty response is not taken for a
// success. (An HTTP/1 server sees that a client has gone only when the body, if there is one, has
// been read. So it is read before; a request with a body larger than SerializeOptions.ReadAhead
// waits on, and is served.) A limit of the request's own context that ends the wait counts as
// SerializeOptions.Wait does.
//
// The lock is held until the handler has really ended, also if it is in an [http.TimeoutHandler]
// that has answered before that. Serialize can know this only for a TimeoutHandler that it is
// given, and for handlers in [KeepLocked]. Better put the TimeoutHandler outside: see docs/http.md.
//
// Where a handler is inside two Serialize of the same coordinator and key, the inner one goes by
// the lock of the outer one. With different keys each takes its lock. All handlers must nest them
// in the same order, or two requests may wait for each other until their limit. For a request about
// several keys use [SerializeAll]. Put [Route] outside, and authentication and limits of the body's
// size or time outside of both. A client that slowly sends a part of its body that is not read
// ahead keeps the lock, for SerializeOptions.BodyTimeout at most.
//
// It panics if c or key is nil or the options make no sense.
func Serialize(c *coord.Coordinator, key KeyFunc, opts *SerializeOptions) func(http.Handler) http.Handler {
	if c == nil || key == nil {
		panic("middleware: Serialize needs a coordinator and a KeyFunc")
	}
	s := newSerializer(c, opts)
	s.key = key
	return func(next http.Handler) http.Handler {
		next = keepLocked("Serialize", next)
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { s.serve(next, w, r) })
	}
}

func newSerializer(c *coord.Coordinator, opts *SerializeOptions) *serializer {
	s := &serializer{c: c, opts: opts.filled()}
	if err := s.opts.validate(); err != nil {
		panic(err.Error())
	}
	s.refusals = newRefusals(s.opts.Problem, s.opts.Logger, s.opts.RetryAfter)
	return s
}

func (s *serializer) serve(next http.Handler, w http.ResponseWriter, r *http.Request) {
	if len(s.opts.Shared) > 0 && s.opts.shares(r.Method) {
		s.serveShared(next, w, r)
		return
	}
	if !s.opts.applies(r.Method) {
		next.ServeHTTP(w, r)
		return
	}
	key, err := s.key.of(r)
	if errors.Is(err, ErrSkip) {
		next.ServeHTTP(w, r)
		return
	}
	if err != nil {
		s.refuse(w, r, keyProblem(err))
		return
	}
	if outer := heldBy(r.Context(), s.c, key); outer != nil {
		s.announce(w, outer.lock.Fence())
		next.ServeHTTP(w, r)
		return
	}
	came := r
	r = readAhead(w, r, s.opts.ReadAhead)
	if a, ok := r.Body.(*ahead); ok && a.ended != nil {
		defer a.hangUp(w)
	}
	if !s.queue.Enter(key, s.opts.MaxWaiters) {
		s.crowded(w, r)
		return
	}
	h := &held{Context: r.Context(), c: s.c, holder: s}
	if err := s.lock(h, key); err != nil {
		s.queue.Leave(key)
		s.failed(w, r, err, h.limit.since)
		return
	}
	s.queue.Begin(key)
	s.run(next, w, r, came, h)
}

// lock waits for the request's turn.
func (s *serializer) lock(h *held, key string) (err error) {
	if s.opts.Wait < 0 {
		h.lock, err = s.c.TryLock(h.Context, key)
		return err
	}
	h.limit = limit{Context: h.Context, wait: s.opts.Wait}
	defer h.limit.stop()
	h.lock, err = s.c.Lock(&h.limit, key)
	return err
}

// run calls the handler with its locks held, the innermost first. came is the request as the server
// knows it.
func (s *serializer) run(next http.Handler, w http.ResponseWriter, r, came *http.Request, locks ...*held) {
	inner := r.WithContext(locks[0])
	defer func() {
		keepForm(came, inner)
		for _, h := range locks {
			if h.end() {
				s.logger.Warn("holdfast: a handler runs on after its answer; its lock is held until it ends", "key", h.lock.Key(), "pattern", r.Pattern)
			}
		}
	}()
	s.limitBody(w, inner, locks[0])
	s.announce(w, locks[0].lock.Fence())
	next.ServeHTTP(w, inner)
}

func (s *serializer) unlocked(h *held, err error) {
	l := h.lock
	s.queue.End(l.Key())
	if errors.Is(err, coord.ErrLost) {
		s.logger.Warn("holdfast: the lock of a request was lost while its handler ran", "key", l.Key(), "fence", l.Fence(), "error", err)
	}
}

func (s *serializer) ranOn(h *held) { warnRanOn(s.logger, h) }

// warnRanOn logs that a handler has asked for a lock that was given back.
func warnRanOn(logger *slog.Logger, h *held) {
	logger.Error("holdfast: a handler runs on without the lock that it asks for: what it was called by has returned before it; put timeouts "+
		"outside of the middleware, or the handler into KeepLocked", "key", h.lock.Key(), "fence", h.lock.Fence())
}

// limitBody lets the rest of the body take BodyTimeout at most.
func (s *serializer) limitBody(w http.ResponseWriter, r *http.Request, h *held) {
	limit := s.opts.BodyTimeout
	if limit <= 0 || r.Body == nil || r.Body == http.NoBody {
		return
	}
	a, ok := r.Body.(*ahead)
	if !ok { // nothing was read ahead
		a = &ahead{body: r.Body}
		r.Body = a
	}
	if a.complete() {
		return
	}
	if server, ok := r.Context().Value(http.ServerContextKey).(*http.Server); ok && server.ReadTimeout > 0 && server.ReadTimeout <= limit {
		return
	}
	rc := http.NewResponseController(w)
	if err := rc.SetReadDeadline(time.Now().Add(limit)); err != nil {
		s.logger.Warn("holdfast: a body that is not complete keeps a lock, and cannot be limited", "key", h.lock.Key(), "pattern", r.Pattern, "error", err)
		return
	}
	a.atEnd(func(err error) {
		if errors.Is(err, os.ErrDeadlineExceeded) {
			s.logger.Warn("holdfast: a body was cut off that did not come within SerializeOptions.BodyTimeout", "key", h.lock.Key(), "pattern", r.Pattern)
			return
		}
		_ = rc.SetReadDeadline(time.Time{}) // or the server would take the client for gone while the handler runs
	})
}

// keepForm gives a form that was parsed to the request that the server knows: it removes the files
// of no other.
func keepForm(r, inner *http.Request) {
	if r.MultipartForm == nil {
		r.MultipartForm = inner.MultipartForm
	}
}

func (s *serializer) announce(w http.ResponseWriter, token coord.Fence) {
	if s.opts.FenceHeader != "" {
		w.Header().Set(s.opts.FenceHeader, token.String())
	}
}

// crowded answers a request that finds too many others waiting.
func (s *serializer) crowded(w http.ResponseWriter, r *http.Request) {
	s.refuse(w, r, Problem{
		Type: TypeTooMany, Title: "Too many requests for the same resource", Status: http.StatusTooManyRequests, RetryAfter: s.retryAfter,
	})
}

// failed answers a request that did not get its lock, and has waited since then; zero: not at all.
func (s *serializer) failed(w http.ResponseWriter, r *http.Request, err error, since time.Time) {
	abort(w, r)
	p := Problem{RetryAfter: s.retryAfter, Err: err}
	if errors.Is(err, coord.ErrHeld) {
		s.refuse(w, r, misconfigured(err))
		return
	}
	if errors.Is(err, coord.ErrLocked) && !errors.Is(err, context.Canceled) {
		p.Type, p.Title, p.Status = TypeLocked, "Another request for the same resource is being served", s.opts.LockedStatus
		s.tooLate(r, err, since)
	} else { // ErrUnavailable, ErrClosed; a lock further out was lost; or the request's time was up at once
		p.Type, p.Title, p.Status = TypeUnavailable, "Locks are not available now", http.StatusServiceUnavailable
	}
	s.refuse(w, r, p)
}

// tooLate logs that a request has waited for a lock in vain. Package coord logs long waits, but such
// a request has mostly gone by then (coord.Options.LongWait).
func (s *serializer) tooLate(r *http.Request, err error, since time.Time) {
	if s.opts.Wait < 0 || since.IsZero() {
		return
	}
	key := ""
	if e, ok := errors.AsType[*coord.WaitError](err); ok {
		key = e.Key
	}
	s.logger.Warn("holdfast: a request did not get its turn in time", "key", key, "waited", time.Since(since).Round(time.Millisecond), "pattern", r.Pattern)
}
