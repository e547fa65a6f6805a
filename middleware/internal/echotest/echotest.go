// Package echotest has the tests that the adapters for both versions of echo share.
package echotest

import (
	"errors"
	"fmt"
	"io"
	"log"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/middleware"
	"github.com/holdfast-go/holdfast/middleware/routertest"
)

// ErrSold is an error of the service's own: its error handler answers it with 409 and
// {"error":"sold"}.
var ErrSold = errors.New("sold")

// A Context has the methods that the contexts of both versions share.
type Context interface {
	Request() *http.Request
	Param(name string) string
	Bind(to any) error
	String(status int, text string) error
	JSON(status int, value any) error
	NoContent(status int) error
	Redirect(status int, url string) error
	Blob(status int, contentType string, b []byte) error
	Stream(status int, contentType string, r io.Reader) error
}

// Suite returns the suite of a version with the answers that are the same in both, and more. The
// caller sets the rest: Error, Stream and the functions that mount.
func Suite[C Context, H ~func(C) error](more map[string]routertest.Answer[H]) routertest.Suite[H] {
	all := map[string]routertest.Answer[H]{
		"JSON": {Handler: func(c C) error { return c.JSON(http.StatusCreated, map[string]int{"n": 1}) }, Status: 201, Body: `{"n":1}`},
		"Redirect": {Handler: func(c C) error { return c.Redirect(http.StatusSeeOther, "/orders/8") }, Status: 303,
			Header: http.Header{"Location": {"/orders/8"}}},
		"Blob":           {Handler: func(c C) error { return c.Blob(http.StatusOK, "text/csv", []byte("a,b")) }, Status: 200, Body: "a,b"},
		"Stream":         {Handler: func(c C) error { return c.Stream(200, "text/plain", strings.NewReader("s")) }, Status: 200, Body: "s"},
		"own error":      {Handler: func(C) error { return fmt.Errorf("order: %w", ErrSold) }, Status: 409, Body: `{"error":"sold"}`},
		"other error":    {Handler: func(C) error { return errors.New("secret") }, Status: 500, Body: `{"message":"Internal Server Error"}`},
		"no content":     {Handler: func(c C) error { return c.NoContent(http.StatusNoContent) }, Status: 204},
		"nothing":        {Handler: func(C) error { return nil }, Status: 200},
		"error too late": {Handler: func(c C) error { _ = c.String(http.StatusOK, "all"); return ErrSold }, Status: 200, Body: "all"},
	}
	maps.Copy(all, more)
	return routertest.Suite[H]{
		Text: func(f func(*http.Request, string) (int, string)) H {
			return func(c C) error { return c.String(f(c.Request(), c.Param("id"))) }
		},
		Answers: all,
	}
}

// BindThatFails binds a number to a string.
func BindThatFails[C Context](c C) error {
	var order struct{ Units string }
	return c.Bind(&order)
}

// Refuse answers requests with the parameter refuse itself.
func Refuse(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Has("refuse") {
			w.WriteHeader(http.StatusTeapot)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// Errors checks the errors that middlewares around the adapter are returned, which logged tells and
// forgets: one that Is ErrSold where the handler ran at "/", nil where Refuse has answered.
func Errors(t *testing.T, h http.Handler, logged func() []error) {
	t.Helper()
	for target, status := range map[string]int{"/": http.StatusConflict, "/?refuse": http.StatusTeapot} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, target, nil))
		if errs := logged(); w.Code != status || len(errs) != 1 || errors.Is(errs[0], ErrSold) != (target == "/") {
			t.Errorf("%s: %d %s, %v", target, w.Code, w.Body, errs)
		}
	}
}

// EmptySegment checks a service with Serialize at "/orders/:id/payment": a request without an order
// is the client's mistake.
func EmptySegment(t *testing.T, h http.Handler) {
	t.Helper()
	for target, status := range map[string]int{"/orders/7/payment": http.StatusOK, "/orders//payment": http.StatusBadRequest} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, target, nil))
		if w.Code != status {
			t.Errorf("%s: %d %s", target, w.Code, w.Body)
		}
	}
}

// Before checks a service with Idempotent, whose handler at "/" writes nothing, but has a hook that
// sets X-Before before the answer is written.
func Before(t *testing.T, h http.Handler) {
	t.Helper()
	for range 2 {
		w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/", nil)
		r.Header.Set("Idempotency-Key", "k")
		if h.ServeHTTP(w, r); w.Code != http.StatusOK || w.Header().Get("X-Before") != "set" {
			t.Errorf("%d %s, %v", w.Code, w.Body, w.Header())
		}
	}
}

// Wrap puts a ResponseWriter of its own in the place of another.
func Wrap(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { next.ServeHTTP(wrapped{w}, r) })
}

type wrapped struct{ http.ResponseWriter }

func (w wrapped) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// TakeOver answers with 299 by the connection itself.
func TakeOver(w http.ResponseWriter) error {
	conn, rw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return err
	}
	fmt.Fprint(rw, "HTTP/1.1 299 Mine\r\nContent-Length: 0\r\n\r\n")
	return errors.Join(rw.Flush(), conn.Close())
}

// Hijack checks a service with TakeOver at "/": its server has nothing to complain of.
func Hijack(t *testing.T, h http.Handler) {
	t.Helper()
	var complaints strings.Builder
	ended := make(chan struct{}) // a server does not await it that has given its connection away
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer close(ended)
		h.ServeHTTP(w, r)
	}))
	s.Config.ErrorLog = log.New(&complaints, "", 0)
	s.Start()
	res, err := s.Client().Post(s.URL, "", nil)
	if err != nil || res.StatusCode != 299 {
		t.Errorf("%v, %v", res, err)
	}
	if err == nil {
		res.Body.Close()
	}
	<-ended
	s.Client().CloseIdleConnections()
	s.Close()
	if complaints.Len() > 0 {
		t.Errorf("%s", &complaints)
	}
}

// Users checks a service with Idempotent, whose scope is the user that authentication keeps in
// Echo's context. Its handler at "/" answers with the user.
func Users(t *testing.T, h http.Handler) {
	t.Helper()
	for i := range 2 {
		for _, user := range []string{"adam", "eve"} {
			w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/", nil)
			r.Header.Set("Idempotency-Key", "k")
			r.SetBasicAuth(user, "")
			h.ServeHTTP(w, r)
			if replayed := w.Header().Get(middleware.ReplayedHeader) != ""; w.Body.String() != user || replayed != (i == 1) {
				t.Errorf("%s, %d: %d %s, replayed %v", user, i, w.Code, w.Body, replayed)
			}
		}
	}
}
