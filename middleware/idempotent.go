package middleware

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/internal/once"
)

// ReplayedHeader is in each answer that [Idempotent] replays, with the value "true".
const ReplayedHeader = "Idempotent-Replayed"

// The types of problems that [Idempotent] answers with, besides [TypeUnavailable].
const (
	TypeIdempotencyKey = typeBase + "TypeIdempotencyKey" // 400: the Idempotency-Key header is missing or malformed
	TypeInProgress     = typeBase + "TypeInProgress"     // 409: the first request with this key is still being executed
	TypeReused         = typeBase + "TypeReused"         // 422: the key belongs to another request
	TypeOutcome        = typeBase + "TypeOutcome"        // 409: the request was begun before, and its end is unknown
	TypeNotKept        = typeBase + "TypeNotKept"        // 409: the request was executed, but its answer was too large to keep
)

// Idempotent executes a request with an Idempotency-Key once, however often it is sent, over all
// processes that share the coordinator's namespace and the store
// (draft-ietf-httpapi-idempotency-key-header). The first one runs the handler, with a lock of the
// key; those that come meanwhile wait. They, and all later ones, get its status, header, body and
// trailers, with [ReplayedHeader].
//
// scope names the client that the key is of. The same key in two scopes is two keys. Within a scope
// it is one, whichever replica (Host), connection, cookie or bearer token a repeated request comes
// with. So the scope is the ID of the user or tenant that authentication has found out, and not a
// credential: a request with a renewed one would be executed again. A scope that clients choose
// lets one read the answers of another. Where the service has virtual hosts, their name is a part
// of the scope. [Unscoped] is for services with one client. Requests with the scope [ErrSkip] pass
// untouched; those without a usable one are answered with 400.
//
// A repeated request has to be the same: method, path, query, Content-Type, Content-Encoding and
// body. A digest of all that is kept. Otherwise it is refused with 422 [TypeReused]. Also refused,
// with nothing executed: a malformed key (400 [TypeIdempotencyKey]); too large a body (413
// [TypeTooLarge]); the first request still running after IdempotentOptions.Wait, or more than
// MaxWaiters waiting for it (409 [TypeInProgress]); and all while locks or the store are not to be
// had (503 [TypeUnavailable]).
//
// # When something goes wrong
//
// That the handler is about to run is stored before it does; if that fails, it does not run. Its
// answer is stored before the client gets any of it, but for flushed parts. If the process dies in
// between, if the answer cannot be stored, or if the handler returns without an answer (no status
// and no body: adapters for other routers may have written it elsewhere), the outcome is unknown: a
// repeated request is told so (409 [TypeOutcome]), and the application, or a human, has to find
// out. See IdempotentOptions.Rerun.
//
// If the lock is lost while the handler runs, its context ends, with a cause that Is
// [coord.ErrLost]. Its answer counts all the same, unless a holder of a higher token has executed
// the request since: then the client is told to ask again, for that one's answer (409
// [TypeOutcome]). Of an answer that is too large to be kept repeated requests learn that they were
// executed (409 [TypeNotKept]).
//
// # The handler
//
// Its context has the values of the request's, but does not end with it (see
// IdempotentOptions.FollowClient); [Lock] returns the lock. The body is in memory; it must not have
// been read before, not even in part (500 [TypeMisconfigured]). Idempotent cannot see that of a
// body of unknown length, as a chunked one: it compares the rest. The answer is held back until the
// handler returns or flushes; that the client has gone is no error then either, as the rest is for
// repeated requests. Hijack, [http.Pusher] and [io.ReaderFrom] are not there; 1xx responses and the
// deadlines of [http.ResponseController] are for the first client. A panic goes on to the server.
//
// Of an answer by gRPC (as of grpc.Server.ServeHTTP) or gRPC-Web the code counts, see
// IdempotentOptions.Final; one by gRPC without a code is no answer. The codes of Connect's streams
// are not read, nor those of gRPC-Web that compresses its trailers or is too large to keep.
// Connect's aborted, which is 409, is final. The interceptor of middleware/grpc compares messages,
// which a client may encode in another way when it repeats them, where this compares bytes.
//
// A replay has the headers that the handler set, but for Date, Set-Cookie (see
// IdempotentOptions.KeepCookies) and those of the connection; those that were set around Idempotent
// are set there again. A request with the key and the scope of another, and otherwise the same,
// gets its answer: put authentication outside.
//
// With a [RedisStore] it asks the server for its limit of memory, for a second at most, to warn in
// the log. It panics if c, store or scope is nil or the options make no sense.
func Idempotent(c *coord.Coordinator, store Store, scope KeyFunc, opts *IdempotentOptions) func(http.Handler) http.Handler {
	if c == nil || store == nil {
		panic("middleware: Idempotent needs a coordinator and a Store")
	}
	if scope == nil {
		panic("middleware: Idempotent needs a scope, such as the user's ID: see Unscoped for a service with one client")
	}
	m := &idempotency{c: c, scope: scope, opts: opts.filled()}
	if err := m.opts.validate(); err != nil {
		panic(err.Error())
	}
	m.refusals = newRefusals(m.opts.Problem, m.opts.Logger, m.opts.RetryAfter)
	m.machine = once.Machine{
		Locks: c, Store: store, Wait: m.opts.Wait, MaxWaiters: m.opts.MaxWaiters, TTL: m.opts.TTL, StoreTimeout: m.opts.StoreTimeout,
		Rerun: m.opts.Rerun,
	}
	if s, ok := store.(*RedisStore); ok && m.opts.Logger != nil {
		s.CheckMemory(c.Namespace(), m.logger)
	}
	return func(next http.Handler) http.Handler {
		next = keepLocked("Idempotent", next)
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { m.serve(next, w, r) })
	}
}

// Unscoped is the scope for [Idempotent] where all clients are one: they may see the answers to
// each other's requests. Those that choose the same key for different requests are refused with
// 422.
func Unscoped(*http.Request) (string, error) { return "unscoped", nil }

type idempotency struct {
	c     *coord.Coordinator
	scope KeyFunc
	opts  IdempotentOptions
	refusals
	machine once.Machine
}

func (m *idempotency) serve(next http.Handler, w http.ResponseWriter, r *http.Request) {
	if !slices.Contains(m.opts.Methods, r.Method) {
		next.ServeHTTP(w, r)
		return
	}
	values := r.Header[m.opts.Header]
	if len(values) == 0 {
		if !m.opts.Required {
			next.ServeHTTP(w, r)
			return
		}
		m.refuse(w, r, malformed(&KeyError{fmt.Sprintf("header %q", m.opts.Header), "is missing"}))
		return
	}
	key, err := parseIdempotencyKey(m.opts.Header, values)
	if err != nil {
		m.refuse(w, r, malformed(err))
		return
	}
	id, err := m.identify(r, key)
	if errors.Is(err, ErrSkip) {
		next.ServeHTTP(w, r)
		return
	}
	if err != nil {
		m.refuse(w, r, keyProblem(err))
		return
	}
	whole, body, err := m.readBody(r)
	if err != nil {
		m.unread(w, r, err)
		return
	}
	x := &attempt{m: m, next: next, w: w, came: r, r: whole, id: base64.RawURLEncoding.EncodeToString(id[:]), print: m.print(r, body)}
	x.answer()
}

func malformed(err error) Problem {
	return Problem{Type: TypeIdempotencyKey, Title: "No usable idempotency key", Status: http.StatusBadRequest, Detail: err.Error(), Err: err}
}

// unread answers a request with a body that could not be read.
func (m *idempotency) unread(w http.ResponseWriter, r *http.Request, err error) {
	if errors.Is(err, errBodyRead) {
		m.refuse(w, r, misconfigured(err))
		return
	}
	if errors.Is(err, errTooLarge) {
		p := tooLarge(err)
		p.Detail = fmt.Sprintf("A request with the header %q may have a body of %d bytes.", m.opts.Header, m.opts.MaxRequest)
		m.refuse(w, r, p)
		return
	}
	abort(w, r)
	m.refuse(w, r, unreadable(err))
}
