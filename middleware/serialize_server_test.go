package middleware_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/await"
	"github.com/holdfast-go/holdfast/internal/takes"
	"github.com/holdfast-go/holdfast/middleware"
)

func TestAClientThatGoesAwayLeavesTheQueue(t *testing.T) {
	for _, body := range []string{"", "item=7", strings.Repeat("x", 64<<10)} {
		t.Run(fmt.Sprintf("body of %d bytes", len(body)), func(t *testing.T) { leaves(t, body) })
	}
}

func leaves(t *testing.T, body string) {
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
	open := sync.OnceFunc(func() { close(g.out) })
	t.Cleanup(open) // the server's Close waits for requests
	var work sync.WaitGroup
	work.Go(func() { do(t, s, request(t, s, "1")) })
	<-g.in
	for n := range int32(3) { // each has the only place
		ctx, cancel := context.WithCancel(t.Context())
		gone := make(chan error, 1)
		go func() {
			r := request(t, s, "1").WithContext(ctx)
			if body != "" {
				r.Body, r.ContentLength = io.NopCloser(strings.NewReader(body)), int64(len(body))
			}
			res, err := s.Client().Do(r)
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
		await.Until(t, "an aborted request", func() bool { return aborted.Load() == n+1 })
		waiting(t, c, 0)
	}
	work.Go(func() { do(t, s, request(t, s, "1")) })
	waiting(t, c, 1)
	open()
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

// A body that is left to the handler is asked for when the handler reads it.
func TestExpectContinue(t *testing.T) {
	c := start(t, fallback.NewMemory(), nil)
	g := newGate()
	h := middleware.Serialize(c, byOrder, &middleware.SerializeOptions{ReadAhead: -1})(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
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
	takes.Seconds(t)
	c := start(t, fallback.NewMemory(), nil)
	store := middleware.NewMemoryStore(nil)
	for name, mw := range map[string]func(http.Handler) http.Handler{
		"Serialize":  middleware.Serialize(c, byOrder, nil),
		"Idempotent": middleware.Idempotent(c, store, middleware.Unscoped, &middleware.IdempotentOptions{MaxRequest: 1 << 20}),
		"both": func(h http.Handler) http.Handler {
			return middleware.Idempotent(c, store, middleware.Unscoped, &middleware.IdempotentOptions{MaxRequest: 1 << 20})(middleware.Serialize(c, byOrder, nil)(h))
		},
	} {
		t.Run(name, func(t *testing.T) { testFilesAreRemoved(t, mw) })
	}
}

// So it is where a node gets a request from another one, and takes the mark of that off.
func TestFilesOfAFormAreRemoved_BehindAHop(t *testing.T) {
	takes.Seconds(t)
	var name string
	nodes := cluster(t, 2, func(x *node) http.Handler { return x.routed(spills(t, &name)) })
	sendForm(t, nodes[0].Server, orderOf(t, nodes[0], nodes[1]), &name)
}

func testFilesAreRemoved(t *testing.T, mw func(http.Handler) http.Handler) {
	var name string
	sendForm(t, serve(t, mw(spills(t, &name))), "1", &name)
}

// spills parses a form, and notes the name of its file.
func spills(t *testing.T, name *string) http.HandlerFunc {
	return func(_ http.ResponseWriter, r *http.Request) {
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
			*name = file.Name()
		}
	}
}

// sendForm sends a form, and waits until its file is removed; the handler notes the file's name.
func sendForm(t *testing.T, s *httptest.Server, order string, name *string) {
	t.Helper()
	var body bytes.Buffer
	m := multipart.NewWriter(&body)
	part, err := m.CreateFormFile("f", "f")
	if err != nil {
		t.Fatal(err)
	}
	part.Write(make([]byte, 100_000)) // more than is kept in memory
	m.Close()
	r := request(t, s, order)
	r.Body, r.ContentLength = io.NopCloser(&body), int64(body.Len())
	r.Header.Set("Content-Type", m.FormDataContentType())
	r.Header.Set("Idempotency-Key", t.Name())
	do(t, s, r)
	if *name == "" {
		t.Fatal("the form had no file")
	}
	await.Until(t, "the file to be gone", func() bool { _, err := os.Stat(*name); return errors.Is(err, os.ErrNotExist) })
}
