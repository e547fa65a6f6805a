package middleware_test

import (
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/internal/await"
	"github.com/holdfast-go/holdfast/internal/coordtest"
	"github.com/holdfast-go/holdfast/internal/leak"
	"github.com/holdfast-go/holdfast/internal/takes"
)

func TestMain(m *testing.M) {
	if order := os.Getenv(processEnv); order != "" {
		os.Exit(processMain(order))
	}
	takes.SideBySide(4)
	leak.Main(m)
}

// start returns a coordinator that is closed when the test ends.
var start = coordtest.Start

// serve starts a server whose client has connections of its own.
func serve(t testing.TB, h http.Handler) *httptest.Server {
	t.Helper()
	return serveAt(t, "127.0.0.1:0", h)
}

func serveAt(t testing.TB, addr string, h http.Handler) *httptest.Server {
	t.Helper()
	l, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewUnstartedServer(h)
	s.Listener.Close()
	s.Listener = l
	s.Config.ErrorLog = log.New(complaints{t}, "", 0)
	s.Start()
	t.Cleanup(func() {
		s.Client().CloseIdleConnections()
		s.Close()
	})
	return s
}

// complaints fails the test for a server's log lines: panics.
type complaints struct{ t testing.TB }

func (c complaints) Write(line []byte) (int, error) {
	c.t.Errorf("%s", line)
	return len(line), nil
}

// response is one that was read to its end.
type response struct {
	*http.Response
	body string
}

// do sends a request.
func do(t testing.TB, s *httptest.Server, r *http.Request) response {
	t.Helper()
	res, err := s.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response{res, string(body)}
}

// waiting waits until n callers wait at c.
func waiting(t testing.TB, c *coord.Coordinator, n int) {
	t.Helper()
	await.Until(t, fmt.Sprint(n, " waiters"), func() bool { return c.Stats().Waiting == n })
}

// idle fails the test if anything is locked or waited for.
func idle(t testing.TB, c *coord.Coordinator) {
	t.Helper()
	await.Until(t, "an idle coordinator", func() bool { s := c.Stats(); return s.Locked == 0 && s.Waiting == 0 })
}
