package middleware

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/internal/unit"
)

// HopHeader is the header that [Route] adds to a request that it forwards. Such a request is served
// where it arrives: so there is one hop at most, even if two nodes take each other for the owner.
// Its value is made of the ID of a node, and Route takes the header off a request that has another
// one. A handler inside of Route sees "1" if a node has forwarded the request. That tells of the
// way, and proves nothing: IDs are in logs and on the page of package debug, so that a client that
// has read one can send the header. Its request is then served where it arrives, and that is all.
// Do not believe X-Forwarded-For or the like because of it.
const HopHeader = "Holdfast-Hop"

// RouteOptions are the options of [Route]. The zero value of each field means its default, and a
// nil *RouteOptions means all defaults.
type RouteOptions struct {
	// Methods are those that are forwarded. Default: all.
	Methods []string

	// URL returns the base URL of a node: scheme http or https, host and port, no path. It must be
	// quick. If it returns an error, the request is served here. Default: NodeInfo.Service, as
	// Cluster.Service of that node says, has to be such a URL.
	URL func(coord.NodeInfo) (*url.URL, error)

	// Transport makes the requests. Default: one of its own, made by [NewTransport], which speaks
	// the HTTP version that the client speaks. Give one to close its idle connections when the
	// process ends, to let several Routes share it, or for TLS between the nodes. An
	// [http.Transport] speaks the versions in its Protocols: without HTTP/2 gRPC gets 505 on the
	// way.
	Transport http.RoundTripper

	// Avoid is the time until an owner that could not be connected to is tried again: its requests
	// are served here. Then one request tries. Default 2 s; at least 1 ms. Negative: each request
	// tries.
	Avoid time.Duration

	// RetryAfter is the Retry-After of answers to requests that failed on the way, in whole
	// seconds, rounded up. Default: nothing, for the owner may have executed the request.
	RetryAfter time.Duration

	// Problem answers a request that was neither forwarded nor served. It may be called
	// concurrently. Default [WriteProblem].
	Problem func(w http.ResponseWriter, r *http.Request, p Problem)

	// Logger gets a record for each owner that begins to be avoided, and for each request that
	// failed on the way. It gets one if the servers close idle connections before the transport
	// does. Nil: silent.
	Logger *slog.Logger
}

// filled returns a copy with the defaults filled in.
func (o *RouteOptions) filled() RouteOptions {
	f := RouteOptions{}
	if o != nil {
		f = *o
	}
	f.Methods = slices.Clone(f.Methods)
	setDefault(&f.Avoid, 2*time.Second)
	if f.Transport == nil {
		f.Transport = NewTransport()
	}
	return f
}

func serviceURL(n coord.NodeInfo) (*url.URL, error) {
	if n.Service == "" {
		return nil, errNoService
	}
	return url.Parse(n.Service)
}

var errNoService = errors.New("middleware: the node has no Cluster.Service")

func checkURL(u *url.URL) error {
	if u == nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil ||
		u.Path != "" && u.Path != "/" || u.RawQuery != "" || u.Fragment != "" {
		return fmt.Errorf("middleware: %q is not a base URL such as http://10.0.0.3:8080", u)
	}
	return nil
}

// router is the state that the requests of one Route share.
type router struct {
	c       *coord.Coordinator
	key     KeyFunc
	opts    RouteOptions
	proxy   httputil.ReverseProxy
	traced  bool // the transport is known to say when it has got a connection
	avoided avoided
	marks   marks
	targets targets
	checked atomic.Bool // the idle times were compared
	refusals
}

// Route sends each request to the node that owns its key, see [coord.Coordinator.Owner], and so
// makes the locks of [Serialize] local where the handler runs. Put it outside of the others of this
// package, with the same KeyFunc. All nodes serve the same program; each names its URL in
// Cluster.Service.
//
// The owner's handler gets the request as it came to this process: the same Host, path and query as
// the client sent them, headers, body and trailers. The client's address is appended to
// X-Forwarded-For, and X-Forwarded-Proto added if there is none. RemoteAddr and TLS are those of
// this node: where clients are known by a certificate, let a proxy say so in a header. An offer to
// upgrade to h2c is not passed on. Middlewares outside of Route run on both nodes; of response
// headers that both have set, the owner's are sent. Streams, upgrades (WebSocket), trailers and
// informational responses pass through. Upgraded connections last until one side ends them, or the
// owner is found dead. The handler sees the HTTP version that the client speaks: accept HTTP/2 at
// Cluster.Service as well where clients use it, such as gRPC (see [Transport]).
//
// It never decides about exclusion, so that a wrong guess costs time only. A request is served here
// if this node is the owner, or if the owner is unknown or leaving, or has no URL. It is also
// served here if the owner could not be connected to a moment ago, or a handler further out
// holds the key's lock. So are requests that were forwarded before, and those that cannot be sent
// on as they came: a CONNECT; one without a path; one with a body that was parsed as a form; one
// with a Connection header that would strip others on the way.
//
// An owner that stands still, or is cut off from the arbiter, keeps its connections. Route gives up
// on what was forwarded to it when it is found dead, as [coord.Coordinator.NodeContext] tells: some
// 3 s later by the default of Cluster.Takeover. That counts as a failure on the way, as below, and
// nothing is executed again. A response that has begun is cut off.
//
// If the owner cannot be connected to, the request is served here as well, unless some of its body
// was read meanwhile. After that, a failure is answered with 502, as the owner may have got it;
// [http.Transport] retries by itself only the requests that it calls idempotent. No request runs
// twice otherwise. A failure of the client, or of a limit on this node, is told as such: 413 for a
// body that is too large; 408 or 400 for one that cannot be read; 504 if the request's context has
// a limit that ends. Requests without a usable key are answered with 400. The request of a client
// that has gone is aborted.
//
// A node believes X-Forwarded-For and all other headers from any host that reaches its port, as
// without Route; keep that port to those you trust, or a proxy in front of it that sets them.
//
// It panics if c or key is nil or the options make no sense.
func Route(c *coord.Coordinator, key KeyFunc, opts *RouteOptions) func(http.Handler) http.Handler {
	if c == nil || key == nil {
		panic("middleware: Route needs a coordinator and a KeyFunc")
	}
	s := &router{c: c, key: key, opts: opts.filled(), marks: marks{c: c}, targets: targets{c: c}}
	if err := errors.Join(checkMethods("RouteOptions.Methods", s.opts.Methods),
		unit.Check("middleware: RouteOptions.Avoid", s.opts.Avoid, time.Millisecond, "2 * time.Second")); err != nil {
		panic(err.Error())
	}
	s.refusals = newRefusals(s.opts.Problem, s.opts.Logger, s.opts.RetryAfter)
	switch s.opts.Transport.(type) {
	case *Transport, *http.Transport:
		s.traced = true
	}
	s.proxy = httputil.ReverseProxy{
		Rewrite: rewrite, ModifyResponse: respond, Transport: s, FlushInterval: -1, BufferPool: &buffers{},
		ErrorLog:     slog.NewLogLogger(s.logger.Handler(), slog.LevelWarn),
		ErrorHandler: func(_ http.ResponseWriter, r *http.Request, err error) { hopOf(r.Context()).err = err },
	}
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { s.serve(next, w, r) })
	}
}

func (s *router) serve(next http.Handler, w http.ResponseWriter, r *http.Request) {
	if admitted := s.marks.admit(r); admitted != r {
		defer keepForm(r, admitted)
		r = admitted
	}
	out := withoutH2C(r)
	if !s.forwardable(out) {
		next.ServeHTTP(w, r)
		return
	}
	key, err := s.key.of(r)
	if err != nil && !errors.Is(err, ErrSkip) {
		s.refuse(w, r, keyProblem(err))
		return
	}
	if err == nil && heldBy(r.Context(), s.c, key) == nil {
		node, to, base := s.owner(key)
		if base != nil && !s.checked.Load() && !s.checked.Swap(true) {
			s.checkIdle(r)
		}
		if base != nil && s.forward(w, out, node, to, base) {
			return
		}
	}
	next.ServeHTTP(w, r)
}

// checkIdle warns if the owner may close an idle connection before this node does. All nodes are
// the same program, so the owner's server is like the one that the request came to.
func (s *router) checkIdle(r *http.Request) {
	transport, ok := s.opts.Transport.(*http.Transport)
	if t, own := s.opts.Transport.(*Transport); own {
		t.once.Do(t.prepare)
		transport, ok = t.Transport, true
	}
	server, found := r.Context().Value(http.ServerContextKey).(*http.Server)
	if !ok || !found || transport.DisableKeepAlives {
		return
	}
	idle := server.IdleTimeout
	if idle == 0 {
		idle = server.ReadTimeout
	}
	if idle > 0 && (transport.IdleConnTimeout == 0 || transport.IdleConnTimeout >= idle) {
		s.logger.Warn("holdfast: a server that closes idle connections before the transport does loses requests on the way to their owner (502): "+
			"let Server.IdleTimeout be longer than Transport.IdleConnTimeout", "server", idle, "transport", transport.IdleConnTimeout)
	}
}

// forwardable reports whether the request, which was admitted, may go to another node at all.
func (s *router) forwardable(r *http.Request) bool {
	if len(s.opts.Methods) > 0 && !slices.Contains(s.opts.Methods, r.Method) {
		return false
	}
	rooted := strings.HasPrefix(r.RequestURI, "/") || strings.HasPrefix(asked(r).Path, "/") // most need not be parsed again
	return rooted && r.Header[HopHeader] == nil && r.Method != http.MethodConnect && !strips(r.Header["Connection"]) && !bodyRead(r)
}

// withoutH2C returns the request without the offer to go on in HTTP/2 ("Upgrade: h2c"), if there is
// one: it was made to this node.
func withoutH2C(r *http.Request) *http.Request {
	if len(r.Header["Upgrade"]) == 0 || upgrades(r.Header["Upgrade"]) {
		return r
	}
	r = r.WithContext(r.Context()) // a copy
	r.Header = r.Header.Clone()
	var connection []string
	for name := range listed(r.Header["Connection"]) {
		if !strings.EqualFold(name, "upgrade") && !strings.EqualFold(name, "http2-settings") {
			connection = append(connection, name)
		}
	}
	delete(r.Header, "Upgrade")
	delete(r.Header, "Http2-Settings")
	delete(r.Header, "Connection")
	if len(connection) > 0 {
		r.Header["Connection"] = []string{strings.Join(connection, ", ")}
	}
	return r
}

// strips reports whether the Connection header names other headers than those that are about the
// connection. A proxy removes the headers that it names, and so a client could remove headers that
// a proxy in front of this node has added.
func strips(connection []string) bool {
	for _, line := range connection {
		for name := range strings.SplitSeq(line, ",") {
			switch strings.ToLower(strings.TrimSpace(name)) {
			case "", "close", "keep-alive", "upgrade", "te", "trailer":
			default:
				return true
			}
		}
	}
	return false
}

// owner returns the node to send requests for the key to, and its URL; nil if they are to be served
// here.
func (s *router) owner(key string) (coord.NodeInfo, *target, *url.URL) {
	n, ok := s.c.Owner(key)
	if !ok || n.Self || n.State != "active" || !s.avoided.try(n.ID, s.opts.Avoid, time.Now()) {
		return n, nil, nil
	}
	to := s.targets.of(n.ID)
	if to == nil { // dead; the ring is about to drop it
		return n, nil, nil
	}
	base, err := s.base(n, to)
	if err != nil {
		s.avoid(n, err)
		return n, nil, nil
	}
	return n, to, base
}

// base returns the base URL of a node.
func (s *router) base(n coord.NodeInfo, to *target) (*url.URL, error) {
	if s.opts.URL == nil {
		return to.service(n)
	}
	base, err := s.opts.URL(n)
	if err == nil {
		err = checkURL(base)
	}
	return base, err
}

func (s *router) avoid(n coord.NodeInfo, err error) {
	if s.avoided.add(n.ID, s.opts.Avoid, time.Now()) {
		s.logger.Warn("holdfast: requests are not forwarded to their owner for a while", "node", n.Name, "service", n.Service,
			"for", s.opts.Avoid, "error", err)
	}
}
