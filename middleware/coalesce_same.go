package middleware

import (
	"crypto/sha256"
	"encoding/binary"
	"net/http"
	"slices"
)

// coalesces reports whether Coalesce has anything to do with a request.
func coalesces(r *http.Request) bool {
	return (r.Method == http.MethodGet || r.Method == http.MethodHead || r.Method == "") &&
		r.ContentLength == 0 && len(r.TransferEncoding) == 0 && !upgrades(r.Header["Upgrade"]) &&
		!directive(r.Header["Cache-Control"], "no-cache", "no-store") && !directive(r.Header["Pragma"], "no-cache")
}

// An identity is the part of a request that all requests of one run have in common.
type identity struct {
	// server is the one that the requests came to: another one may be for other users.
	server *http.Server
	digest [sha256.Size]byte // because its input may be long, and secret
}

// harmless are the headers that identify a single request or its way; no answer depends on them.
// docs/http.md has the same list.
var harmless = setOf(
	// IDs of requests and of their traces
	"B3", "Cf-Ray", "Request-Id", "Sentry-Trace", "Traceparent", "Tracestate", "Uber-Trace-Id", "X-Amz-Cf-Id", "X-Amzn-Trace-Id",
	"X-B3-Flags", "X-B3-Parentspanid", "X-B3-Sampled", "X-B3-Spanid", "X-B3-Traceid", "X-Cloud-Trace-Context", "X-Correlation-Id",
	"X-Datadog-Parent-Id", "X-Datadog-Sampling-Priority", "X-Datadog-Trace-Id", "X-Request-Id",
	// the way from the client, and when it began
	"Cf-Connecting-Ip", "Fastly-Client-Ip", "True-Client-Ip", "Via", "X-Client-Ip", "X-Envoy-External-Address", "X-Forwarded-For",
	"X-Queue-Start", "X-Real-Ip", "X-Request-Start", HopHeader,
	// the connection
	"Connection", "Content-Length", "Http2-Settings", "Keep-Alive", "Priority", "Proxy-Connection", "Te", "Upgrade",
	// compared apart
	"X-Forwarded-Host", "X-Forwarded-Proto",
)

func setOf(names ...string) map[string]bool {
	set := make(map[string]bool, len(names))
	for _, n := range names {
		set[n] = true
	}
	return set
}

func (h *coalescer) identify(r *http.Request, key string) identity {
	var buf [512]byte
	d := digest{b: buf[:0]}
	d.add(key)
	if r.Method == http.MethodHead {
		d.add("HEAD") // all else is GET
	} else {
		d.add("GET")
	}
	d.add(r.Pattern)
	if !h.opts.AcrossTargets {
		d.add(r.Host)
		d.addAll(r.Header["X-Forwarded-Host"])
		d.add(r.RequestURI) // a handler outside may have changed the URL, and passed on the old one
		d.add(r.URL.EscapedPath())
		d.add(r.URL.RawQuery)
	}
	d.addPeer(r)
	proto := r.Header["X-Forwarded-Proto"]
	if proto == nil && r.TLS == nil {
		proto = []string{"http"} // as Route says
	}
	d.addAll(proto)
	var few [32]string
	names := few[:0]
	for name := range r.Header {
		if !harmless[name] && !slices.Contains(h.opts.Ignore, name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		d.add(name)
		d.addAll(r.Header[name])
	}
	server, _ := r.Context().Value(http.ServerContextKey).(*http.Server)
	return identity{server, d.sum()}
}

// digest makes a digest of a list of texts. Each has its length before it, so that different lists
// are different input.
type digest struct{ b []byte }

func (d *digest) add(s string) {
	d.b = binary.AppendUvarint(d.b, uint64(len(s)))
	d.b = append(d.b, s...)
}

func (d *digest) addAll(values []string) {
	d.b = binary.AppendUvarint(d.b, uint64(len(values)))
	for _, v := range values {
		d.add(v)
	}
}

// addPeer adds whether there is TLS, and the client's certificate.
func (d *digest) addPeer(r *http.Request) {
	if r.TLS != nil {
		d.add("tls")
	} else {
		d.add("")
	}
	d.add(certificate(r))
}

// certificate returns the certificate that the client has shown, empty if none.
func certificate(r *http.Request) string {
	if r.TLS == nil || len(r.TLS.PeerCertificates) == 0 {
		return ""
	}
	return string(r.TLS.PeerCertificates[0].Raw)
}

func (d *digest) sum() [sha256.Size]byte { return sha256.Sum256(d.b) }

// varies notes which of the request's headers the answer depends on.
func (a *answer) varies(vary []string, r *http.Request) {
	for name := range listed(vary) {
		name = http.CanonicalHeaderKey(name)
		a.vary = append(a.vary, variant{name, slices.Clone(field(r, name))})
	}
}

// suits reports whether another request has the same values in those headers.
func (a *answer) suits(r *http.Request) bool {
	for _, v := range a.vary {
		if !slices.Equal(field(r, v.name), v.values) {
			return false
		}
	}
	return true
}

// A variant is a header that Vary names, with the values of the request that was answered.
type variant struct {
	name   string
	values []string
}

// field returns the values of a request's header.
func field(r *http.Request, name string) []string {
	if name == "Host" {
		return []string{r.Host}
	}
	return r.Header[name]
}
