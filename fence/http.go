package fence

import (
	"context"
	"errors"
	"net/http"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/internal/held"
)

// Header is the name of the HTTP header for a token, in decimal. [Require] answers with the highest
// token in it where a request's is stale.
const Header = "Holdfast-Fence"

// Transport sends, in [Header], the token of the innermost lock that a request's context carries.
// That is a lock of [coord.Coordinator.Do], [coord.Lock.Context] or the handlers of package
// middleware. If that lock was lost, the request is not sent, and the error Is [coord.ErrLost]. One
// that was unlocked does not count, as of a handler that unlocks early: the next one further out
// does. If it is one for reading, no token is sent; once it is over the request is not sent, and
// the error is its cause. Other requests are sent as they are. A nil base is
// [http.DefaultTransport].
func Transport(base http.RoundTripper) http.RoundTripper {
	if base == nil {
		base = http.DefaultTransport
	}
	return transport{base}
}

type transport struct{ base http.RoundTripper }

func (t transport) RoundTrip(r *http.Request) (*http.Response, error) {
	l, err := lockOf(r.Context())
	if err != nil {
		if r.Body != nil {
			_ = r.Body.Close()
		}
		return nil, err
	}
	if token := l.Fence(); token != 0 {
		r = r.Clone(r.Context())
		r.Header.Set(Header, token.String())
	}
	return t.base.RoundTrip(r)
}

// lockOf returns the innermost lock of the context that was not unlocked. It returns the zero Lock
// if there is none, and an error if that lock has ended otherwise.
func lockOf(ctx context.Context) (coord.Lock, error) {
	for {
		h, ok := ctx.Value(held.Key{}).(interface {
			Held() (coord.Lock, context.Context)
		})
		if !ok {
			return coord.Lock{}, nil
		}
		l, outer := h.Held()
		own := l.Context()
		if own.Err() == nil {
			return l, nil
		}
		cause := context.Cause(own)
		if !errors.Is(cause, coord.ErrUnlocked) || l.Fence() == 0 { // a reader's, which may have been lost
			return coord.Lock{}, cause
		}
		ctx = outer
	}
}

type tokenKey struct{}

// FromContext returns the token that a request came with, in a handler inside of [Require] or
// [Memory.Handler]. The handler checks it where the data is, as with [Table.Check].
func FromContext(ctx context.Context) (token coord.Fence, ok bool) {
	token, ok = ctx.Value(tokenKey{}).(coord.Fence)
	return token, ok
}

// Require lets requests through that come with a token, and safe ones (GET, HEAD, OPTIONS, TRACE)
// also without. Others are answered with 428 (Precondition Required), and 400 if the header has no
// token. It compares nothing: the handler does that with [FromContext], in the transaction that
// writes, and answers with [WriteError]. The header has to come from clients that you trust, or a
// proxy that removes it: one with the highest number there is would have all later holders refused.
func Require(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text := r.Header.Get(Header)
		if text == "" {
			switch r.Method {
			case http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace:
				next.ServeHTTP(w, r)
			default:
				http.Error(w, "the request must have the token of a lock, in "+Header, http.StatusPreconditionRequired)
			}
			return
		}
		var token coord.Fence
		if err := token.UnmarshalText([]byte(text)); err != nil || token == 0 {
			http.Error(w, Header+" is no token", http.StatusBadRequest)
			return
		}
		inner := r.WithContext(context.WithValue(r.Context(), tokenKey{}, token))
		defer func() {
			if r.MultipartForm == nil { // the server removes the files of the forms that it knows
				r.MultipartForm = inner.MultipartForm
			}
		}()
		next.ServeHTTP(w, inner)
	})
}
