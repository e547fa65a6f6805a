package middleware_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/takes"
	"github.com/holdfast-go/holdfast/middleware"
)

// servers are servers of a protocol each, whose clients speak it.
var servers = map[string]func(testing.TB, http.Handler) *httptest.Server{"HTTP/1.1": serve, "h2c": overHTTP2["h2c"]}

var slowHeads = map[string]struct{ head, begin, rest string }{
	"with its length": {"Content-Length: 4\r\n", "bo", "dy"},
	"chunked":         {"Transfer-Encoding: chunked\r\n", "2\r\nbo\r\n", "2\r\ndy\r\n0\r\n\r\n"},
	"Expect":          {"Content-Length: 4\r\nExpect: 100-continue\r\n", "", "body"},
	"Expect, chunked": {"Transfer-Encoding: chunked\r\nExpect: 100-continue\r\n", "", "4\r\nbody\r\n0\r\n\r\n"},
	"large":           {"Content-Length: 100000\r\n", "bo", "dy" + strings.Repeat(" ", 99_996)}, // more than is read ahead
}

// A client that sends its body slowly keeps no other request waiting, whatever length it has
// announced.
func TestSerialize_SlowBodyDoesNotKeepTheLock(t *testing.T) {
	for name, x := range slowHeads {
		t.Run(name, func(t *testing.T) {
			c := start(t, fallback.NewMemory(), nil)
			s := serve(t, middleware.Serialize(c, byOrder, &middleware.SerializeOptions{MaxWaiters: 1})(http.HandlerFunc(
				func(w http.ResponseWriter, r *http.Request) {
					body, err := io.ReadAll(r.Body)
					fmt.Fprintf(w, "%s, %v", bytes.TrimRight(body, " "), err)
				})))
			var slow []*bufio.ReadWriter
			for range 5 { // more than may wait
				conn, err := net.Dial("tcp", s.Listener.Addr().String())
				if err != nil {
					t.Fatal(err)
				}
				defer conn.Close()
				rw := bufio.NewReadWriter(bufio.NewReader(conn), bufio.NewWriter(conn))
				fmt.Fprintf(rw, "POST /?order=1 HTTP/1.1\r\nHost: h\r\n%s\r\n%s", x.head, x.begin)
				rw.Flush()
				slow = append(slow, rw)
				if strings.Contains(x.head, "Expect") { // the body is being read
					if line, err := rw.ReadString('\n'); err != nil || !strings.Contains(line, "100 Continue") {
						t.Fatalf("%q, %v", line, err)
					}
					rw.ReadString('\n')
				}
			}
			for range 10 {
				if res := do(t, s, request(t, s, "1")); res.body != ", <nil>" {
					t.Errorf("%d %q", res.StatusCode, res.body)
				}
			}
			for _, rw := range slow {
				fmt.Fprint(rw, x.rest)
				rw.Flush()
				res, err := http.ReadResponse(rw.Reader, nil)
				if err != nil {
					t.Fatal(err)
				}
				if body, _ := io.ReadAll(res.Body); string(body) != "body, <nil>" {
					t.Errorf("%d %q", res.StatusCode, body)
				}
				res.Body.Close()
			}
			idle(t, c)
		})
	}
}

// The same over HTTP/2, and for a client that does not send the rest before it has got the
// beginning of the answer.
func TestSerialize_BodyOverHTTP2(t *testing.T) {
	t.Parallel()
	takes.Seconds(t)
	c := start(t, fallback.NewMemory(), nil)
	s := overHTTP2["h2c"](t, middleware.Serialize(c, byOrder, nil)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor != 2 {
			t.Errorf("%s", r.Proto)
		}
		fmt.Fprintln(w, "begun")
		http.NewResponseController(w).Flush()
		body, err := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%s, %v, %s", body, err, r.Trailer.Get("X-Sum"))
	})))
	for name, early := range map[string]bool{"slow": false, "both ways": true} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			body, send := io.Pipe()
			defer send.Close()
			r, _ := http.NewRequestWithContext(ctx, http.MethodPost, s.URL+"/?order=1", body)
			r.Trailer = http.Header{"X-Sum": nil}
			type got struct {
				*http.Response
				error
			}
			came := make(chan got, 1)
			go func() {
				res, err := s.Client().Do(r) //nolint:bodyclose // closed where it is received
				came <- got{res, err}
			}()
			fmt.Fprint(send, "bo")
			end := func() {
				fmt.Fprint(send, "dy")
				r.Trailer.Set("X-Sum", "42")
				send.Close()
			}
			if !early {
				if res := do(t, s, request(t, s, "1")); !strings.Contains(res.body, ", <nil>") {
					t.Errorf("%d %q", res.StatusCode, res.body)
				}
				end()
			}
			res := from(t, came, "the head of the answer")
			if res.error != nil {
				t.Fatal(res.error)
			}
			defer res.Body.Close()
			in := bufio.NewReader(res.Body)
			if line, err := in.ReadString('\n'); line != "begun\n" {
				t.Errorf("%q, %v", line, err)
			}
			if early {
				end()
			}
			if rest, err := io.ReadAll(in); string(rest) != "body, <nil>, 42" {
				t.Errorf("%q, %v", rest, err)
			}
			idle(t, c)
		})
	}
}

// A handler that ends without the rest of a slow body: nothing reads on, and the client gets the
// answer.
func TestSerialize_EarlyAnswer(t *testing.T) {
	t.Parallel()
	takes.Seconds(t)
	for name, serve := range servers {
		t.Run(name, func(t *testing.T) {
			c := start(t, fallback.NewMemory(), nil)
			s := serve(t, middleware.Serialize(c, byOrder, nil)(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				http.Error(w, "no", http.StatusForbidden)
			})))
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			body, send := io.Pipe()
			defer send.Close()
			r, _ := http.NewRequestWithContext(ctx, http.MethodPost, s.URL+"/?order=1", body)
			go fmt.Fprint(send, "beginning")
			res, err := s.Client().Do(r)
			if err != nil {
				t.Fatal(err)
			}
			res.Body.Close()
			if res.StatusCode != http.StatusForbidden {
				t.Error(res.Status)
			}
			idle(t, c)
		})
	}
}

// The rest of a body beyond ReadAhead has a deadline: then the lock is free.
func TestSerialize_BodyTimeout(t *testing.T) {
	t.Parallel()
	large := strings.Repeat("x", 100_000)
	for name, serve := range servers {
		for _, length := range []int64{-1, 200_000} {
			t.Run(fmt.Sprint(name, " ", length), func(t *testing.T) {
				var logged lockedBuffer
				c := start(t, fallback.NewMemory(), nil)
				failed := make(chan error, 1)
				s := serve(t, middleware.Serialize(c, byOrder, &middleware.SerializeOptions{
					BodyTimeout: 100 * time.Millisecond, Logger: slog.New(slog.NewTextHandler(&logged, nil)),
				})(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if n, err := io.Copy(io.Discard, r.Body); n > 0 || err != nil {
						if n != int64(len(large)) {
							t.Errorf("%d bytes, %v", n, err)
						}
						failed <- err
					}
				})))
				ctx, cancel := context.WithTimeout(t.Context(), limit)
				defer cancel()
				body, send := io.Pipe()
				defer send.Close()
				go io.WriteString(send, large)
				r, _ := http.NewRequestWithContext(ctx, http.MethodPost, s.URL+"/?order=1", body)
				r.ContentLength = length
				ended := make(chan struct{})
				go func() {
					defer close(ended)
					if res, err := s.Client().Do(r); err == nil {
						res.Body.Close()
					}
				}()
				if err := from(t, failed, "the end of the body"); !errors.Is(err, os.ErrDeadlineExceeded) {
					t.Errorf("%v", err)
				}
				if res := do(t, s, request(t, s, "1")); res.StatusCode != http.StatusOK {
					t.Errorf("%d %q", res.StatusCode, res.body)
				}
				idle(t, c)
				if !strings.Contains(logged.String(), "BodyTimeout") {
					t.Errorf("the log: %s", logged.String())
				}
				cancel()
				send.Close() // the client's transport reads it
				<-ended
			})
		}
	}
}

// A body that came in time ends the deadline: the handler may take longer than that.
func TestSerialize_BodyTimeoutEndsWithTheBody(t *testing.T) {
	t.Parallel()
	takes.Seconds(t)
	large := strings.Repeat("x", 1<<20)
	for name, serve := range servers {
		t.Run(name, func(t *testing.T) {
			c := start(t, fallback.NewMemory(), nil)
			const short = 200 * time.Millisecond
			s := serve(t, middleware.Serialize(c, byOrder, &middleware.SerializeOptions{BodyTimeout: short})(http.HandlerFunc(
				func(w http.ResponseWriter, r *http.Request) {
					n, err := io.Copy(io.Discard, r.Body)
					select {
					case <-r.Context().Done():
						t.Errorf("%v", context.Cause(r.Context()))
					case <-time.After(2 * short):
					}
					fmt.Fprint(w, n, err)
				})))
			for range 2 { // the connection is used again
				res, err := s.Client().Post(s.URL+"/?order=1", "", strings.NewReader(large))
				if err != nil {
					t.Fatal(err)
				}
				got, _ := io.ReadAll(res.Body)
				res.Body.Close()
				if want := fmt.Sprint(len(large), nil); string(got) != want {
					t.Errorf("%q, want %q", got, want)
				}
			}
		})
	}
}

// A connection that a handler has taken over is its own: nothing else reads from it, or limits
// that, also where a body was announced.
func TestSerialize_HijackWithABody(t *testing.T) {
	t.Parallel()
	c := start(t, fallback.NewMemory(), nil)
	type taken struct {
		net.Conn
		*bufio.ReadWriter
	}
	took := make(chan taken, 1)
	s := serve(t, middleware.Serialize(c, byOrder, nil)(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		conn, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
		}
		took <- taken{conn, rw}
	})))
	client, err := net.Dial("tcp", s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	fmt.Fprint(client, "POST /?order=1 HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: mine\r\nTransfer-Encoding: chunked\r\n\r\n")
	x := from(t, took, "the connection")
	defer x.Close()
	idle(t, c) // the handler has returned
	fmt.Fprint(client, "late\n")
	if line, err := x.ReadString('\n'); line != "late\n" || err != nil {
		t.Errorf("%q, %v", line, err)
	}
}
