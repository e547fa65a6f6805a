package middleware

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"net/http"
	"sync/atomic"

	"github.com/holdfast-go/holdfast/coord"
)

// marks are the values of HopHeader: a digest of the ID of the node that a request goes to. These
// IDs are random and change with each start of a process. So a header that is sent by mistake, or
// kept from before, is no mark. They are no secret.
type marks struct {
	c    *coord.Coordinator
	self atomic.Pointer[string] // of this node; nil: not needed yet
}

func markOf(id string) string {
	sum := sha256.Sum256([]byte("holdfast hop " + id))
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

// genuine reports whether a node has set the header. It need not be the mark of this node: a URL
// may lead to another one, and a request that is passed on from there might never arrive.
func (m *marks) genuine(values []string) bool {
	if len(values) != 1 {
		return false
	}
	if self := m.self.Load(); self != nil && *self == values[0] {
		return true
	}
	for _, n := range m.c.Nodes() {
		value := markOf(n.ID)
		if n.Self {
			m.self.Store(&value)
		}
		if value == values[0] {
			return true
		}
	}
	return false
}

type forwardedKey struct{}

// admitted is the context of a request that a node has sent on.
type admitted struct {
	context.Context
	mark [1]string // for the handler
}

func (a *admitted) Value(key any) any {
	if key == (forwardedKey{}) {
		return a
	}
	return a.Context.Value(key)
}

// forwarded reports whether a Route around this one has seen that a node has sent the request on.
func forwarded(ctx context.Context) bool { return ctx.Value(forwardedKey{}) != nil }

// admit returns the request as handlers get it: the mark is for nodes only, and one that no node
// has set is taken off.
func (m *marks) admit(r *http.Request) *http.Request {
	values := r.Header[HopHeader]
	if values == nil || forwarded(r.Context()) {
		return r
	}
	header := make(http.Header, len(r.Header)) // as Clone's, but for the values, which are shared until they are appended to
	for name, v := range r.Header {
		header[name] = v[:len(v):len(v)]
	}
	if m.genuine(values) {
		a := &admitted{r.Context(), [1]string{"1"}}
		r = r.WithContext(a)
		header[HopHeader] = a.mark[:]
	} else {
		r = r.WithContext(r.Context()) // a copy
		delete(header, HopHeader)
	}
	r.Header = header
	return r
}
