package middleware_test

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/takes"
	"github.com/holdfast-go/holdfast/middleware"
)

// A server that closes idle connections before the other nodes do makes them lose requests. The log
// says so, once.
func TestRoute_IdleTimes(t *testing.T) {
	t.Parallel()
	takes.Seconds(t)
	for name, x := range map[string]struct {
		idle, read time.Duration // of the server
		warns      int
	}{
		"for ever":    {0, 0, 0},
		"longer":      {time.Minute, 0, 0},
		"as long":     {middleware.NewTransport().IdleConnTimeout, 0, 1},
		"shorter":     {5 * time.Second, time.Minute, 1},
		"ReadTimeout": {0, 5 * time.Second, 1},
	} {
		t.Run(name, func(t *testing.T) {
			var logged lockedBuffer
			serve := func(t testing.TB, h http.Handler) *httptest.Server {
				s := httptest.NewUnstartedServer(h)
				s.Config.IdleTimeout, s.Config.ReadTimeout = x.idle, x.read
				return begin(t, s, s.Start)
			}
			nodes := clusterOf(t, 2, serve, func(n *node) http.Handler {
				return middleware.Route(n.c, byOrder, &middleware.RouteOptions{
					Transport: n.tr, Logger: slog.New(slog.NewTextHandler(&logged, nil)),
				})(nothing)
			})
			for range 3 {
				do(t, nodes[0].Server, request(t, nodes[0].Server, orderOf(t, nodes[0], nodes[1])))
			}
			if n := strings.Count(logged.String(), "IdleConnTimeout"); n != x.warns {
				t.Errorf("%d warnings: %s", n, logged.String())
			}
		})
	}
}
