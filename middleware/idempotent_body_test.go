package middleware_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/middleware"
)

// A middleware further out that reads a part of the body hides the difference of two payments. One
// that puts another body in its place, as one that unpacks does, may say nothing of its length.
func TestIdempotent_BodyThatWasReadInPart(t *testing.T) {
	readSome := func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if _, err := io.ReadFull(r.Body, make([]byte, 5)); err != nil {
				t.Error(err)
			}
			next.ServeHTTP(w, r)
		})
	}
	unpack := func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			b, err := io.ReadAll(r.Body)
			if err != nil {
				t.Error(err)
			}
			r.Body = io.NopCloser(bytes.NewReader(b[:5]))
			next.ServeHTTP(w, r)
		})
	}
	limited := func(next http.Handler) http.Handler {
		return http.MaxBytesHandler(http.MaxBytesHandler(next, 1000), 2000)
	}
	c := start(t, fallback.NewMemory(), nil)
	serialize := middleware.Serialize(c, byOrder, nil)
	for name, x := range map[string]struct {
		around func(http.Handler) http.Handler
		status int
	}{
		"untouched":                {func(h http.Handler) http.Handler { return h }, http.StatusOK},
		"limited":                  {limited, http.StatusOK},
		"in Serialize":             {serialize, http.StatusOK},
		"unpacked":                 {unpack, http.StatusOK},
		"unpacked, limited":        {func(h http.Handler) http.Handler { return unpack(limited(h)) }, http.StatusOK},
		"read":                     {readSome, http.StatusInternalServerError},
		"read, limited":            {func(h http.Handler) http.Handler { return limited(readSome(h)) }, http.StatusInternalServerError},
		"limited, read":            {func(h http.Handler) http.Handler { return readSome(limited(h)) }, http.StatusInternalServerError},
		"read, and in Serialize":   {func(h http.Handler) http.Handler { return readSome(serialize(h)) }, http.StatusInternalServerError},
		"read inside of Serialize": {func(h http.Handler) http.Handler { return serialize(readSome(h)) }, http.StatusInternalServerError},
	} {
		for protocol, serve := range servers {
			t.Run(name+" "+protocol, func(t *testing.T) {
				s := serve(t, x.around(middleware.Idempotent(c, middleware.NewMemoryStore(nil), middleware.Unscoped, nil)(http.HandlerFunc(
					func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "paid") }))))
				r := request(t, s, "1")
				r.Header.Set("Idempotency-Key", "k")
				r.Body, r.ContentLength = io.NopCloser(strings.NewReader("iban=DE02")), 9
				if res := do(t, s, r); res.StatusCode != x.status {
					t.Errorf("%d %s", res.StatusCode, res.body)
				}
			})
		}
	}
}

// A limit further out is the one that a refusal names.
func TestIdempotent_NamesTheLimitOfBodies(t *testing.T) {
	t.Parallel()
	c := start(t, fallback.NewMemory(), nil)
	for _, length := range []int64{11, -1} {
		var cause error
		s := serve(t, http.MaxBytesHandler(middleware.Idempotent(c, middleware.NewMemoryStore(nil), middleware.Unscoped, &middleware.IdempotentOptions{
			Problem: func(w http.ResponseWriter, r *http.Request, p middleware.Problem) {
				cause = p.Err
				middleware.WriteProblem(w, r, p)
			},
		})(nil), 10))
		r := request(t, s, "1")
		r.Header.Set("Idempotency-Key", "k")
		r.Body, r.ContentLength = io.NopCloser(strings.NewReader("hello world")), length
		res := do(t, s, r)
		p := problemOf(t, res)
		if e, ok := errors.AsType[*http.MaxBytesError](cause); !ok || e.Limit != 10 || p.Status != 413 || p.Type != middleware.TypeTooLarge ||
			!strings.Contains(p.Detail, " 10 bytes") {
			t.Errorf("length %d: %s, %v", length, res.body, cause)
		}
	}
}
