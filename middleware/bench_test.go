package middleware_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"sync"
	"testing"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/middleware"
)

// blank is a ResponseWriter that costs nothing.
type blank struct{ h http.Header }

func (b blank) Header() http.Header         { return b.h }
func (b blank) WriteHeader(int)             {}
func (b blank) Write(p []byte) (int, error) { return len(p), nil }

var nothing = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })

// looks is a handler that wants to know of a loss: it costs more than the lock.
var looks = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
	if r.Context().Err() != nil {
		panic(r.Context().Err())
	}
	nothing(w, r)
})

// The price of Serialize where the key is this node's: the difference between the two.
func BenchmarkSerialize(b *testing.B) {
	nodes := cluster(b, 1, func(*node) http.Handler { return nothing })
	c := nodes[0].c
	key := middleware.Key("order", middleware.PathValue("id"))
	for _, x := range []struct {
		name string
		h    http.Handler
	}{{"bare", nothing}, {"serialized", middleware.Serialize(c, key, nil)(nothing)}, {"looks at its context", middleware.Serialize(c, key, nil)(looks)}} {
		b.Run(x.name, func(b *testing.B) {
			r := httptest.NewRequestWithContext(b.Context(), http.MethodPost, "/orders/42", nil)
			r.SetPathValue("id", "42")
			w := blank{http.Header{}}
			before := c.Stats().Granted[coord.PathOwn]
			b.ReportAllocs()
			for b.Loop() {
				x.h.ServeHTTP(w, r)
			}
			if x.name != "bare" && c.Stats().Granted[coord.PathOwn]-before < uint64(b.N) {
				b.Errorf("locks were not from memory: %v", c.Stats().Granted)
			}
		})
	}
}

// pool spares the bare proxy the allocations that Route spares, too.
type pool struct{ sync.Pool }

func (p *pool) Get() []byte {
	if b, ok := p.Pool.Get().(*[]byte); ok {
		return *b
	}
	return make([]byte, 32<<10)
}

func (p *pool) Put(b []byte) { p.Pool.Put(&b) }

// A request that goes on to another node, by Route and by a ReverseProxy that knows where to.
func BenchmarkRoute(b *testing.B) {
	nodes := cluster(b, 2, func(x *node) http.Handler { return x.routed(nothing) })
	x, other := nodes[0], nodes[1]
	tr := middleware.NewTransport()
	defer tr.CloseIdleConnections()
	base, err := url.Parse(other.URL)
	if err != nil {
		b.Fatal(err)
	}
	proxy := serve(b, &httputil.ReverseProxy{Rewrite: func(p *httputil.ProxyRequest) {
		p.SetURL(base)
		p.SetXForwarded()
		p.Out.Header[middleware.HopHeader] = []string{"1"}
	}, Transport: tr, FlushInterval: -1, BufferPool: &pool{}})
	target := "/?order=" + orderOf(b, x, other)
	for _, s := range []struct {
		name string
		*httptest.Server
	}{{"no hop", other.Server}, {"ReverseProxy", proxy}, {"Route", x.Server}} {
		b.Run(s.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				res, err := s.Client().Post(s.URL+target, "", nil)
				if err != nil {
					b.Fatal(err)
				}
				io.Copy(io.Discard, res.Body)
				res.Body.Close()
			}
		})
	}
}

// The price of Serialize without a cluster: turns under a hold that lingers.
func BenchmarkSerializeAlone(b *testing.B) {
	c := start(b, fallback.NewMemory(), nil)
	h := middleware.Serialize(c, middleware.Key("k"), nil)(nothing)
	r := httptest.NewRequestWithContext(b.Context(), http.MethodPost, "/", nil)
	w := blank{http.Header{}}
	b.ReportAllocs()
	for b.Loop() {
		h.ServeHTTP(w, r)
	}
}
