package middleware_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/middleware"
)

// A client's mistake, and a limit that a request has, are told in the same way at the owner and by
// way of Route. Route logs nothing.
func TestRoute_LimitsAsAtTheOwner(t *testing.T) {
	t.Parallel()
	var logged lockedBuffer
	logger := slog.New(slog.NewTextHandler(&logged, nil))
	nodes := cluster(t, 2, func(x *node) http.Handler {
		h := middleware.Route(x.c, byOrder, &middleware.RouteOptions{Transport: x.tr, Logger: logger})(http.HandlerFunc(
			func(w http.ResponseWriter, r *http.Request) {
				if r.Method == http.MethodPut { // works for as long as it may
					<-r.Context().Done()
					w.WriteHeader(http.StatusGatewayTimeout)
					return
				}
				_, err := io.Copy(io.Discard, r.Body)
				if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
					http.Error(w, err.Error(), http.StatusRequestEntityTooLarge)
				} else if err != nil {
					http.Error(w, err.Error(), http.StatusBadRequest)
				}
			}))
		limited := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodPut {
				ctx, cancel := context.WithTimeout(r.Context(), soon)
				defer cancel()
				r = r.WithContext(ctx)
			}
			h.ServeHTTP(w, r)
		})
		return http.MaxBytesHandler(limited, 100_000)
	})
	x, other := nodes[0], nodes[1]
	for name, order := range map[string]string{"at the owner": orderOf(t, other, x), "by way of Route": orderOf(t, x, other)} {
		target := "/?order=" + order
		large := strings.Repeat("x", 200_000)
		send := func(method string, body io.Reader) (int, string) {
			r, _ := http.NewRequestWithContext(t.Context(), method, x.URL+target, body)
			res := do(t, x.Server, r)
			return res.StatusCode, res.body
		}
		for what, body := range map[string]io.Reader{
			"with its length": strings.NewReader(large), "chunked": io.MultiReader(strings.NewReader(large)),
		} {
			if status, text := send(http.MethodPost, body); status != http.StatusRequestEntityTooLarge {
				t.Errorf("%s, a body that is too large, %s: %d %s", name, what, status, text)
			}
		}
		if status, text := send(http.MethodPut, nil); status != http.StatusGatewayTimeout {
			t.Errorf("%s, a request that takes too long: %d %s", name, status, text)
		}
		if status, text := sendRaw(t, x, "POST "+target+" HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nbody\r\nno length\r\n"); status != http.StatusBadRequest {
			t.Errorf("%s, a body that is malformed: %d %s", name, status, text)
		}
		if s := logged.String(); s != "" {
			t.Errorf("%s: the log: %s", name, s)
		}
	}
}

// sendRaw sends text that no client would send as a request.
func sendRaw(t *testing.T, x *node, text string) (status int, body string) {
	t.Helper()
	conn, err := net.Dial("tcp", x.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprint(conn, text)
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return 0, err.Error()
	}
	defer res.Body.Close()
	b, _ := io.ReadAll(res.Body)
	return res.StatusCode, string(b)
}
