package middleware

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/internal/unit"
)

// LimitOptions are the options of [Limit]. The zero value of each field means its default, and a
// nil *LimitOptions means all defaults.
type LimitOptions struct {
	// Wait is the longest wait of a request for others to end. Default: not at all; at least 1 ms.
	// A request that does not wait may be refused for some milliseconds after another process has
	// ended one (see [coord.Semaphore.TryAcquire]).
	Wait time.Duration

	// RetryAfter is the Retry-After of answers to clients that were sent away, in whole seconds,
	// rounded up. Default 1 s. Negative: nothing.
	RetryAfter time.Duration

	// Problem answers a request that is not let through. It may be called concurrently. Default
	// [WriteProblem].
	Problem func(w http.ResponseWriter, r *http.Request, p Problem)

	// Logger gets a record for each request whose permit was lost while its handler ran, and for
	// each error of the program. Nil: silent.
	Logger *slog.Logger
}

// limiter is the state that the requests of one Limit share.
type limiter struct {
	c    *coord.Coordinator
	key  KeyFunc
	n    int
	wait time.Duration
	refusals
}

// Limit lets n requests with the same key run at the same time, in all processes of the
// coordinator's namespace. Others are sent away with 429 and Retry-After, after LimitOptions.Wait.
// It holds a permit of the key's [coord.Semaphore], which a key of [Serialize] has nothing to do
// with, until the handler returns or panics. So a handler that goes on in a goroutine, as in an
// [http.TimeoutHandler] inside of Limit, is not counted any more: put the TimeoutHandler outside.
//
// The handler's context has the values of the request's and ends with it. It also ends when the
// permit is lost, with a cause that Is [coord.ErrLost]. All processes must use the same n for a
// key: with another one requests are refused with 500, and the error that is logged says both
// ([coord.SizeError]). So a deployment that changes n uses another key, such as one with n in it.
//
// Not let through, and told so by LimitOptions.Problem: requests without a usable key (400), those
// over the limit (429), and all while permits are not to be had (503). With [ErrSkip] for a key, a
// request passes without a limit.
//
// A body is not read before the permit is there, and has no limit of time: a client that sends
// slowly keeps its permit. Limit that by the server's ReadTimeout, or by
// [http.ResponseController.SetReadDeadline] in the handler.
//
// It panics if c or key is nil, n is less than 1, or the options make no sense.
func Limit(c *coord.Coordinator, key KeyFunc, n int, opts *LimitOptions) func(http.Handler) http.Handler {
	if c == nil || key == nil {
		panic("middleware: Limit needs a coordinator and a KeyFunc")
	}
	if n < 1 {
		panic(fmt.Sprintf("middleware: Limit of %d requests; there has to be 1 at least", n))
	}
	o := LimitOptions{}
	if opts != nil {
		o = *opts
	}
	if err := unit.Check("middleware: LimitOptions.Wait", o.Wait, time.Millisecond, "10 * time.Second"); err != nil {
		panic(err.Error())
	}
	setDefault(&o.RetryAfter, time.Second)
	s := &limiter{c: c, key: key, n: n, wait: o.Wait, refusals: newRefusals(o.Problem, o.Logger, o.RetryAfter)}
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { s.serve(next, w, r) })
	}
}

func (s *limiter) serve(next http.Handler, w http.ResponseWriter, r *http.Request) {
	key, err := s.key.of(r)
	if errors.Is(err, ErrSkip) {
		next.ServeHTTP(w, r)
		return
	}
	if err != nil {
		s.refuse(w, r, keyProblem(err))
		return
	}
	permit, err := s.acquire(r.Context(), key)
	if err != nil {
		s.failed(w, r, err)
		return
	}
	inner := r.WithContext(&until{Context: r.Context(), of: permit})
	defer func() {
		keepForm(r, inner)
		if err := permit.Release(); errors.Is(err, coord.ErrLost) {
			s.logger.Warn("holdfast: the permit of a request was lost while its handler ran", "key", key, "error", err)
		}
	}()
	next.ServeHTTP(w, inner)
}

func (s *limiter) acquire(ctx context.Context, key string) (coord.Permits, error) {
	sem := s.c.Semaphore(key, s.n)
	if s.wait <= 0 {
		return sem.TryAcquire(ctx, 1)
	}
	ctx, cancel := context.WithTimeout(ctx, s.wait)
	defer cancel()
	return sem.Acquire(ctx, 1)
}

// failed answers a request that did not get its permit.
func (s *limiter) failed(w http.ResponseWriter, r *http.Request, err error) {
	abort(w, r)
	p := Problem{RetryAfter: s.retryAfter, Err: err}
	switch _, size := errors.AsType[*coord.SizeError](err); {
	case size:
		p = misconfigured(err)
	case errors.Is(err, coord.ErrLocked) && !errors.Is(err, context.Canceled):
		p.Type, p.Title, p.Status = TypeTooMany, "Too many requests at the same time", http.StatusTooManyRequests
	default:
		p.Type, p.Title, p.Status = TypeUnavailable, "Permits are not available now", http.StatusServiceUnavailable
	}
	s.refuse(w, r, p)
}
