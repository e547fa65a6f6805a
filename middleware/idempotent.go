package middleware

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/coord"
)

// ReplayedHeader is in each answer that [Idempotent] replays, with the value "true".
const ReplayedHeader = "Idempotent-Replayed"

// The types of problems that [Idempotent] answers with, besides [TypeUnavailable].
const (
	TypeIdempotencyKey = typeBase + "TypeIdempotencyKey" // 400: the Idempotency-Key header is missing or malformed
	TypeInProgress     = typeBase + "TypeInProgress"     // 409: the first request with this key is still being executed
	TypeReused         = typeBase + "TypeReused"         // 422: the key belongs to another request
	TypeOutcome        = typeBase + "TypeOutcome"        // 409: the request was begun before, and nobody knows how that ended
	TypeNotKept        = typeBase + "TypeNotKept"        // 409: the request was executed, but its answer was too large to keep
	TypeTooLarge       = typeBase + "TypeTooLarge"       // 413: the request's body is too large to be compared
)

// IdempotentOptions are the options of [Idempotent]. The zero value of each field means its default, and a nil
// *IdempotentOptions means all defaults.
type IdempotentOptions struct {
	// Methods are those whose requests may have a key. Requests of other methods pass untouched. Default POST and PATCH.
	Methods []string

	// Header is the name of the request header with the key. Default "Idempotency-Key".
	Header string

	// Required refuses requests without a key, with 400. By default they pass untouched.
	Required bool

	// Scope names the client whose key it is: the same key in two scopes is two keys. Name what your authentication has found
	// out, such as the user's or the tenant's ID. For requests whose scope is [ErrSkip] there is no idempotency. Default:
	// method, path, the client certificate and the value of Authorization. Then a client that changes its token between two
	// attempts counts as another one, and its request is executed again: where tokens are short-lived, set Scope. Without it,
	// the cookies and the host are part of what has to be the same in a repeated request: with others it is refused with 422.
	Scope KeyFunc

	// Wait is for how long a request waits for the first one with its key to be over. Default 10 s. Negative: not at all.
	Wait time.Duration

	// TTL is for how long a request's record is kept, from its last change. Default 24 h. After that the key is new.
	TTL time.Duration

	// MaxRequest is how large the body of a request with a key may be, in bytes; it is held in memory, also while the request
	// waits. Default 1 MiB. Negative: no body.
	MaxRequest int64

	// MaxAnswer is how large the body of an answer may be to be kept, in bytes. A larger one is sent to the first client, and
	// not to be had again. Default 1 MiB. Negative: only answers without a body are kept.
	MaxAnswer int

	// Store tells whether an answer of that status is the request's final one, to be replayed. Of any other the key is free
	// again for the same request: the handler must not have done anything that may not be done twice. A panic counts as
	// status 500; if that is final, the outcome is unknown. Default: all but 5xx, 408, 425 and 429.
	Store func(status int) bool

	// Rerun executes a request again of which nobody knows how it ended, because the process died or the answer could not be
	// stored. By default it is refused with 409 [TypeOutcome] until TTL is over. Set it where the handler itself sees to it
	// that nothing happens twice, by a unique key in a database, say, or by the token of [Lock].
	Rerun bool

	// FollowClient ends the handler's context with the request's, as net/http does when the client goes away. By default the
	// handler goes on to its end, so that the client finds the answer when it asks again.
	FollowClient bool

	// KeepCookies stores and replays Set-Cookie. By default it is only in the first answer: it may be a credential, which
	// neither the store nor everybody who knows the key should have.
	KeepCookies bool

	// StoreTimeout is for how long one call of the store may take. Default 5 s.
	StoreTimeout time.Duration

	// RetryAfter is what clients are told that may try again, in whole seconds, rounded up. Default 1 s. Negative: nothing.
	RetryAfter time.Duration

	// Problem answers a request that is not let through. It may be called concurrently. Default [WriteProblem].
	Problem func(w http.ResponseWriter, r *http.Request, p Problem)

	// Logger gets a record for each answer that could not be stored, and for each lock that was lost while its handler ran.
	// Nil: silent.
	Logger *slog.Logger
}

func (o *IdempotentOptions) filled() IdempotentOptions {
	f := IdempotentOptions{}
	if o != nil {
		f = *o
	}
	if len(f.Methods) == 0 {
		f.Methods = []string{http.MethodPost, http.MethodPatch}
	}
	f.Methods = slices.Clone(f.Methods)
	setDefault(&f.Header, "Idempotency-Key")
	f.Header = http.CanonicalHeaderKey(f.Header)
	setDefault(&f.Wait, 10*time.Second)
	setDefault(&f.TTL, 24*time.Hour)
	setDefault(&f.MaxRequest, 1<<20)
	setDefault(&f.MaxAnswer, 1<<20)
	f.MaxRequest = min(max(f.MaxRequest, 0), math.MaxInt64-1) // one byte more is read, to see that it is too much
	f.MaxAnswer = max(f.MaxAnswer, 0)
	setDefault(&f.StoreTimeout, 5*time.Second)
	setDefault(&f.RetryAfter, time.Second)
	f.RetryAfter = max(f.RetryAfter, 0)
	if f.Store == nil {
		f.Store = final
	}
	if f.Problem == nil {
		f.Problem = WriteProblem
	}
	if f.Logger == nil {
		f.Logger = slog.New(slog.DiscardHandler)
	}
	return f
}

func (o *IdempotentOptions) validate() error {
	var all []error
	for _, d := range []struct {
		name  string
		value time.Duration
	}{{"TTL", o.TTL}, {"StoreTimeout", o.StoreTimeout}} {
		if d.value < 0 {
			all = append(all, fmt.Errorf("middleware: IdempotentOptions.%s is %v, must not be negative", d.name, d.value))
		}
	}
	return errors.Join(append(all, checkMethods("IdempotentOptions.Methods", o.Methods),
		checkHeader("IdempotentOptions.Header", o.Header))...)
}

// final is the default of IdempotentOptions.Store.
func final(status int) bool {
	switch status {
	case http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests:
		return false
	}
	return status < 500
}

// Idempotent executes requests with an Idempotency-Key once, however often they are sent, over all processes that share the
// coordinator's namespace and the store (draft-ietf-httpapi-idempotency-key-header). The first one runs the handler with the
// coordinator's lock of the key. Those that come meanwhile wait for it. They, and those that come later, get the first one's
// status, header, body and trailers, with [ReplayedHeader].
//
// A repeated request has to be the same: method, path, query, Content-Type, Content-Encoding and body, of which a digest is
// kept. Another one with the key is refused with 422 [TypeReused]. Other refusals: a malformed key (400
// [TypeIdempotencyKey]), a body that is too large (413 [TypeTooLarge]), the first request still running after
// IdempotentOptions.Wait (409 [TypeInProgress]), locks or the store not to be had (503 [TypeUnavailable]). None of these has
// executed anything.
//
// # When something goes wrong in between
//
// Before the handler runs, the store gets a record that it has been started. If that fails, the handler does not run. The
// answer is stored before the client gets any of it, unless the handler flushes. If the process dies in between, the lock is
// free again when its session has expired, and whoever repeats the request finds that it was started and not finished.
// Whether the handler has done its work nobody can know; by default the request is refused with 409 [TypeOutcome] and is for
// the application, or a human, to look after. See IdempotentOptions.Rerun.
//
// If the lock is lost while the handler runs, the handler's context ends, with a cause that Is [coord.ErrLost]. Its answer is
// stored nevertheless, unless somebody else has taken the key with a higher token since: then the client is told to ask again
// for that one's answer (409 [TypeOutcome]). [Lock] returns the lock. If the answer cannot be stored for another reason the
// client gets it, and those that repeat the request 409 [TypeOutcome].
//
// An answer larger than IdempotentOptions.MaxAnswer is sent as it is written; of it only its status is kept, for the log, and
// repeated requests get 409 [TypeNotKept]: they have been executed, and the client has to find out otherwise what came of it.
//
// # The handler
//
// Its context has the values of the request's, and ends when the lock is lost, but not with the request (see
// IdempotentOptions.FollowClient). The body has been read before. What it writes is held back until it returns, but for
// Flush, which passes on what there is; the answer is kept all the same. Hijack is not supported, nor [http.Pusher] and
// [io.ReaderFrom]; 1xx and the deadlines of [http.ResponseController] are for the first client only. A panic passes through.
//
// A replay has the headers that the handler set, but for Date, Set-Cookie (see IdempotentOptions.KeepCookies) and those of
// the connection; what middlewares around this one set is theirs to set again. Put what authenticates outside: an answer is
// given to whoever has the key, the scope and the same request. Put [Serialize] inside, so that a replay need not wait.
//
// It panics if c or store is nil or the options make no sense.
func Idempotent(c *coord.Coordinator, store Store, opts *IdempotentOptions) func(http.Handler) http.Handler {
	if c == nil || store == nil {
		panic("middleware: Idempotent needs a coordinator and a Store")
	}
	m := &idempotency{c: c, store: store, opts: opts.filled()}
	if err := m.opts.validate(); err != nil {
		panic(err.Error())
	}
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { m.serve(next, w, r) })
	}
}

type idempotency struct {
	c     *coord.Coordinator
	store Store
	opts  IdempotentOptions
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
		m.opts.Problem(w, r, malformed(&KeyError{fmt.Sprintf("header %q", m.opts.Header), "is missing"}))
		return
	}
	key, err := parseIdempotencyKey(m.opts.Header, values)
	if err != nil {
		m.opts.Problem(w, r, malformed(err))
		return
	}
	id, err := m.identify(r, key)
	if errors.Is(err, ErrSkip) {
		next.ServeHTTP(w, r)
		return
	}
	if err != nil {
		p := keyProblem(err)
		if p.Type == TypeMisconfigured {
			m.opts.Logger.Error("a request cannot be served", "method", r.Method, "pattern", r.Pattern, "err", err)
		}
		m.opts.Problem(w, r, p)
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

// unread answers a request whose body could not be read.
func (m *idempotency) unread(w http.ResponseWriter, r *http.Request, err error) {
	if errors.Is(err, errBodyRead) {
		m.opts.Logger.Error("a request cannot be served", "method", r.Method, "pattern", r.Pattern, "err", err)
		m.opts.Problem(w, r, misconfigured(err))
		return
	}
	p := Problem{
		Type: TypeTooLarge, Title: "Request body too large", Status: http.StatusRequestEntityTooLarge, Err: err,
		Detail: fmt.Sprintf("A request with the header %q may have a body of %d bytes.", m.opts.Header, m.opts.MaxRequest),
	}
	if !errors.Is(err, errTooLarge) {
		m.aborted(r)
		p = Problem{Type: TypeIdempotencyKey, Title: "Request body could not be read", Status: http.StatusBadRequest, Err: err}
	}
	m.opts.Problem(w, r, p)
}

// aborted ends the request if its client has gone: nothing that is written would arrive, and an empty answer is not to be
// taken for a success.
func (m *idempotency) aborted(r *http.Request) {
	if errors.Is(r.Context().Err(), context.Canceled) {
		panic(http.ErrAbortHandler)
	}
}
