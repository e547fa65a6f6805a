package middleware

import (
	"iter"
	"net/http"
	"net/textproto"
	"slices"
	"strings"
)

// An answer is a handler's answer, to be given to more than one request. It does not change once it
// is made.
type answer struct {
	status  int
	header  http.Header // set or changed by the handler
	removed []string    // headers that had been set around the handler and that it removed
	body    []byte
	trailer http.Header // with http.TrailerPrefix where the handler used that
	vary    []variant   // headers that a request must have to get it
}

// write answers another request with it. Headers that were set for that request around the
// middleware stay, unless the handler changed them.
func (a *answer) write(w http.ResponseWriter) {
	h := w.Header()
	for _, name := range a.removed {
		delete(h, name)
	}
	for name, values := range a.header {
		h[name] = slices.Clone(values) // middlewares around may append to them
	}
	for name, values := range a.trailer {
		if strings.HasPrefix(name, http.TrailerPrefix) { // before the header goes out with a length: by HTTP/1.1 there are none behind that
			h[name] = slices.Clone(values)
		}
	}
	w.WriteHeader(a.status)
	if len(a.body) > 0 && bodyAllowed(a.status) {
		_, _ = w.Write(a.body) // the client has gone
	}
	if len(a.trailer) > 0 && grpcKind(h.Get("Content-Type")) {
		_ = http.NewResponseController(w).Flush() // servers of gRPC send no length
	}
	for name, values := range a.trailer {
		h[name] = slices.Clone(values)
	}
}

// bodyAllowed reports whether an answer of that status may have a body.
func bodyAllowed(status int) bool {
	return status >= 200 && status != http.StatusNoContent && status != http.StatusNotModified
}

// hopByHop is the set of headers that are about one connection (RFC 9110, 7.6.1).
func hopByHop(h http.Header) map[string]bool {
	hop := map[string]bool{
		"Connection": true, "Keep-Alive": true, "Proxy-Connection": true, "Te": true, "Transfer-Encoding": true, "Upgrade": true,
	}
	for name := range listed(h["Connection"]) {
		hop[textproto.CanonicalMIMEHeaderKey(name)] = true
	}
	return hop
}

// listed are the elements of a header that is a list. A comma within quotes separates as well:
// callers look for names, and must be on the safe side when there is one too many.
func listed(values []string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for _, v := range values {
			for e := range strings.SplitSeq(v, ",") {
				if e = textproto.TrimString(e); e != "" && !yield(e) {
					return
				}
			}
		}
	}
}

// upgrades reports whether an Upgrade header asks for another protocol. HTTP/2 over the same
// connection ("h2c") does not count: clients offer it with each request, net/http never accepts it,
// and RFC 9113 has taken it back.
func upgrades(upgrade []string) bool {
	for protocol := range listed(upgrade) {
		if !strings.EqualFold(protocol, "h2c") {
			return true
		}
	}
	return false
}

// directive reports whether a header such as Cache-Control has one of the directives, with a value
// or without.
func directive(values []string, names ...string) bool {
	for e := range listed(values) {
		name, _, _ := strings.Cut(e, "=")
		for _, n := range names {
			if strings.EqualFold(textproto.TrimString(name), n) {
				return true
			}
		}
	}
	return false
}
