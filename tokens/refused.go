package tokens

import (
	"io"
	"net/http"
	"time"

	"golang.org/x/oauth2"
)

// Refused tells that a resource has answered 401 (Unauthorized) to an access token that [Keeper.Token] had returned, though it has not
// expired. If it is still the account's, the next Token refreshes it before it returns: once per cluster, since any other process
// that is refused the same finds the new one in the store. It does no I/O, and a token that is not the account's any more, or
// younger than Options.MinAge, does not count.
//
// Call it for 401 only, and not where the resource says that the token's rights are too small (403, insufficient_scope): another
// token would have the same. [Keeper.Transport] calls it by itself.
func (k *Keeper) Refused(name, access string) {
	k.mu.RLock()
	a := k.accounts[name]
	k.mu.RUnlock()
	if a != nil {
		a.refuse(access, k.opts.MinAge, time.Now())
	}
}

// Transport returns a transport that sends requests with the account's access token. A request that is answered with 401 is sent
// once more with another token, if there is one (see [Keeper.Refused]) and its body can be had again: there is none, or
// GetBody is set, as [http.NewRequest] does for bodies in memory. Other requests get the 401, and the next one another token.
//
// Like that of package oauth2 it gives the token to whatever host the request is for: let http.Client.CheckRedirect see to it that
// none is sent elsewhere.
//
// An error of [Keeper.Token] is returned as it is. base sends the requests; nil: [http.DefaultTransport].
func (k *Keeper) Transport(name string, base http.RoundTripper) http.RoundTripper {
	if base == nil {
		base = http.DefaultTransport
	}
	return &transport{k, name, base}
}

// maxDrain is how much of a response that nobody wants is read rather than to end its connection.
const maxDrain = 64 << 10

type transport struct {
	k    *Keeper
	name string
	base http.RoundTripper
}

// RoundTrip implements [http.RoundTripper].
func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	token, err := t.k.Token(r.Context(), t.name)
	if err != nil {
		if r.Body != nil {
			_ = r.Body.Close() // as a RoundTripper must
		}
		return nil, err
	}
	res, err := t.send(r, r.Body, token)
	if err != nil || res.StatusCode != http.StatusUnauthorized {
		return res, err
	}
	t.k.Refused(t.name, token.AccessToken)
	body := r.Body
	if body != nil && body != http.NoBody {
		if r.GetBody == nil {
			return res, nil
		}
		if body, err = r.GetBody(); err != nil {
			return res, nil
		}
	}
	next, err := t.k.Token(r.Context(), t.name)
	if err != nil || next.AccessToken == token.AccessToken {
		if body != nil {
			_ = body.Close()
		}
		return res, nil // what the resource said is the better answer
	}
	if 0 <= res.ContentLength && res.ContentLength <= maxDrain { // else it may be a stream, whose end nobody waits for
		_, _ = io.CopyN(io.Discard, res.Body, res.ContentLength) // so that the connection can be used again
	}
	_ = res.Body.Close()
	return t.send(r, body, next)
}

// send sends a copy of the request: a RoundTripper must not change what it gets.
func (t *transport) send(r *http.Request, body io.ReadCloser, token *oauth2.Token) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Body = body
	token.SetAuthHeader(r)
	return t.base.RoundTrip(r)
}
