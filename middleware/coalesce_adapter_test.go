package middleware_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/holdfast-go/holdfast/middleware"
)

// Adapters for other routers wrap a new handler for each request. The requests share a run all the
// same.
func TestCoalesce_HandlerWrappedPerRequest(t *testing.T) {
	const n = 20
	release := make(chan struct{})
	once := sync.OnceFunc(func() { close(release) })
	var runs atomic.Int64
	joined := make(chan struct{}, n)
	coalesce := middleware.Coalesce(nil, nil, nil)
	s := serving(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var once sync.Once
		ctx := asking{r.Context(), func() { once.Do(func() { joined <- struct{}{} }) }}
		coalesce(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			<-release
			fmt.Fprint(w, runs.Add(1))
		})).ServeHTTP(w, r.WithContext(ctx))
	}))
	t.Cleanup(once)
	replies := make(chan reply, n)
	for range n {
		go func() { replies <- exchange(t.Context(), s, "GET", "/", "") }()
	}
	for range n {
		from(t, joined, "a request that leads or waits")
	}
	once()
	for range n {
		from(t, replies, "an answer").is(t, http.StatusOK, "1")
	}
	if runs.Load() != 1 {
		t.Errorf("%d runs", runs.Load())
	}
}

// One Coalesce may be around handlers of its own several times: on a router and on one of its
// routes.
func TestCoalesce_Nested(t *testing.T) {
	coalesce := middleware.Coalesce(nil, nil, nil)
	h := coalesce(coalesce(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "done") })))
	s := serving(t, h)
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	exchange(ctx, s, "GET", "/", "").is(t, http.StatusOK, "done")
}

// Two servers, such as a public one and one for administrators, do not share runs, whatever a
// client says in Host.
func TestCoalesce_ServersApart(t *testing.T) {
	release := make(chan struct{})
	once := sync.OnceFunc(func() { close(release) })
	entered := make(chan string, 2)
	coalesce := middleware.Coalesce(nil, nil, nil)
	handler := func(name string) http.Handler {
		return coalesce(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			entered <- name
			<-release
			fmt.Fprint(w, name)
		}))
	}
	public, admin := serving(t, handler("public")), serving(t, handler("admin"))
	t.Cleanup(once)
	a, b := make(chan reply, 1), make(chan reply, 1)
	go func() { a <- exchange(t.Context(), admin, "GET", "/users", "", "Host", "admin") }()
	from(t, entered, "the run for the administrator")
	go func() { b <- exchange(t.Context(), public, "GET", "/users", "", "Host", "admin") }()
	from(t, entered, "a run of its own for the public request")
	once()
	from(t, a, "an answer").is(t, http.StatusOK, "admin")
	from(t, b, "an answer").is(t, http.StatusOK, "public")
}

// Two clients that show different certificates do not share runs, nor does one that shows none.
func TestCoalesce_CertificatesApart(t *testing.T) {
	certificates := []string{"", "adam's", "eve's"}
	release, entered := make(chan struct{}), make(chan string, len(certificates))
	h := middleware.Coalesce(nil, nil, nil)(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		for _, c := range r.TLS.PeerCertificates {
			entered <- string(c.Raw)
		}
		if len(r.TLS.PeerCertificates) == 0 {
			entered <- ""
		}
		<-release
	}))
	var all sync.WaitGroup
	for _, c := range certificates {
		r := httptest.NewRequest(http.MethodGet, "/me", nil)
		r.TLS = &tls.ConnectionState{}
		if c != "" {
			r.TLS.PeerCertificates = []*x509.Certificate{{Raw: []byte(c)}}
		}
		all.Go(func() { h.ServeHTTP(httptest.NewRecorder(), r) })
		if got := from(t, entered, "a run for the certificate "+c); got != c {
			t.Errorf("%q got the run of %q", c, got)
		}
	}
	close(release)
	all.Wait()
}
