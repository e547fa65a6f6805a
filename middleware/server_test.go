package middleware_test

import (
	"context"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// limit is the longest wait of a test for an event that must happen.
const limit = 30 * time.Second

func from[T any](t *testing.T, ch <-chan T, what string) T {
	t.Helper()
	select {
	case v := <-ch:
		return v
	case <-time.After(limit):
		t.Fatalf("%s: waited in vain", what)
		panic("not reached")
	}
}

// serving starts a server that is closed when the test ends. It says nothing of panics.
func serving(t testing.TB, h http.Handler) *httptest.Server {
	s := httptest.NewUnstartedServer(h)
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.Start()
	t.Cleanup(s.Close)
	return s
}

// A reply is the answer that a client gets, or the error.
type reply struct {
	*http.Response
	body string
	err  error
}

// exchange sends a request; headers are names and values by turns.
func exchange(ctx context.Context, s *httptest.Server, method, path, body string, headers ...string) reply {
	return exchangeBy(ctx, s.Client(), method, s.URL+path, body, headers...)
}

func exchangeBy(ctx context.Context, client *http.Client, method, target, body string, headers ...string) reply {
	var from io.Reader
	if body != "" {
		from = strings.NewReader(body)
	}
	r, err := http.NewRequestWithContext(ctx, method, target, from)
	if err != nil {
		return reply{err: err}
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header[headers[i]] = append(r.Header[headers[i]], headers[i+1])
	}
	if h := r.Header["Host"]; h != nil {
		r.Host = h[0]
	}
	resp, err := client.Do(r)
	if err != nil {
		return reply{err: err}
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return reply{resp, string(b), err}
}
