package middleware_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/middleware"
)

func TestCoalesceLeavesOtherRequestsAlone(t *testing.T) {
	f := coalesced(t, func(r *http.Request) (string, error) {
		if r.URL.Path == "/skip" {
			return "", middleware.ErrSkip
		}
		return "", errors.New("secret reason")
	}, middleware.CoalesceOptions{}, func(_ int64, w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		w.Write(b)
	})
	for _, x := range []struct {
		method, path, body string
		status             int
		want               string
	}{
		{"POST", "/", "posted", 200, "posted"},
		{"GET", "/", "a body", 200, "a body"},
		{"GET", "/skip", "", 200, ""},
		{"GET", "/", "", 400, `{"type":"` + middleware.TypeKey + `","title":"No usable key","status":400}`},
	} {
		r := exchange(t.Context(), f.Server, x.method, x.path, x.body)
		if r.err != nil || r.StatusCode != x.status || r.body != x.want {
			t.Errorf("%s %s %q: %v %v %q", x.method, x.path, x.body, r.err, r.Response, r.body)
		}
	}
	if len(f.arrived) != 0 {
		t.Error("one of them joined")
	}
}

// Answers that are for one request only: each request that has waited runs the handler itself, and
// the first one gets its answer whole.
func TestCoalesceDoesNotShare(t *testing.T) {
	large := strings.Repeat("x", 100)
	for name, answer := range map[string]func(w http.ResponseWriter){
		"Set-Cookie":       func(w http.ResponseWriter) { w.Header().Set("Set-Cookie", "user=1") },
		"no-store":         func(w http.ResponseWriter) { w.Header().Set("Cache-Control", "max-age=1, No-Store") },
		"private":          func(w http.ResponseWriter) { w.Header().Set("Cache-Control", `private="x"`) },
		"Vary *":           func(w http.ResponseWriter) { w.Header().Set("Vary", "Accept, *") },
		"too large":        func(w http.ResponseWriter) { io.WriteString(w, large) },
		"too large, later": func(w http.ResponseWriter) { io.WriteString(w, "x"); io.WriteString(w, large) },
		"flushed":          func(w http.ResponseWriter) { w.(http.Flusher).Flush() },
		"flushed, later":   func(w http.ResponseWriter) { io.WriteString(w, "x"); http.NewResponseController(w).Flush() },
	} {
		t.Run(name, func(t *testing.T) {
			begin, finish := make(chan struct{}), make(chan struct{})
			f := coalesced(t, nil, middleware.CoalesceOptions{MaxAnswer: 99}, func(n int64, w http.ResponseWriter, r *http.Request) {
				<-begin
				answer(w)
				w.WriteHeader(http.StatusOK)
				if n == 1 {
					<-finish
				}
				fmt.Fprintf(w, "run %d", n)
			})
			a := f.get(t.Context())
			from(t, f.entered, "the first run")
			b := f.get(t.Context())
			from(t, f.arrived, "the first request")
			from(t, f.arrived, "the second request")
			close(begin)
			rb := from(t, b, "the second answer, while the first run goes on")
			close(finish)
			ra := from(t, a, "the first answer")
			if ra.err != nil || rb.err != nil {
				t.Fatal(ra.err, rb.err)
			}
			if !strings.HasSuffix(ra.body, "run 1") || !strings.HasSuffix(rb.body, "run 2") || len(ra.body) != len(rb.body) {
				t.Errorf("bodies %q and %q", ra.body, rb.body)
			}
			if got := []middleware.Coalesced{<-f.how, <-f.how}; got[0] != middleware.CoalescedFirst || got[1] != middleware.CoalescedAlone {
				t.Error(got)
			}
		})
	}
}

func TestCoalesceHijack(t *testing.T) {
	begin := make(chan struct{})
	f := coalesced(t, nil, middleware.CoalesceOptions{}, func(n int64, w http.ResponseWriter, r *http.Request) {
		<-begin
		if n > 1 {
			return
		}
		conn, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		if _, err := w.Write(nil); !errors.Is(err, http.ErrHijacked) {
			t.Error(err)
		}
		rw.WriteString("HTTP/1.1 299 Mine\r\nContent-Length: 0\r\n\r\n")
		rw.Flush()
		conn.Close()
	})
	a := f.get(t.Context())
	from(t, f.entered, "the first run")
	b := f.get(t.Context())
	from(t, f.arrived, "the first request")
	from(t, f.arrived, "the second request")
	close(begin)
	if r := from(t, a, "the first answer"); r.err != nil || r.StatusCode != 299 {
		t.Error(r)
	}
	if r := from(t, b, "the second answer"); r.err != nil || r.StatusCode != http.StatusOK {
		t.Error(r)
	}
}

func TestCoalesceVary(t *testing.T) {
	release := make(chan struct{})
	f := coalesced(t, nil, middleware.CoalesceOptions{}, func(n int64, w http.ResponseWriter, r *http.Request) {
		w.Header().Add("Vary", "X-Other, accept-language")
		r.Header.Del("Accept-Language") // a handler's changes to its request are of no account
		<-release
		fmt.Fprint(w, n)
	})
	a := f.get(t.Context(), "Accept-Language", "de")
	from(t, f.entered, "the first run")
	same := f.get(t.Context(), "Accept-Language", "de")
	others := []<-chan reply{
		f.get(t.Context(), "Accept-Language", "en"), f.get(t.Context()), f.get(t.Context(), "Accept-Language", "de", "Accept-Language", "en"),
	}
	for range 5 {
		from(t, f.arrived, "requests")
	}
	close(release)
	if a, same := from(t, a, "an answer").body, from(t, same, "an answer").body; a != "1" || same != "1" {
		t.Errorf("the same language: %q and %q", a, same)
	}
	for _, ch := range others {
		if r := from(t, ch, "an answer"); r.body == "1" {
			t.Error("another language got the first one's answer")
		}
	}
}

func TestCoalesceEarlyHints(t *testing.T) {
	f := coalesced(t, nil, middleware.CoalesceOptions{}, func(_ int64, w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Link", "</style.css>")
		w.WriteHeader(http.StatusEarlyHints)
		w.Header().Del("Link")
		w.WriteHeader(http.StatusNoContent)
		if _, err := w.Write([]byte("x")); !errors.Is(err, http.ErrBodyNotAllowed) {
			t.Error(err)
		}
	})
	conn, err := net.Dial("tcp", f.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprint(conn, "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
	r := bufio.NewReader(conn)
	for _, want := range []struct {
		status int
		link   string
	}{{103, "</style.css>"}, {204, ""}} {
		resp, err := http.ReadResponse(r, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != want.status || resp.Header.Get("Link") != want.link {
			t.Error(resp)
		}
	}
}

// Many users ask for the same at the same time, told apart by a token, a cookie or another header.
// Each must get its own answer, and some requests of the same user have to share a run.
func TestCoalesceUserNeverGetsAnothersAnswer(t *testing.T) {
	t.Parallel()
	var runs atomic.Int64
	h := middleware.Coalesce(nil, nil, nil)(http.HandlerFunc(
		func(w http.ResponseWriter, r *http.Request) {
			runs.Add(1)
			time.Sleep(time.Millisecond) // so that some meet
			fmt.Fprint(w, r.Header.Get("Authorization"), "/", r.Header.Get("Cookie"), "/", r.Header.Get("X-User"))
		}))
	s := serving(t, h)
	const users, rounds, times = 5, 40, 3
	var wg sync.WaitGroup
	for i := range users * 3 {
		for range times {
			wg.Go(func() {
				var who [3]string
				who[i%3] = fmt.Sprint("user", i/3)
				want := strings.Join(who[:], "/")
				for range rounds {
					var headers []string
					for j, name := range []string{"Authorization", "Cookie", "X-User"} {
						if who[j] != "" {
							headers = append(headers, name, who[j])
						}
					}
					if r := exchange(t.Context(), s, "GET", "/me", "", headers...); r.err != nil || r.body != want {
						t.Errorf("%q got %q, %v", want, r.body, r.err)
						return
					}
				}
			})
		}
	}
	wg.Wait()
	if n := runs.Load(); n >= users*3*rounds*times {
		t.Errorf("%d runs: nothing was shared, so nothing was tried", n)
	}
}
