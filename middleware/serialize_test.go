package middleware_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"mime/multipart"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/middleware"
)

var byOrder = middleware.Key("order", middleware.Query("order"))

// request is a POST for an order of a server's.
func request(t testing.TB, s *httptest.Server, order string) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL+"/?order="+order, nil)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// gate is a handler that says when it runs, and then waits to be let go.
type gate struct{ in, out chan struct{} }

func newGate() gate { return gate{make(chan struct{}, 1000), make(chan struct{})} }

func (g gate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	g.in <- struct{}{}
	<-g.out
	io.WriteString(w, "done")
}

func TestRequestsWithTheSameKeyRunOneAfterAnother(t *testing.T) {
	a := fallback.NewMemory()
	var in [3]atomic.Int32
	var last [3]atomic.Uint64
	var most, all atomic.Int32
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		k, _ := strconv.Atoi(r.URL.Query().Get("order"))
		if in[k].Add(1) != 1 {
			t.Error("two at a time (I1)")
		}
		most.Store(max(most.Load(), all.Add(1)))
		l, ok := middleware.Lock(r.Context())
		if !ok || l.Key() != fmt.Sprint("order/", k) {
			t.Errorf("the lock is of %q", l.Key())
		}
		if got := w.Header().Get("Fence"); got != fmt.Sprint(l.Fence()) {
			t.Errorf("the header says %q, the lock %d", got, l.Fence())
		}
		if old := last[k].Swap(l.Fence()); old >= l.Fence() {
			t.Errorf("token %d after %d (I2)", l.Fence(), old)
		}
		time.Sleep(time.Millisecond)
		all.Add(-1)
		in[k].Add(-1)
	})
	var work sync.WaitGroup
	for range 2 { // "processes"
		c := start(t, a, nil)
		s := serve(t, middleware.Serialize(c, byOrder, &middleware.SerializeOptions{FenceHeader: "fence"})(h))
		for w := range 8 {
			work.Go(func() {
				for i := range 10 {
					if res := do(t, s, request(t, s, fmt.Sprint((w+i)%3))); res.StatusCode != http.StatusOK || res.Header.Get("Fence") == "" {
						t.Errorf("%d %s", res.StatusCode, res.body)
					}
				}
			})
		}
	}
	work.Wait()
	if most.Load() < 2 {
		t.Error("requests with different keys never ran at the same time")
	}
}

func TestMethodsThatAreNotSerialized(t *testing.T) {
	c := start(t, fallback.NewMemory(), nil)
	for _, x := range []struct {
		opts   *middleware.SerializeOptions
		method string
		locked bool
	}{
		{nil, "GET", false}, {nil, "HEAD", false}, {nil, "OPTIONS", false}, {nil, "TRACE", false}, {nil, "", false},
		{nil, "POST", true}, {nil, "PUT", true}, {nil, "PATCH", true}, {nil, "DELETE", true}, {nil, "PURGE", true},
		{&middleware.SerializeOptions{Methods: []string{"GET", "PUT"}}, "GET", true},
		{&middleware.SerializeOptions{Methods: []string{"GET", "PUT"}}, "POST", false},
	} {
		r := post("/")
		r.Method = x.method
		var locked bool
		h := func(_ http.ResponseWriter, r *http.Request) { _, locked = middleware.Lock(r.Context()) }
		middleware.Serialize(c, middleware.Key("k"), x.opts)(http.HandlerFunc(h)).ServeHTTP(httptest.NewRecorder(), r)
		if locked != x.locked {
			t.Errorf("%s: locked %v", x.method, locked)
		}
	}
}

// problemOf decodes an answer that must be a problem.
func problemOf(t *testing.T, res response) middleware.Problem {
	t.Helper()
	var p middleware.Problem
	if err := json.Unmarshal([]byte(res.body), &p); err != nil {
		t.Errorf("%v: %q", err, res.body)
	}
	if ct := res.Header.Get("Content-Type"); ct != "application/problem+json" || p.Status != res.StatusCode || p.Title == "" {
		t.Errorf("%d, %s, %s", res.StatusCode, ct, res.body)
	}
	return p
}

func TestNoTurnInTime(t *testing.T) {
	for name, x := range map[string]struct {
		opts   middleware.SerializeOptions
		status int
		after  string
	}{
		"by default":  {middleware.SerializeOptions{Wait: 20 * time.Millisecond}, 423, "1"},
		"409":         {middleware.SerializeOptions{Wait: 20 * time.Millisecond, LockedStatus: 409, RetryAfter: 1500 * time.Millisecond}, 409, "2"},
		"not waiting": {middleware.SerializeOptions{Wait: -1, RetryAfter: -1}, 423, ""},
	} {
		t.Run(name, func(t *testing.T) {
			c := start(t, fallback.NewMemory(), nil)
			g := newGate()
			s := serve(t, middleware.Serialize(c, byOrder, &x.opts)(g))
			var work sync.WaitGroup
			work.Go(func() { do(t, s, request(t, s, "1")) })
			<-g.in
			res := do(t, s, request(t, s, "1"))
			if p := problemOf(t, res); res.StatusCode != x.status || p.Type != middleware.TypeLocked || res.Header.Get("Retry-After") != x.after {
				t.Errorf("%d %s %q", res.StatusCode, res.body, res.Header.Get("Retry-After"))
			}
			close(g.out)
			work.Wait()
			if res := do(t, s, request(t, s, "1")); res.StatusCode != http.StatusOK || res.body != "done" {
				t.Errorf("afterwards: %d %s", res.StatusCode, res.body)
			}
			idle(t, c)
		})
	}
}

func TestTheRequestsOwnLimitIsAnsweredToo(t *testing.T) {
	c := start(t, fallback.NewMemory(), nil)
	l, err := c.Lock(t.Context(), "k")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Unlock()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	w := httptest.NewRecorder()
	middleware.Serialize(c, middleware.Key("k"), nil)(nil).ServeHTTP(w, post("/").WithContext(ctx))
	if w.Code != 423 { // an empty 200 would be taken for a success
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

func TestTooManyWaiters(t *testing.T) {
	c := start(t, fallback.NewMemory(), nil)
	g := newGate()
	s := serve(t, middleware.Serialize(c, byOrder, &middleware.SerializeOptions{MaxWaiters: 2})(g))
	var work sync.WaitGroup
	work.Go(func() { do(t, s, request(t, s, "1")) })
	<-g.in
	for range 2 {
		work.Go(func() {
			if res := do(t, s, request(t, s, "1")); res.StatusCode != http.StatusOK {
				t.Errorf("one that waited: %d", res.StatusCode)
			}
		})
	}
	waiting(t, c, 2)
	res := do(t, s, request(t, s, "1"))
	if p := problemOf(t, res); res.StatusCode != http.StatusTooManyRequests || p.Type != middleware.TypeTooMany || res.Header.Get("Retry-After") != "1" {
		t.Errorf("%d %s", res.StatusCode, res.body)
	}
	work.Go(func() { do(t, s, request(t, s, "2")) }) // another key
	<-g.in
	close(g.out)
	work.Wait()
	if res := do(t, s, request(t, s, "1")); res.StatusCode != http.StatusOK {
		t.Errorf("afterwards: %d", res.StatusCode)
	}
}

func TestNoLimitOfWaiters(t *testing.T) {
	c := start(t, fallback.NewMemory(), nil)
	g := newGate()
	s := serve(t, middleware.Serialize(c, byOrder, &middleware.SerializeOptions{MaxWaiters: -1})(g))
	var work sync.WaitGroup
	for range 140 { // more than the default
		work.Go(func() {
			if res := do(t, s, request(t, s, "1")); res.StatusCode != http.StatusOK {
				t.Errorf("%d", res.StatusCode)
			}
		})
	}
	waiting(t, c, 139)
	close(g.out)
	work.Wait()
}

func TestLocksThatAreNotToBeHad(t *testing.T) {
	c := start(t, fallback.NewMemory(), nil)
	if err := c.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	s := serve(t, middleware.Serialize(c, byOrder, nil)(newGate()))
	res := do(t, s, request(t, s, "1"))
	if p := problemOf(t, res); res.StatusCode != http.StatusServiceUnavailable || p.Type != middleware.TypeUnavailable || res.Header.Get("Retry-After") != "1" {
		t.Errorf("%d %s", res.StatusCode, res.body)
	}
}

// away is an arbiter that cannot be asked for locks while it is off.
type away struct {
	fallback.Arbiter
	off atomic.Bool
}

type awayNamespace struct {
	fallback.Namespace
	a *away
}

func (a *away) Attach(ctx context.Context, s fallback.Settings) (fallback.Namespace, error) {
	ns, err := a.Arbiter.Attach(ctx, s)
	return awayNamespace{ns, a}, err
}

func (n awayNamespace) Lock(ctx context.Context, r fallback.LockRequest) (fallback.LockAnswer, error) {
	if n.a.off.Load() {
		return fallback.LockAnswer{}, errors.New("away")
	}
	return n.Namespace.Lock(ctx, r)
}

func TestTheArbiterIsAway(t *testing.T) {
	a := &away{Arbiter: fallback.NewMemory()}
	c := start(t, a, nil)
	g := newGate()
	close(g.out)
	s := serve(t, middleware.Serialize(c, byOrder, &middleware.SerializeOptions{Wait: 50 * time.Millisecond})(g))
	a.off.Store(true)
	res := do(t, s, request(t, s, "1"))
	if p := problemOf(t, res); res.StatusCode != http.StatusServiceUnavailable || p.Type != middleware.TypeUnavailable || res.Header.Get("Retry-After") != "1" ||
		strings.Contains(res.body, "away") {
		t.Errorf("%d %s", res.StatusCode, res.body)
	}
	a.off.Store(false)
	if res := do(t, s, request(t, s, "1")); res.StatusCode != http.StatusOK {
		t.Errorf("afterwards: %d %s", res.StatusCode, res.body)
	}
}

func TestProblemsAsTheUserRendersThem(t *testing.T) {
	c := start(t, fallback.NewMemory(), nil)
	var got middleware.Problem
	s := serve(t, middleware.Serialize(c, byOrder, &middleware.SerializeOptions{Problem: func(w http.ResponseWriter, r *http.Request, p middleware.Problem) {
		got = p
		http.Error(w, "mine", http.StatusTeapot)
	}})(nil))
	res := do(t, s, request(t, s, "%00"))
	if _, ok := errors.AsType[*middleware.KeyError](got.Err); !ok || res.StatusCode != http.StatusTeapot || got.Status != 400 || res.body != "mine\n" {
		t.Errorf("%d %q, %+v", res.StatusCode, res.body, got)
	}
}

func TestAClientThatGoesAwayLeavesTheQueue(t *testing.T) {
	c := start(t, fallback.NewMemory(), nil)
	g := newGate()
	var aborted atomic.Int32
	h := middleware.Serialize(c, byOrder, &middleware.SerializeOptions{MaxWaiters: 1})(g)
	s := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		written := &recorder{ResponseWriter: w}
		defer func() {
			if p := recover(); p != nil {
				if p != http.ErrAbortHandler || written.wrote {
					t.Errorf("panic %v, wrote %v", p, written.wrote)
				}
				aborted.Add(1)
				panic(p)
			}
		}()
		h.ServeHTTP(written, r)
	}))
	var work sync.WaitGroup
	work.Go(func() { do(t, s, request(t, s, "1")) })
	<-g.in
	for range 3 { // each has the only place
		ctx, cancel := context.WithCancel(t.Context())
		gone := make(chan error, 1)
		go func() {
			res, err := s.Client().Do(request(t, s, "1").WithContext(ctx))
			if err == nil {
				res.Body.Close()
			}
			gone <- err
		}()
		waiting(t, c, 1)
		cancel()
		if err := <-gone; !errors.Is(err, context.Canceled) {
			t.Errorf("%v", err)
		}
		waiting(t, c, 0)
	}
	await(t, "three aborted requests", func() bool { return aborted.Load() == 3 })
	work.Go(func() { do(t, s, request(t, s, "1")) })
	waiting(t, c, 1)
	close(g.out)
	work.Wait()
	if n := len(g.in); n != 1 {
		t.Errorf("%d handlers ran besides the first, want 1", n)
	}
	idle(t, c)
}

// recorder notes whether anything was written.
type recorder struct {
	http.ResponseWriter
	wrote bool
}

func (r *recorder) WriteHeader(status int) { r.wrote = true; r.ResponseWriter.WriteHeader(status) }

func (r *recorder) Write(b []byte) (int, error) { r.wrote = true; return r.ResponseWriter.Write(b) }

type valueKey struct{}

func TestTheHandlersContext(t *testing.T) {
	c := start(t, fallback.NewMemory(), nil)
	deadline := time.Now().Add(time.Hour)
	ctx, cancel := context.WithDeadline(context.WithValue(t.Context(), valueKey{}, "v"), deadline)
	var after context.Context
	h := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		after = r.Context()
		if d, ok := after.Deadline(); !ok || !d.Equal(deadline) || after.Value(valueKey{}) != "v" || after.Err() != nil {
			t.Errorf("%v %v %v", d, after.Value(valueKey{}), after.Err())
		}
		cancel() // the client goes
		<-after.Done()
		if cause := context.Cause(after); cause != context.Canceled {
			t.Errorf("%v", cause)
		}
		if l, _ := middleware.Lock(after); l.Context().Err() != nil {
			t.Error("the lock ended with the request's context")
		}
	})
	middleware.Serialize(c, middleware.Key("k"), nil)(h).ServeHTTP(httptest.NewRecorder(), post("/").WithContext(ctx))
	if l, ok := middleware.Lock(after); !ok || !errors.Is(context.Cause(l.Context()), coord.ErrUnlocked) {
		t.Errorf("%v, the lock %v", context.Cause(after), context.Cause(l.Context()))
	}
	if _, ok := middleware.Lock(t.Context()); ok {
		t.Error("a lock out of nothing")
	}
}

func TestTheContextEndsAfterTheHandler(t *testing.T) {
	c := start(t, fallback.NewMemory(), nil)
	for _, asked := range []bool{false, true} {
		var after context.Context
		h := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			after = r.Context()
			if asked && after.Err() != nil {
				t.Error(after.Err())
			}
		})
		middleware.Serialize(c, middleware.Key("k"), nil)(h).ServeHTTP(httptest.NewRecorder(), post("/"))
		if cause := context.Cause(after); !errors.Is(cause, coord.ErrUnlocked) {
			t.Errorf("%v", cause)
		}
	}
}

func TestALostLockEndsTheHandlersContext(t *testing.T) {
	var log strings.Builder
	c := start2(t)
	var cause error
	h := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		go c.Close(ctx) // gives up on locks that are in use
		<-r.Context().Done()
		cause = context.Cause(r.Context())
	})
	opts := &middleware.SerializeOptions{Logger: slog.New(slog.NewTextHandler(&log, nil))}
	middleware.Serialize(c, middleware.Key("k"), opts)(h).ServeHTTP(httptest.NewRecorder(), post("/"))
	if !errors.Is(cause, coord.ErrLost) {
		t.Errorf("%v", cause)
	}
	if !strings.Contains(log.String(), "lost") {
		t.Errorf("log: %q", log.String())
	}
	c.Close(t.Context()) // waits for the other one
}

// start2 returns a coordinator that the test closes.
func start2(t *testing.T) *coord.Coordinator {
	c, err := coord.New(fallback.NewMemory(), nil)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestAHandlerMayUnlockEarly(t *testing.T) {
	c := start(t, fallback.NewMemory(), nil)
	h := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		l, _ := middleware.Lock(r.Context())
		ended := make(chan struct{})
		context.AfterFunc(l.Context(), func() { close(ended) })
		if err := l.Unlock(); err != nil {
			t.Error(err)
		}
		<-ended
		other, err := c.Lock(r.Context(), "k")
		if err != nil || r.Context().Err() != nil {
			t.Errorf("%v, %v", err, r.Context().Err())
		}
		other.Unlock()
	})
	middleware.Serialize(c, middleware.Key("k"), nil)(h).ServeHTTP(httptest.NewRecorder(), post("/"))
	idle(t, c)
}

func TestPanicsUnlockAndGoOn(t *testing.T) {
	c := start(t, fallback.NewMemory(), nil)
	boom := errors.New("boom")
	for _, value := range []any{boom, http.ErrAbortHandler} {
		func() {
			defer func() {
				if p := recover(); p != value {
					t.Errorf("panic %v, want %v", p, value)
				}
			}()
			h := func(http.ResponseWriter, *http.Request) { panic(value) }
			middleware.Serialize(c, middleware.Key("k"), nil)(http.HandlerFunc(h)).ServeHTTP(httptest.NewRecorder(), post("/"))
			t.Error("returned")
		}()
		idle(t, c)
	}
}

func TestNestedSerializers(t *testing.T) {
	c, other := start(t, fallback.NewMemory(), nil), start(t, fallback.NewMemory(), nil)
	opts := &middleware.SerializeOptions{Wait: 5 * time.Second}
	a, b := middleware.Serialize(c, middleware.Key("a"), opts), middleware.Serialize(c, middleware.Key("b"), opts)
	elsewhere := middleware.Serialize(other, middleware.Key("a"), opts)
	var keys []string
	h := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		l, _ := middleware.Lock(r.Context())
		keys = append(keys, l.Key())
		if c.Stats().Locked != 2 || other.Stats().Locked != 1 {
			t.Errorf("%d and %d locks", c.Stats().Locked, other.Stats().Locked)
		}
	})
	w := httptest.NewRecorder()
	a(b(elsewhere(b(a(h))))).ServeHTTP(w, post("/"))
	if w.Code != 200 || len(keys) != 1 {
		t.Errorf("%d, %q", w.Code, keys)
	}
	// One that was unlocked is taken again.
	early := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		l, _ := middleware.Lock(r.Context())
		l.Unlock()
		a(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			if again, _ := middleware.Lock(r.Context()); again.Fence() <= l.Fence() || again.Context().Err() != nil {
				t.Errorf("%d after %d", again.Fence(), l.Fence())
			}
		})).ServeHTTP(w, r)
	})
	a(early).ServeHTTP(httptest.NewRecorder(), post("/"))
	idle(t, c)
	idle(t, other)
}

func TestTheServersResponseWriterIsKept(t *testing.T) {
	c := start(t, fallback.NewMemory(), nil)
	var outer http.ResponseWriter
	inner := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if w != outer {
			t.Errorf("%T is around %T", w, outer)
		}
		rc := http.NewResponseController(w)
		if err := errors.Join(rc.SetReadDeadline(time.Now().Add(time.Hour)), rc.SetWriteDeadline(time.Now().Add(time.Hour)), rc.EnableFullDuplex()); err != nil {
			t.Error(err)
		}
		io.WriteString(w, "first")
		if err := rc.Flush(); err != nil {
			t.Error(err)
		}
		<-r.Context().Done() // the client has got it, and goes
	})
	done := make(chan struct{})
	h := middleware.Serialize(c, byOrder, nil)(inner)
	s := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		outer = w
		h.ServeHTTP(w, r)
		close(done)
	}))
	res, err := s.Client().Do(request(t, s, "1"))
	if err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 5)
	if _, err := io.ReadFull(res.Body, buf); err != nil || string(buf) != "first" {
		t.Errorf("%q, %v", buf, err)
	}
	res.Body.Close()
	<-done
	idle(t, c)
}

func TestHijackedConnections(t *testing.T) {
	c := start(t, fallback.NewMemory(), nil)
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, rw, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		io.WriteString(rw, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
		rw.Flush()
		io.Copy(conn, rw)
	})
	s := serve(t, middleware.Serialize(c, byOrder, nil)(h))
	conn, err := net.Dial("tcp", s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "POST /?order=1 HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
	br := bufio.NewReader(conn)
	res, err := http.ReadResponse(br, nil)
	if err != nil || res.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("%v %v", res, err)
	}
	defer res.Body.Close()
	fmt.Fprint(conn, "hello")
	buf := make([]byte, 5)
	if _, err := io.ReadFull(br, buf); err != nil || string(buf) != "hello" {
		t.Errorf("%q, %v", buf, err)
	}
	if c.Stats().Locked != 1 {
		t.Error("the handler has not returned, and the lock is gone")
	}
	conn.Close()
	idle(t, c)
}

func TestExpectContinue(t *testing.T) {
	c := start(t, fallback.NewMemory(), nil)
	g := newGate()
	h := middleware.Serialize(c, byOrder, nil)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		g.in <- struct{}{}
		<-g.out
		body, err := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%s, %v", body, err)
	}))
	s := serve(t, h)
	conn, err := net.Dial("tcp", s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "POST /?order=1 HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n")
	<-g.in
	conn.SetReadDeadline(time.Now().Add(30 * time.Millisecond))
	if n, err := conn.Read(make([]byte, 1)); n > 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("asked for the body before the handler read it: %d, %v", n, err)
	}
	conn.SetReadDeadline(time.Time{})
	close(g.out)
	br := bufio.NewReader(conn)
	if line, _ := br.ReadString('\n'); line != "HTTP/1.1 100 Continue\r\n" {
		t.Errorf("%q", line)
	}
	br.ReadString('\n')
	fmt.Fprint(conn, "body")
	res, err := http.ReadResponse(br, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if body, _ := io.ReadAll(res.Body); string(body) != "body, <nil>" {
		t.Errorf("%q", body)
	}
}

func TestFilesOfAFormAreRemoved(t *testing.T) {
	c := start(t, fallback.NewMemory(), nil)
	store := middleware.NewMemoryStore(nil)
	for name, mw := range map[string]func(http.Handler) http.Handler{
		"Serialize":  middleware.Serialize(c, byOrder, nil),
		"Idempotent": middleware.Idempotent(c, store, &middleware.IdempotentOptions{MaxRequest: 64 << 20}),
		"both": func(h http.Handler) http.Handler {
			return middleware.Idempotent(c, store, &middleware.IdempotentOptions{MaxRequest: 64 << 20})(middleware.Serialize(c, byOrder, nil)(h))
		},
	} {
		t.Run(name, func(t *testing.T) { testFilesAreRemoved(t, mw) })
	}
}

func testFilesAreRemoved(t *testing.T, mw func(http.Handler) http.Handler) {
	var name string
	s := serve(t, mw(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if err := r.ParseMultipartForm(1); err != nil {
			t.Error(err)
			return
		}
		f, err := r.MultipartForm.File["f"][0].Open()
		if err != nil {
			t.Error(err)
			return
		}
		defer f.Close()
		if file, ok := f.(*os.File); ok {
			name = file.Name()
		}
	})))
	var body bytes.Buffer
	m := multipart.NewWriter(&body)
	part, err := m.CreateFormFile("f", "f")
	if err != nil {
		t.Fatal(err)
	}
	part.Write(make([]byte, 32<<20)) // more than is kept in memory
	m.Close()
	r := request(t, s, "1")
	r.Body, r.ContentLength = io.NopCloser(&body), int64(body.Len())
	r.Header.Set("Content-Type", m.FormDataContentType())
	r.Header.Set("Idempotency-Key", t.Name())
	do(t, s, r)
	if name == "" {
		t.Fatal("the form had no file")
	}
	await(t, "the file to be gone", func() bool { _, err := os.Stat(name); return errors.Is(err, os.ErrNotExist) })
}
