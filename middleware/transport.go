package middleware

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strings"
	"sync"
	"time"
)

// A Transport makes the requests between nodes of a cluster, see [RouteOptions]. Set the fields of
// the embedded [http.Transport] before the first request, and do not copy it afterwards. The zero
// Transport has the settings of [NewTransport].
//
// While Protocols is nil, a request goes by the HTTP version of its client: HTTP/1.1, with upgrades
// such as WebSocket, or HTTP/2, with gRPC. So a handler sees the same version on each node. By
// http:// an owner shows with the first connection whether it accepts HTTP/2 (Server.Protocols with
// UnencryptedHTTP2). One that does not gets a request "PRI *", as RFC 9113 has it, and is asked
// again a minute later. Meanwhile it gets HTTP/1.1, and gRPC requests are served where they came. A
// Transport with Protocols that are not nil speaks those versions to all, as an [http.Transport]
// does.
//
// A connection carries one request at a time, also by HTTP/2. Where requests share a connection,
// the bodies of those that wait for a lock use up its flow-control window. Then the request that
// has the lock gets no more of its own body.
type Transport struct {
	*http.Transport // HTTP/1.1, and the settings for both

	once sync.Once
	h2   *http.Transport // makes connections by HTTP/2; by once; nil if Protocols is not

	mu   sync.Mutex             // protects the fields below
	idle map[endpoint][]*h2Conn // the one used last is the last
	old  map[endpoint]time.Time // does not accept HTTP/2; not asked again until then
}

// endpoint is the address of a connection.
type endpoint struct{ scheme, addr string }

// forgetOld is the time until a server that did not accept HTTP/2 is asked again for it.
const forgetOld = time.Minute

// NewTransport returns a transport for requests between nodes of a cluster: without a proxy, 1 s to
// connect, at most 64 idle connections per node and version, closed after 10 s. Probes find out
// within 20 s that a node's machine has gone. The connections in use are not limited. Where more
// than 64 requests are forwarded to a node at a time, raise MaxIdleConnsPerHost, or each of the
// rest dials anew. It does not limit how long a response may take: if you set
// ResponseHeaderTimeout, let it be longer than SerializeOptions.Wait and the handler together.
//
// Let the servers keep idle connections for longer than the transport does (IdleTimeout of
// [http.Server], or ReadTimeout if that is zero): a POST that meets a connection which the owner
// closes at that moment is answered with 502. Route logs it if they do not.
func NewTransport() *Transport {
	d := &net.Dialer{
		Timeout:         time.Second,
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 5 * time.Second, Interval: 5 * time.Second, Count: 3},
	}
	return &Transport{Transport: &http.Transport{
		DialContext:           d.DialContext,
		MaxIdleConns:          1024,
		MaxIdleConnsPerHost:   64,
		IdleConnTimeout:       10 * time.Second,
		TLSHandshakeTimeout:   2 * time.Second,
		ExpectContinueTimeout: time.Second,
		DisableCompression:    true, // the client's Accept-Encoding is passed on
	}}
}

// errNoHTTP2: the owner does not accept HTTP/2, and the request needs it.
var errNoHTTP2 = errors.New("middleware: the node does not accept HTTP/2 at its Cluster.Service")

// RoundTrip implements [http.RoundTripper]. The version in r is the one of its client.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	t.once.Do(t.prepare)
	if r.ProtoMajor < 2 || t.Protocols != nil {
		return t.Transport.RoundTrip(r)
	}
	to := endpointOf(r.URL)
	for {
		c, reused, err := t.conn(r.Context(), to)
		if errors.Is(err, errNoHTTP2) && !isGRPC(r) {
			return t.downgrade(r)
		}
		if err != nil {
			return nil, err
		}
		if trace := httptrace.ContextClientTrace(r.Context()); trace != nil && trace.GotConn != nil {
			trace.GotConn(httptrace.GotConnInfo{Reused: reused})
		}
		res, err := c.RoundTrip(r)
		if err == nil || !reused || !unprocessed(r, err) {
			return res, err
		}
	}
}

// downgrade sends a request by HTTP/1.1 that came by HTTP/2.
func (t *Transport) downgrade(r *http.Request) (*http.Response, error) {
	if len(r.Trailer) > 0 && r.ContentLength >= 0 { // only a body without a length has trailers there
		r = r.WithContext(r.Context())
		r.ContentLength = -1
	}
	return t.Transport.RoundTrip(r)
}

// unprocessed reports whether a request that failed on a connection used before may be sent again:
// the server has told that it has not taken it, or net/http would send it again as well.
func unprocessed(r *http.Request, err error) bool {
	if r.Body != nil && r.Body != http.NoBody {
		if g, ok := r.Body.(*guard); !ok || !g.reopen() {
			return false
		}
	} else if r.Context().Err() == nil && (r.Method == http.MethodGet || r.Method == http.MethodHead) {
		return true
	}
	text := err.Error() // net/http exports none of these
	return strings.Contains(text, "client conn not usable") || strings.Contains(text, "graceful shutdown GOAWAY") ||
		strings.Contains(text, "REFUSED_STREAM")
}

// CloseIdleConnections closes the connections that carry no request.
func (t *Transport) CloseIdleConnections() {
	t.once.Do(t.prepare)
	t.Transport.CloseIdleConnections()
	t.mu.Lock()
	idle := t.idle
	t.idle = nil
	t.mu.Unlock()
	for _, all := range idle {
		for _, c := range all {
			c.Close()
		}
	}
}

func endpointOf(u *url.URL) endpoint {
	addr := u.Host
	if u.Port() == "" {
		addr = net.JoinHostPort(u.Hostname(), map[string]string{"http": "80", "https": "443"}[u.Scheme])
	}
	return endpoint{u.Scheme, addr}
}

// prepare makes the part that the zero Transport lacks, and the side that speaks HTTP/2.
func (t *Transport) prepare() {
	if t.Transport == nil {
		t.Transport = NewTransport().Transport
	}
	if t.Protocols != nil {
		return
	}
	t.h2 = t.Transport.Clone()
	t.h2.Protocols = new(http.Protocols)
	t.h2.Protocols.SetHTTP2(true)
	t.h2.Protocols.SetUnencryptedHTTP2(true)
	dial := t.h2.DialContext
	if dial == nil {
		dial = new(net.Dialer).DialContext
	}
	t.h2.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		if err != nil || ctx.Value(prefaceKey{}) == nil {
			return conn, err
		}
		return preface(conn, t.TLSHandshakeTimeout)
	}
	if c := t.TLSClientConfig; c != nil && len(c.NextProtos) > 0 { // net/http would agree on HTTP/2, and speak HTTP/1.1
		t.TLSClientConfig = c.Clone()
		t.TLSClientConfig.NextProtos = nil
	}
}

// dial makes a connection.
func (t *Transport) dial(ctx context.Context, to endpoint) (*http.ClientConn, error) {
	negotiated := ""
	if to.scheme == "http" {
		ctx = context.WithValue(ctx, prefaceKey{}, true)
		negotiated = "h2"
	}
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		TLSHandshakeDone: func(s tls.ConnectionState, _ error) { negotiated = s.NegotiatedProtocol },
	})
	cc, err := t.h2.NewClientConn(ctx, to.scheme, to.addr)
	if err == nil && negotiated != "h2" {
		cc.Close()
		err = errNoHTTP2
	}
	if alert := tls.AlertError(120); errors.As(err, &alert) && alert == 120 { // no_application_protocol
		err = errNoHTTP2
	}
	return cc, err
}
