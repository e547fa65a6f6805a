package middleware_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/middleware"
	"github.com/holdfast-go/holdfast/singleflight"
)

func TestCoalesceFirstClientLeaves(t *testing.T) {
	release := make(chan struct{})
	f := coalesced(t, nil, middleware.CoalesceOptions{}, func(n int64, w http.ResponseWriter, r *http.Request) {
		select {
		case <-release:
		case <-r.Context().Done():
			t.Error("the run was cancelled")
		}
		io.WriteString(w, "all of it")
	})
	ctx, leave := context.WithCancel(t.Context())
	a := f.get(ctx)
	r := from(t, f.entered, "the run")
	from(t, f.arrived, "the first request")
	b := f.get(t.Context())
	from(t, f.arrived, "the second request")
	first := r.Context().Value(http.LocalAddrContextKey)
	if first == nil {
		t.Error("the run does not have the values of the request's context")
	}
	leave()
	if r := from(t, a, "the end"); r.err == nil {
		t.Error("the first one got an answer")
	}
	close(release)
	if r := from(t, b, "the answer"); r.err != nil || r.body != "all of it" || f.runs.Load() != 1 {
		t.Errorf("%v %q, %d runs", r.err, r.body, f.runs.Load())
	}
}

func TestCoalesceAllClientsLeave(t *testing.T) {
	cause := make(chan error, 1)
	f := coalesced(t, nil, middleware.CoalesceOptions{}, func(n int64, w http.ResponseWriter, r *http.Request) {
		if n == 1 {
			<-r.Context().Done()
			cause <- context.Cause(r.Context())
		}
		fmt.Fprint(w, n)
	})
	ctx, leave := context.WithCancel(t.Context())
	f.get(ctx)
	f.get(ctx)
	from(t, f.arrived, "requests")
	from(t, f.arrived, "requests")
	leave()
	if err := from(t, cause, "the end of the run's context"); !errors.Is(err, singleflight.ErrAbandoned) {
		t.Error(err)
	}
	if r := from(t, f.get(t.Context()), "an answer"); r.body != "2" {
		t.Errorf("%q", r.body)
	}
}

// Once the answer is for the first one only, the run ends with its client, although others are
// still there.
func TestCoalesceStreamEndsWithItsClient(t *testing.T) {
	ended, finish := make(chan struct{}), make(chan struct{})
	begin := make(chan struct{})
	f := coalesced(t, nil, middleware.CoalesceOptions{}, func(n int64, w http.ResponseWriter, r *http.Request) {
		if n > 1 {
			<-finish
			return
		}
		<-begin
		http.NewResponseController(w).Flush()
		<-r.Context().Done()
		close(ended)
	})
	ctx, leave := context.WithCancel(t.Context())
	f.get(ctx)
	from(t, f.entered, "the first run")
	from(t, f.arrived, "the first request")
	b := f.get(t.Context())
	from(t, f.arrived, "the second request")
	close(begin)
	from(t, f.entered, "the second run")
	leave()
	from(t, ended, "the end of the first run")
	close(finish)
	from(t, b, "the second answer")
}

func TestCoalescePanic(t *testing.T) {
	for name, value := range map[string]any{"some value": "mine", "abort": http.ErrAbortHandler} {
		t.Run(name, func(t *testing.T) {
			release, got := make(chan struct{}), make(chan any, 1)
			f := coalesced(t, nil, middleware.CoalesceOptions{}, func(n int64, w http.ResponseWriter, r *http.Request) {
				if n == 1 {
					<-release
					io.WriteString(w, "half of it")
					panic(value)
				}
				fmt.Fprint(w, n)
			})
			inner := f.Config.Handler
			f.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				defer func() {
					if v := recover(); v != nil {
						got <- v
						panic(v)
					}
				}()
				inner.ServeHTTP(w, r)
			})
			a := f.get(t.Context())
			from(t, f.entered, "the run")
			b := f.get(t.Context())
			from(t, f.arrived, "requests")
			from(t, f.arrived, "requests")
			close(release)
			if r := from(t, a, "the end"); r.err == nil {
				t.Errorf("the first one got %q", r.body)
			}
			if v := from(t, got, "the panic"); v != value {
				t.Errorf("panic with %v", v)
			}
			if r := from(t, b, "the answer"); r.err != nil || r.body != "2" {
				t.Errorf("%v %q", r.err, r.body)
			}
		})
	}
}

// A first client that does not read must not keep the others from their answer.
func TestCoalesceSlowFirstClient(t *testing.T) {
	t.Parallel()
	body := strings.Repeat("0123456789abcdef", 1<<20) // more than the kernel's buffers take
	release := make(chan struct{})
	f := coalesced(t, nil, middleware.CoalesceOptions{MaxAnswer: len(body)}, func(_ int64, w http.ResponseWriter, _ *http.Request) {
		<-release
		io.WriteString(w, body)
	})
	conn, err := net.Dial("tcp", f.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "GET /a?b=c HTTP/1.1\r\nHost: %s\r\nUser-Agent: Go-http-client/1.1\r\nAccept-Encoding: gzip\r\n\r\n", f.Listener.Addr())
	from(t, f.entered, "the run")
	b := f.get(t.Context())
	from(t, f.arrived, "requests")
	from(t, f.arrived, "requests")
	close(release)
	if r := from(t, b, "the answer"); r.err != nil || r.body != body || f.runs.Load() != 1 {
		t.Errorf("%v, %d bytes, %d runs", r.err, len(r.body), f.runs.Load())
	}
}

func TestCoalesceWaitLimitedByContext(t *testing.T) {
	release := make(chan struct{})
	entered := make(chan struct{}, 1)
	h := middleware.Coalesce(nil, nil, nil)(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		entered <- struct{}{}
		<-release
	}))
	done := make(chan struct{})
	go func() {
		defer close(done)
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil))
	}()
	from(t, entered, "the run")
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil))
	if w.Code != http.StatusServiceUnavailable {
		t.Error(w.Code)
	}
	func() {
		defer func() {
			if v := recover(); v != http.ErrAbortHandler {
				t.Errorf("panic with %v", v)
			}
		}()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil))
	}()
	close(release)
	from(t, done, "the end")
}
