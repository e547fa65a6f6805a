package middleware

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"strconv"
	"time"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/internal/logs"
)

// The types of the problems that requests of this package are answered with. They are URIs that
// stay as they are.
const (
	typeBase = "https://pkg.go.dev/github.com/holdfast-go/holdfast/middleware#"

	TypeKey           = typeBase + "TypeKey"           // 400: the request has no usable key
	TypeLocked        = typeBase + "TypeLocked"        // 423 or 409: the request's turn did not come in time
	TypeTooMany       = typeBase + "TypeTooMany"       // 429: too many requests wait for the key, or run with it (Limit)
	TypeUnavailable   = typeBase + "TypeUnavailable"   // 503: locks are not to be had now
	TypeOwner         = typeBase + "TypeOwner"         // 502, or 504 after a time limit: the key's owner did not answer, and may have got the request
	TypeBody          = typeBase + "TypeBody"          // 400, or 408 after a time limit: the request's body could not be read
	TypeTooLarge      = typeBase + "TypeTooLarge"      // 413: the request's body is too large
	TypeMisconfigured = typeBase + "TypeMisconfigured" // 500: the program is wrong: see the log
)

// A Problem is the answer to a request that did not get to its handler: the members of RFC 9457,
// and headers.
type Problem struct {
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail,omitempty"` // for the client's eyes; may be empty

	RetryAfter time.Duration `json:"-"` // sent in whole seconds, rounded up; 0: not sent
	Err        error         `json:"-"` // the cause, for logs; not for the client
}

// WriteProblem answers a request with p, as application/problem+json. It is the default where the
// options name no function of their own, and may be called by one. A call by gRPC gets a status of
// gRPC: InvalidArgument where the request has no usable key, Aborted for [TypeLocked],
// ResourceExhausted for [TypeTooMany], Unavailable where locks are not to be had.
func WriteProblem(w http.ResponseWriter, r *http.Request, p Problem) {
	if isGRPC(r) {
		writeGRPC(w, p)
		return
	}
	body, err := json.Marshal(p)
	if err != nil { // strings and an int
		panic(err)
	}
	h := w.Header()
	h.Set("Content-Type", "application/problem+json")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	if p.RetryAfter > 0 {
		h.Set("Retry-After", strconv.FormatInt(roundUp(p.RetryAfter, time.Second), 10))
	}
	w.WriteHeader(p.Status)
	_, _ = w.Write(body) // the client has gone
}

// refusals has the settings for a middleware's answers to requests that it does not let through.
type refusals struct {
	problem    func(w http.ResponseWriter, r *http.Request, p Problem)
	logger     *slog.Logger
	retryAfter time.Duration // not negative
}

// newRefusals fills in the defaults of the options, but for that of retryAfter.
func newRefusals(problem func(http.ResponseWriter, *http.Request, Problem), logger *slog.Logger, retryAfter time.Duration) refusals {
	if problem == nil {
		problem = WriteProblem
	}
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	return refusals{problem, logs.Limit(logger), max(retryAfter, 0)}
}

func (f *refusals) refuse(w http.ResponseWriter, r *http.Request, p Problem) {
	if p.Type == TypeMisconfigured {
		f.logger.Error("holdfast: a request cannot be served", "method", r.Method, "pattern", r.Pattern, "error", p.Err)
	}
	if p.Type != TypeOwner { // the owner may have executed it
		notExecuted(w)
	}
	f.problem(w, r, p)
}

// notExecuted tells an Idempotent further out that the handler does not run.
func notExecuted(w http.ResponseWriter) {
	if rec := recorderOf(w); rec != nil {
		rec.refused = true
	}
}

// abort ends a request that was not executed if its client has gone: nothing that is written would
// arrive, and an empty response must not be taken for a success.
func abort(w http.ResponseWriter, r *http.Request) {
	if gone(r.Context()) {
		notExecuted(w)
		panic(http.ErrAbortHandler)
	}
}

// gone reports whether a request's context ended because its client has gone. A lock that was lost
// further out ends it as well, and so does Coalesce.
func gone(ctx context.Context) bool {
	if first, ok := ctx.Value(firstKey{}).(context.Context); ok && ctx.Err() != nil {
		return gone(first)
	}
	return errors.Is(ctx.Err(), context.Canceled) && !errors.Is(context.Cause(ctx), coord.ErrLost)
}
