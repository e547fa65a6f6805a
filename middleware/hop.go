package middleware

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/http/httputil"
	"net/textproto"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/coord"
)

// hop is the context of a request that is being forwarded.
type hop struct {
	context.Context
	end  context.CancelCauseFunc // of Context, with a cause
	base *url.URL
	w    http.ResponseWriter
	had  http.Header // w's, as set around Route; nil: nothing
	body *guard      // nil: none
	both bool        // the response has begun before the body ended, and the server has let it
	sent bool        // the transport was asked
	got  atomic.Bool // there was a connection, so something may have been sent
	err  error       // of the forwarding; nil if there was a response

	trace  *httptrace.ClientTrace // the caller's; nil: none
	values [3]string              // of the headers that Route adds

	to         *target // the owner
	prev, next *hop    // that are on their way there; guarded by to.mu
}

type hopKey struct{}

func (h *hop) Value(key any) any {
	if key == (hopKey{}) {
		return h
	}
	return h.Context.Value(key)
}

func hopOf(ctx context.Context) *hop { return ctx.Value(hopKey{}).(*hop) }

// forward sends the request to its owner. It reports false, with nothing done, if the request is to
// be served here.
func (s *router) forward(w http.ResponseWriter, r *http.Request, n coord.NodeInfo, to *target, base *url.URL) bool {
	h := &hop{base: base, w: w, trace: httptrace.ContextClientTrace(r.Context())}
	h.Context, h.end = context.WithCancelCause(r.Context())
	defer h.end(nil)
	if !to.begin(h) {
		return false
	}
	defer h.leave()
	if header := w.Header(); len(header) > 0 {
		h.had = header.Clone()
	}
	out := r.WithContext(h)
	if r.Body != nil && r.Body != http.NoBody {
		h.body = &guard{body: r.Body, breaks: r.ProtoMajor >= 2}
		out.Body = h.body
	}
	defer h.hangUp()
	s.proxy.ServeHTTP(w, out)
	if h.err == nil {
		s.avoided.remove(n.ID)
		return true
	}
	if gone(r.Context()) {
		panic(http.ErrAbortHandler)
	}
	if !h.sent { // ReverseProxy refuses the upgrade's protocol; the owner has nothing to do with it
		return false
	}
	if errors.Is(h.err, errNoHTTP2) {
		s.logger.Warn("holdfast: a gRPC request is served here, as its owner accepts no HTTP/2", "node", n.Name, "service", n.Service)
		return false
	}
	dialing := isDial(h.err)
	if err := context.Cause(h.Context); errors.Is(err, coord.ErrNodeDead) {
		h.err = err // and not just "context canceled"
	}
	if !h.got.Load() && (s.traced || dialing) && r.Context().Err() == nil {
		s.avoid(n, h.err)
		if h.body == nil || h.body.seal() {
			return false
		}
	}
	h.restore(nil)
	if p, ok := h.mistake(); ok {
		s.refuse(w, r, p)
		return true
	}
	s.logger.Warn("holdfast: a request was lost on the way to its owner", "node", n.Name, "service", n.Service, "error", h.err)
	s.refuse(w, r, Problem{
		Type: TypeOwner, Title: "The server that is responsible did not answer", Status: http.StatusBadGateway,
		RetryAfter: s.retryAfter, Err: h.err,
	})
	return true
}

// RoundTrip is the transport of the ReverseProxy. It lets the hop know of a connection by the trace
// that ReverseProxy has just made for this request: to put another one beside it would cost more
// than the rest of Route.
func (s *router) RoundTrip(r *http.Request) (*http.Response, error) {
	h := hopOf(r.Context())
	h.sent = true
	trace := httptrace.ContextClientTrace(r.Context())
	if trace == nil || trace == h.trace {
		trace = &httptrace.ClientTrace{}
		r = r.WithContext(httptrace.WithClientTrace(r.Context(), trace))
	}
	if inform := trace.Got1xxResponse; inform != nil && h.body != nil && r.Header["Expect"] != nil {
		trace.Got1xxResponse = func(code int, header textproto.MIMEHeader) error {
			if code == http.StatusContinue { // this node's server says it as soon as the body is read; to a second one HttpClient of JDK 17 waits for ever
				return nil
			}
			return inform(code, header)
		}
	}
	gotConn := trace.GotConn
	trace.GotConn = func(info httptrace.GotConnInfo) {
		h.got.Store(true)
		if gotConn != nil {
			gotConn(info)
		}
	}
	return s.opts.Transport.RoundTrip(r)
}

func isDial(err error) bool {
	e, ok := errors.AsType[*net.OpError](err)
	return ok && e.Op == "dial"
}

// rewrite makes the owner's request as much like this one as can be.
func rewrite(p *httputil.ProxyRequest) {
	h := hopOf(p.In.Context())
	base := h.base
	// As the client sent it: the owner's handlers outside of Route will change it again.
	// ReverseProxy has dropped parameters from the query that cannot be parsed, for backends that
	// are of another opinion; this one is not.
	target := asked(p.In)
	*p.Out.URL = url.URL{
		Scheme: base.Scheme, Host: base.Host, Path: target.Path, RawPath: target.RawPath,
		RawQuery: target.RawQuery, ForceQuery: target.ForceQuery,
	}
	p.Out.Trailer = p.In.Trailer // filled when the body has been read
	if h.body != nil && p.Out.Body != nil {
		p.Out.Body = h.body // unlike ReverseProxy's, its Close ends a Read: HTTP/2 waits for that
	}
	for _, name := range []string{"Forwarded", "X-Forwarded-Host", "X-Forwarded-Proto"} {
		if v, ok := p.In.Header[name]; ok {
			p.Out.Header[name] = slices.Clone(v)
		}
	}
	way := p.In.Header["X-Forwarded-For"]
	client, _, err := net.SplitHostPort(p.In.RemoteAddr)
	switch {
	case err != nil: // of a Unix socket
		client = strings.Join(way, ", ")
	case len(way) > 0:
		client = strings.Join(way, ", ") + ", " + client
	}
	if err == nil || len(way) > 0 {
		h.set(p.Out.Header, 0, "X-Forwarded-For", client)
	}
	if p.Out.Header["X-Forwarded-Proto"] == nil {
		proto := "http"
		if p.In.TLS != nil {
			proto = "https"
		}
		h.set(p.Out.Header, 1, "X-Forwarded-Proto", proto)
	}
	h.set(p.Out.Header, 2, HopHeader, h.to.mark)
}

// set sets a header that has one value, which is kept at index i of h.values.
func (h *hop) set(header http.Header, i int, name, value string) {
	h.values[i] = value
	header[name] = h.values[i : i+1 : i+1]
}

// respond is called before the owner's response is passed on.
func respond(res *http.Response) error {
	h := hopOf(res.Request.Context())
	h.restore(res.Header)
	// HTTP/1.1 has trailers only where there is no length, HTTP/2 also with one. Trailers that are
	// not announced are not known yet.
	if res.Request.ProtoMajor == 1 && res.ProtoMajor >= 2 && len(res.Trailer) > 0 {
		res.Header.Del("Content-Length")
	}
	// A response may begin while the body is still being sent to the owner, and the handler there
	// may talk both ways. An HTTP/1 server would otherwise read the rest of the body, and drop it,
	// before it sends the head of the response.
	if h.body == nil || h.body.done.Load() || res.StatusCode == http.StatusSwitchingProtocols || res.Request.ProtoMajor != 1 {
		return nil
	}
	if http.NewResponseController(h.w).EnableFullDuplex() == nil {
		// The connection is not used again, as net/http panics in it if the rest of the body ends
		// after the handler.
		res.Header.Set("Connection", "close")
		h.both = true
	}
	return nil
}

// restore makes the headers that were set around Route those of the response, but for the owner's.
// Handlers outside of Route may have set the same headers here as there, and ReverseProxy would
// send both; and after an informational response, such as 100, it has dropped all of them.
func (h *hop) restore(owners http.Header) {
	header := h.w.Header()
	for name, values := range h.had {
		if _, ok := owners[name]; ok {
			delete(header, name)
		} else {
			header[name] = values
		}
	}
}

// lingering is the time for an answered client to send the rest of its body. An HTTP/1 connection
// that is closed before may take the answer with it.
const lingering = 2 * time.Second

// hangUp makes sure that the transport reads no more of a body that the owner did not want.
// net/http does not expect it from a handler that has returned, and may wait for ever. It lets in
// bytes on their way for a moment, or the client might not see the response.
func (h *hop) hangUp() {
	if !h.both || h.body.done.Load() {
		return
	}
	rc := http.NewResponseController(h.w)
	if rc.SetReadDeadline(time.Unix(1, 0)) == nil { // ends a Read that is under way
		h.body.end()
		_ = rc.SetReadDeadline(time.Now().Add(lingering))
	}
}

// guard is a body that knows whether any code has read from it, and whether it has ended.
type guard struct {
	body   io.ReadCloser
	breaks bool // a Close ends a Read that is under way: HTTP/2
	state  atomic.Uint32
	done   atomic.Bool
	closed atomic.Bool
	err    atomic.Pointer[error] // the error that has ended it; nil: its end

	reading sync.Mutex // one Read, or end
}

const (
	untouched uint32 = iota
	touched
	sealed
)

func (g *guard) Read(b []byte) (int, error) {
	g.reading.Lock()
	defer g.reading.Unlock()
	if !g.state.CompareAndSwap(untouched, touched) && g.state.Load() == sealed || g.closed.Load() {
		return 0, http.ErrBodyReadAfterClose
	}
	n, err := g.body.Read(b)
	if err != nil {
		g.done.Store(true)
		if err != io.EOF && !g.closed.Load() { // else it was ended here
			g.err.Store(&err)
		}
	}
	return n, err
}

// Close ends a Read that is under way, if the body can do that, and lets no other follow: the owner
// has answered, and wants no more. The body itself stays open where nothing was read of it, as the
// request may still be served here.
func (g *guard) Close() error {
	g.closed.Store(true)
	if g.breaks && g.state.Load() == touched {
		return g.body.Close()
	}
	return nil
}

// reopen undoes a Close, for a request that was not sent, and reports whether it could: nothing has
// been read.
func (g *guard) reopen() bool {
	g.reading.Lock()
	defer g.reading.Unlock()
	if g.state.Load() != untouched {
		return false
	}
	g.closed.Store(false)
	return true
}

// seal reports whether the body is unread as yet; then it can not be read any more by way of this
// guard.
func (g *guard) seal() bool { return g.state.CompareAndSwap(untouched, sealed) }

// end waits for a Read that is under way, and lets no other follow.
func (g *guard) end() {
	g.reading.Lock()
	defer g.reading.Unlock()
	g.state.Store(sealed)
}

// buffers are for copying responses.
type buffers struct{ pool sync.Pool }

const bufferSize = 32 << 10

func (b *buffers) Get() []byte {
	if p, ok := b.pool.Get().(*[bufferSize]byte); ok {
		return p[:]
	}
	return make([]byte, bufferSize)
}

func (b *buffers) Put(p []byte) { b.pool.Put((*[bufferSize]byte)(p)) }
