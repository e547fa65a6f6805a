package middleware_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/middleware"
)

func TestIdempotentKeepsCookiesIfAsked(t *testing.T) {
	s := open(t, 1, nil, &middleware.IdempotentOptions{KeepCookies: true}, func(_ int64, w http.ResponseWriter, _ *http.Request) {
		http.SetCookie(w, &http.Cookie{Name: "a", Value: "1"})
		w.WriteHeader(http.StatusNoContent)
	})
	s.post(0, "")
	if r := s.post(0, ""); !r.replayed() || r.Header.Get("Set-Cookie") != "a=1" {
		t.Error(r.Header)
	}
}

func TestIdempotentAnswersThatAreNotFinal(t *testing.T) {
	for status, final := range map[int]bool{200: true, 400: true, 404: true, 409: true, 408: false, 423: false, 425: false, 429: false, 499: false, 500: true, 502: false, 503: false, 504: false} {
		s := open(t, 2, nil, nil, func(n int64, w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(status)
			fmt.Fprint(w, n)
		})
		s.post(0, "x").is(t, status, "1")
		s.post(0, "another").is(t, http.StatusUnprocessableEntity, "") // the key belongs to the request all the same
		if r := s.post(1, "x"); final {
			r.is(t, status, "1")
		} else {
			r.is(t, status, "2")
		}
	}
	s := open(t, 1, nil, &middleware.IdempotentOptions{Final: func(status int) bool { return status == 500 }},
		func(n int64, w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(http.StatusInternalServerError)
			fmt.Fprint(w, n)
		})
	s.post(0, "x").is(t, http.StatusInternalServerError, "1")
	s.post(0, "x").is(t, http.StatusInternalServerError, "1")
}

func TestIdempotentPanic(t *testing.T) {
	for name, value := range map[string]any{"some value": "mine", "abort": http.ErrAbortHandler} {
		for _, final := range []bool{false, true} {
			s := open(t, 1, nil, &middleware.IdempotentOptions{Final: func(status int) bool { return final || status < 500 }},
				func(n int64, w http.ResponseWriter, r *http.Request) {
					if n == 1 {
						io.WriteString(w, "half of it")
						panic(value)
					}
					fmt.Fprint(w, n)
				})
			if r := s.post(0, "x"); r.err == nil {
				t.Errorf("%s: got %q", name, r.body)
			}
			if final {
				s.post(0, "x").is(t, http.StatusConflict, middleware.TypeOutcome)
			} else {
				s.post(0, "x").is(t, http.StatusOK, "2")
			}
			idle(t, s.nodes[0])
		}
	}
}

func TestIdempotentAnswerTooLarge(t *testing.T) {
	s := open(t, 1, nil, &middleware.IdempotentOptions{MaxAnswer: 10}, func(_ int64, w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusCreated)
		io.WriteString(w, "1234567890")
		io.Copy(w, r.Body)
	})
	s.post(0, "1").is(t, http.StatusCreated, "12345678901")
	s.post(0, "1").is(t, http.StatusConflict, middleware.TypeNotKept)
	exchange(t.Context(), s.servers[0], "POST", "/", "", "Idempotency-Key", "fits").is(t, http.StatusCreated, "1234567890")
	exchange(t.Context(), s.servers[0], "POST", "/", "", "Idempotency-Key", "fits").is(t, http.StatusCreated, "1234567890")
	if s.runs.Load() != 2 {
		t.Errorf("%d runs", s.runs.Load())
	}
}

func TestIdempotentFlush(t *testing.T) {
	finish := make(chan struct{})
	s := open(t, 1, nil, nil, func(_ int64, w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, "one, ")
		if err := http.NewResponseController(w).Flush(); err != nil {
			t.Error(err)
		}
		<-finish
		io.WriteString(w, "two")
		if _, _, err := http.NewResponseController(w).Hijack(); !errors.Is(err, http.ErrNotSupported) {
			t.Error(err)
		}
	})
	r, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, s.servers[0].URL+"/pay?a=b", http.NoBody)
	r.Host = "shop"
	r.Header.Set("Idempotency-Key", "k")
	resp, err := s.servers[0].Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b := make([]byte, 5)
	if _, err := io.ReadFull(resp.Body, b); err != nil || string(b) != "one, " {
		t.Errorf("%q, %v, while the handler goes on", b, err)
	}
	close(finish)
	if b, err := io.ReadAll(resp.Body); err != nil || string(b) != "two" {
		t.Errorf("%q, %v", b, err)
	}
	s.post(0, "").is(t, http.StatusOK, "one, two")
}

// Once flushed an answer goes to a client that may go away. The handler does not hear of that, and
// does not stop half-way: a repeated request is to get all of it.
func TestIdempotentFlushToAClientThatLeaves(t *testing.T) {
	gone := make(chan struct{})
	s := open(t, 1, nil, &middleware.IdempotentOptions{MaxAnswer: 1 << 20}, func(_ int64, w http.ResponseWriter, r *http.Request) {
		rc := http.NewResponseController(w)
		for i := range 300 {
			if i == 1 {
				<-gone
			}
			if _, err := fmt.Fprintf(w, "%d %s\n", i, strings.Repeat("x", 1000)); err != nil {
				t.Errorf("line %d: %v", i, err)
				return
			}
			if err := rc.Flush(); err != nil {
				t.Errorf("flush %d: %v", i, err)
				return
			}
		}
	})
	ctx, leave := context.WithCancel(t.Context())
	r, _ := http.NewRequestWithContext(ctx, http.MethodPost, s.servers[0].URL+"/pay?a=b", http.NoBody)
	r.Host = "shop"
	r.Header.Set("Idempotency-Key", "k")
	resp, err := s.servers[0].Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	leave()
	_, _ = io.Copy(io.Discard, resp.Body)
	_ = resp.Body.Close()
	close(gone)
	got := s.post(0, "")
	got.is(t, http.StatusOK, "\n299 x")
	if !got.replayed() || s.runs.Load() != 1 {
		t.Errorf("replayed %v, %d runs", got.replayed(), s.runs.Load())
	}
}
