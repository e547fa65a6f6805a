package middleware_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/textproto"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/middleware"
)

func TestStreamsBothWays(t *testing.T) {
	t.Parallel()
	nodes := cluster(t, 2, func(x *node) http.Handler {
		return x.routed(func(w http.ResponseWriter, r *http.Request) {
			rc := http.NewResponseController(w)
			if err := rc.EnableFullDuplex(); err != nil {
				t.Error(err)
			}
			w.Header().Set("Trailer", "Sum")
			w.Header().Set("At", x.URL)
			rc.Flush()
			lines := bufio.NewScanner(r.Body)
			n := 0
			for lines.Scan() {
				n++
				fmt.Fprintln(w, "echo "+lines.Text())
				rc.Flush()
			}
			w.Header().Set("Sum", fmt.Sprint(n, " ", r.Trailer.Get("Check")))
			w.Header().Set(http.TrailerPrefix+"Late", "too")
		})
	})
	x, other := nodes[0], nodes[1]
	front := httptest.NewUnstartedServer(x.Config.Handler) // the same node, by HTTP/2
	front.EnableHTTP2 = true
	front.StartTLS()
	defer front.Close()
	for proto, s := range map[string]*httptest.Server{"HTTP/1.1": x.Server, "HTTP/2.0": front} {
		t.Run(proto, func(t *testing.T) { talk(t, s, proto, orderOf(t, x, other), other.URL) })
	}
}

// talk sends lines, each after the answer to the one before, and expects them to be served at a
// URL.
func talk(t *testing.T, s *httptest.Server, proto, order, at string) {
	pr, pw := io.Pipe()
	r := request(t, s, order)
	r.Body, r.Trailer = pr, http.Header{"Check": {"sum"}}
	res, err := s.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if res.Header.Get("At") != at || res.Proto != proto {
		t.Errorf("served at %s, by %s", res.Header.Get("At"), res.Proto)
	}
	in := bufio.NewReader(res.Body)
	for i := range 3 { // each line comes back before the next one is sent
		fmt.Fprintln(pw, "line", i)
		if line, err := in.ReadString('\n'); line != fmt.Sprintf("echo line %d\n", i) {
			t.Fatalf("%q, %v", line, err)
		}
	}
	pw.Close()
	if rest, err := io.ReadAll(in); len(rest) > 0 || err != nil {
		t.Errorf("%q, %v", rest, err)
	}
	if res.Trailer.Get("Sum") != "3 sum" || res.Trailer.Get("Late") != "too" {
		t.Errorf("trailers %v", res.Trailer)
	}
}

// Also of a response whose length is known, nothing is kept back.
func TestTheBeginningOfAResponseIsNotKept(t *testing.T) {
	t.Parallel()
	rest := make(chan struct{})
	nodes := cluster(t, 2, func(x *node) http.Handler {
		return x.routed(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Length", "10")
			io.WriteString(w, "first")
			http.NewResponseController(w).Flush()
			<-rest
			io.WriteString(w, "later")
		})
	})
	x, other := nodes[0], nodes[1]
	res, err := x.Client().Do(request(t, x.Server, orderOf(t, x, other)))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	buf := make([]byte, 5)
	if _, err := io.ReadFull(res.Body, buf); string(buf) != "first" {
		t.Errorf("%q, %v", buf, err)
	}
	close(rest)
	if later, err := io.ReadAll(res.Body); string(later) != "later" {
		t.Errorf("%q, %v", later, err)
	}
}

// The owner answers before it has got the body, and never reads it.
func TestAnOwnerThatAnswersEarly(t *testing.T) {
	t.Parallel()
	nodes := cluster(t, 2, func(x *node) http.Handler {
		return x.routed(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Late") != "" { // or this server would wait for the body, before it answers
				http.NewResponseController(w).EnableFullDuplex()
				w.Header().Set("Connection", "close")
			}
			w.Header().Set("Content-Length", fmt.Sprint(len(x.URL)))
			w.WriteHeader(http.StatusRequestEntityTooLarge)
			io.WriteString(w, x.URL)
		})
	})
	x, other := nodes[0], nodes[1]
	order := orderOf(t, x, other)
	for _, size := range []int{1, 1000, 1 << 20} {
		for i := range 20 {
			header, late := "", i%2 == 1 // the body comes after the answer
			if late {
				header = "Late: 1\r\n"
			}
			conn, err := net.Dial("tcp", x.Listener.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprintf(conn, "POST /?order=%s HTTP/1.1\r\nHost: h\r\n%sContent-Length: %d\r\n\r\n", order, header, size)
			if size < 1<<20 && !late { // else the rest never comes
				conn.Write(make([]byte, size))
			}
			br := bufio.NewReader(conn)
			res, err := http.ReadResponse(br, nil)
			if err != nil {
				t.Fatal(err)
			}
			if body, err := io.ReadAll(res.Body); res.StatusCode != http.StatusRequestEntityTooLarge || string(body) != other.URL || err != nil {
				t.Errorf("%d %s, %v", res.StatusCode, body, err)
			}
			res.Body.Close()
			if late {
				conn.Write(make([]byte, size))
				if _, err := br.ReadByte(); err == nil || !res.Close {
					t.Errorf("the connection goes on: %v", err)
				}
			}
			conn.Close()
		}
	}
}

func TestUpgrades(t *testing.T) {
	t.Parallel()
	nodes := cluster(t, 2, func(x *node) http.Handler {
		return x.routed(middleware.Serialize(x.c, byOrder, &middleware.SerializeOptions{Methods: []string{"GET"}})(http.HandlerFunc(
			func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Connection", "Upgrade")
				w.Header().Set("Upgrade", r.Header.Get("Upgrade"))
				w.WriteHeader(http.StatusSwitchingProtocols)
				conn, rw, err := http.NewResponseController(w).Hijack()
				if err != nil {
					t.Error(err)
					return
				}
				defer conn.Close()
				io.Copy(conn, rw)
			})).ServeHTTP)
	})
	x, other := nodes[0], nodes[1]
	conn, err := net.Dial("tcp", x.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "GET /?order=%s HTTP/1.1\r\nHost: h\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n\r\n", orderOf(t, x, other))
	br := bufio.NewReader(conn)
	res, err := http.ReadResponse(br, nil)
	if err != nil || res.StatusCode != http.StatusSwitchingProtocols || res.Header.Get("Upgrade") != "websocket" {
		t.Fatalf("%v %v", res, err)
	}
	defer res.Body.Close()
	for range 3 {
		fmt.Fprint(conn, "hello")
		buf := make([]byte, 5)
		if _, err := io.ReadFull(br, buf); err != nil || string(buf) != "hello" {
			t.Errorf("%q, %v", buf, err)
		}
	}
	if x.c.Stats().Locked != 0 || other.c.Stats().Locked != 1 {
		t.Errorf("%d and %d locks", x.c.Stats().Locked, other.c.Stats().Locked)
	}
	conn.Close()
	idle(t, other.c)
}

func TestInformationalResponsesAndExpectContinue(t *testing.T) {
	t.Parallel()
	nodes := cluster(t, 2, func(x *node) http.Handler {
		return x.routed(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Link", "</a.css>")
			w.WriteHeader(http.StatusEarlyHints)
			body, err := io.ReadAll(r.Body)
			fmt.Fprintf(w, "%s %s %v", x.URL, body, err)
		})
	})
	x, other := nodes[0], nodes[1]
	conn, err := net.Dial("tcp", x.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "POST /?order=%s HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n", orderOf(t, x, other))
	br := bufio.NewReader(conn)
	next := func() *http.Response {
		res, err := http.ReadResponse(br, nil)
		if err != nil {
			t.Fatal(err)
		}
		return res
	}
	// Both nodes say 100, and the client gets it once.
	for seen := map[int]bool{}; !seen[http.StatusContinue] || !seen[http.StatusEarlyHints]; {
		res := next()
		res.Body.Close()
		if seen[res.StatusCode] {
			t.Errorf("%d comes twice", res.StatusCode)
		}
		seen[res.StatusCode] = true
		if res.StatusCode == http.StatusEarlyHints && res.Header.Get("Link") != "</a.css>" {
			t.Errorf("%v", res.Header)
		}
		if res.StatusCode >= http.StatusOK {
			t.Fatalf("%d before the body was sent", res.StatusCode)
		}
	}
	fmt.Fprint(conn, "body")
	res := next()
	defer res.Body.Close()
	if body, _ := io.ReadAll(res.Body); res.StatusCode != http.StatusOK || string(body) != other.URL+" body <nil>" {
		t.Errorf("%d %q", res.StatusCode, body)
	}
}

// An owner that says 100 late says it to this node only, which has begun to send the body.
// HttpClient of JDK 17 takes a second 100 for nothing, and waits for ever.
func TestRoute_SaysContinueOnce(t *testing.T) {
	t.Parallel()
	for by, serve := range servers {
		t.Run(by, func(t *testing.T) {
			read := make(chan struct{}) // by the owner
			nodes := clusterOf(t, 2, serve, func(x *node) http.Handler {
				x.tr.ExpectContinueTimeout = time.Millisecond
				return x.routed(func(w http.ResponseWriter, r *http.Request) {
					<-read
					body, err := io.ReadAll(r.Body)
					fmt.Fprintf(w, "%s %s %v", x.URL, body, err)
				})
			})
			x, other := nodes[0], nodes[1]
			var mu sync.Mutex
			var told []int
			once := sync.OnceFunc(func() { close(read) })
			defer once()
			ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{
				Got1xxResponse: func(code int, _ textproto.MIMEHeader) error {
					mu.Lock()
					defer mu.Unlock()
					told = append(told, code)
					once()
					return nil
				},
			})
			r, err := http.NewRequestWithContext(ctx, http.MethodPost, x.URL+"/?order="+orderOf(t, x, other), strings.NewReader("body"))
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("Expect", "100-continue")
			x.Client().Transport.(*http.Transport).ExpectContinueTimeout = limit
			if res := do(t, x.Server, r); res.StatusCode != http.StatusOK || res.body != other.URL+" body <nil>" {
				t.Errorf("%d %s", res.StatusCode, res.body)
			}
			mu.Lock()
			defer mu.Unlock()
			if !slices.Equal(told, []int{http.StatusContinue}) {
				t.Errorf("told %v", told)
			}
		})
	}
}

func TestAClientThatGoesAwayEndsTheRequestAtTheOwner(t *testing.T) {
	t.Parallel()
	in, ended := make(chan string, 1), make(chan error, 1)
	nodes := cluster(t, 2, func(x *node) http.Handler {
		return x.routed(func(w http.ResponseWriter, r *http.Request) {
			in <- x.URL
			<-r.Context().Done()
			ended <- r.Context().Err()
		})
	})
	x, other := nodes[0], nodes[1]
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		if at := <-in; at != other.URL {
			t.Errorf("served at %s", at)
		}
		cancel()
	}()
	res, err := x.Client().Do(request(t, x.Server, orderOf(t, x, other)).WithContext(ctx))
	if err == nil {
		res.Body.Close()
		t.Errorf("%d", res.StatusCode)
	}
	<-ended
}
