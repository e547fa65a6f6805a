// Package routertest checks an adapter that mounts the middlewares of package [middleware] in a
// router with handlers other than those of net/http. [Run] is for the tests of every adapter, third
// parties' included.
package routertest

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/middleware"
)

// A Middleware is one of net/http.
type Middleware = func(http.Handler) http.Handler

// A Suite is a router with its adapter. H is the type of the router's handlers.
type Suite[H any] struct {
	// Mount returns a router that serves GET and POST of /orders/{id} by h, inside of the
	// middlewares; the first one is outermost. All of that is inside of the router's own middleware
	// that recovers from panics.
	Mount func(where Where, h H, mw ...Middleware) http.Handler

	// Text makes a handler that calls f and answers as f says; f gets the request as the router's
	// handlers have it, and the value of {id}. Error makes one that lets the router answer, as its
	// users do with errors. The router's answer has to contain text.
	Text, Error func(f func(r *http.Request, id string) (status int, text string)) H

	// Stream makes a handler that flushes whenever f has returned a text, until that is empty.
	Stream func(f func(r *http.Request) string) H

	// Answers are handlers as people write them, by name.
	Answers map[string]Answer[H]

	// Bypasses are ways to mount net/http's middlewares that people use in the place of the
	// adapter: a handler in a router. They need not serve, but must not make the middlewares replay
	// an answer that no client got.
	Bypasses map[string]func(h H, mw Middleware) http.Handler
}

// Where says where the middlewares are mounted.
type Where string

// The places to mount a middleware at.
const (
	Route Where = "route"
	Group Where = "group"
	All   Where = "all"
)

// An Answer is a handler's answer to POST /orders/7 with a body in JSON, {"units":3}.
type Answer[H any] struct {
	Handler H
	Status  int
	Body    string      // without blanks around
	Header  http.Header // has to be there; others may be
}

// Run tests the adapter.
func Run[H any](t *testing.T, s Suite[H]) {
	for name, test := range map[string]func(*testing.T){
		"AnswersAreReplayed": s.answers, "Serialize": s.serialize, "OneKeyHoweverWritten": s.encoded, "Panics": s.panics, "Coalesce": s.coalesce, "Streams": s.streams,
		"ClientGone": s.clientGone, "AroundTheAdapter": s.bypasses, "FilesOfForms": s.files,
	} {
		t.Run(name, test)
	}
}

var byOrder = middleware.Key("order", middleware.PathValue("id"))

// locks returns a coordinator that must have no lock in the end.
func locks(t *testing.T) *coord.Coordinator {
	t.Helper()
	c, err := coord.New(t.Context(), fallback.NewMemory(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if s := c.Stats(); s.Locked > 0 || s.Waiting > 0 {
			t.Errorf("%d locks, %d waiters are left", s.Locked, s.Waiting)
		}
		if err := c.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return c
}

func idempotent(t *testing.T) Middleware {
	return middleware.Idempotent(locks(t), middleware.NewMemoryStore(nil), middleware.Unscoped, nil)
}

func serialize(t *testing.T) Middleware { return middleware.Serialize(locks(t), byOrder, nil) }

// post sends POST /orders/7 with an idempotency key.
func post(h http.Handler) *httptest.ResponseRecorder {
	w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/orders/7?a=b", strings.NewReader(`{"units":3}`))
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Idempotency-Key", "k")
	h.ServeHTTP(w, r)
	return w
}

// answers: whatever a handler does to answer, a repeated request gets the same, without a second
// run. So it is with answers by way of the router.
func (s Suite[H]) answers(t *testing.T) {
	all := map[string]Answer[H]{
		"text": {Handler: s.Text(func(_ *http.Request, id string) (int, string) { return http.StatusCreated, "made " + id }), Status: 201, Body: "made 7"},
	}
	for name, a := range s.Answers {
		all[name] = a
	}
	for name, a := range all {
		for _, where := range []Where{Route, Group, All} {
			var runs atomic.Int32
			count := func(next http.Handler) http.Handler {
				return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { runs.Add(1); next.ServeHTTP(w, r) })
			}
			mw := []Middleware{idempotent(t), serialize(t), count}
			if where == All { // before there is a route, there is no {id}
				mw = []Middleware{idempotent(t), count}
			}
			h := s.Mount(where, a.Handler, mw...)
			for i := range 2 {
				w := post(h)
				replayed := w.Header().Get(middleware.ReplayedHeader) != ""
				if w.Code != a.Status || strings.TrimSpace(w.Body.String()) != a.Body || replayed != (i == 1) {
					t.Errorf("%s, %s, %d: %d %q, replayed %v", name, where, i, w.Code, w.Body, replayed)
				}
				for field, values := range a.Header {
					if got := w.Header()[field]; fmt.Sprint(got) != fmt.Sprint(values) {
						t.Errorf("%s, %s, %d: %s: %q, want %q", name, where, i, field, got, values)
					}
				}
			}
			if n := runs.Load(); n != 1 {
				t.Errorf("%s, %s: %d runs", name, where, n)
			}
		}
	}
	h := s.Mount(Route, s.Error(func(_ *http.Request, id string) (int, string) { return http.StatusNotFound, "no order " + id }), idempotent(t))
	first, again := post(h), post(h)
	if first.Code != 404 || again.Code != 404 || !strings.Contains(first.Body.String(), "no order 7") ||
		first.Body.String() != again.Body.String() || again.Header().Get(middleware.ReplayedHeader) == "" {
		t.Errorf("error: %d %s, then %d %s %v", first.Code, first.Body, again.Code, again.Body, again.Header())
	}
}

// bypasses: a request is answered and then replayed as it was answered, or refused; it is never
// replayed empty, nor run again.
func (s Suite[H]) bypasses(t *testing.T) {
	for name, mount := range s.Bypasses {
		runs := 0
		h := mount(s.Error(func(*http.Request, string) (int, string) { runs++; return http.StatusTeapot, "no tea" }), idempotent(t))
		first, again := post(h), post(h)
		if first.Code != http.StatusTeapot || !strings.Contains(first.Body.String(), "no tea") {
			t.Errorf("%s: %d %s", name, first.Code, first.Body)
		}
		same := again.Code == first.Code && again.Body.String() == first.Body.String()
		refused := again.Code == http.StatusConflict && strings.Contains(again.Body.String(), middleware.TypeOutcome)
		if runs != 1 || !same && !refused {
			t.Errorf("%s: a repeated request got %d %q, %d runs", name, again.Code, again.Body, runs)
		}
	}
}
