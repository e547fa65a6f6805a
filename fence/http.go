package fence

import (
	"context"
	"net/http"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/internal/held"
)

// Header is the name of the HTTP header for a token, in decimal. [Require] answers with the highest token
// in it where a request's is stale.
const Header = "Holdfast-Fence"

// Transport sends the token of the innermost lock that a request's context carries, which is that of
// [coord.Coordinator.Do], [coord.Lock.Context] or the handlers of package middleware, in [Header]. If that
// lock was lost, the request is not sent, and the error Is [coord.ErrLost]. Other requests are sent as
// they are. A nil base is [http.DefaultTransport].
func Transport(base http.RoundTripper) http.RoundTripper {
	if base == nil {
		base = http.DefaultTransport
	}
	return transport{base}
}

type transport struct{ base http.RoundTripper }

func (t transport) RoundTrip(r *http.Request) (*http.Response, error) {
	h, ok := r.Context().Value(held.Key{}).(interface {
		Held() (coord.Lock, context.Context)
	})
	if !ok {
		return t.base.RoundTrip(r)
	}
	l, _ := h.Held()
	if ctx := l.Context(); ctx.Err() != nil {
		if r.Body != nil {
			_ = r.Body.Close()
		}
		return nil, context.Cause(ctx)
	}
	r = r.Clone(r.Context())
	r.Header.Set(Header, l.Fence().String())
	return t.base.RoundTrip(r)
}

type tokenKey struct{}

// FromContext returns the token that a request came with, in a handler inside of [Require] or
// [Memory.Handler]. The handler checks it where the data is, as with [Table.Check].
func FromContext(ctx context.Context) (token coord.Fence, ok bool) {
	token, ok = ctx.Value(tokenKey{}).(coord.Fence)
	return token, ok
}

// Require lets requests through that come with a token, and safe ones (GET, HEAD, OPTIONS, TRACE) also
// without. Others are answered with 428 (Precondition Required), and 400 if the header has no token. It
// compares nothing: the handler does that with [FromContext], in the transaction that writes, and answers
// with [WriteError]. The header has to come from clients that you trust, or a proxy that removes it: one with the
// highest number there is would have all later holders refused.
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
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), tokenKey{}, token)))
	})
}
