package middleware_test

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/fallback/redisarbiter"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/middleware"
)

// Records on the locks' server can fill it, and then no lock can be taken. The log says so at the
// start.
func TestIdempotent_WarnsOfSharedMemory(t *testing.T) {
	t.Parallel()
	limited := redistest.Start(t, "--maxmemory", "64mb", "--maxmemory-policy", "noeviction")
	apart := redistest.Start(t, "--maxmemory", "64mb", "--maxmemory-policy", "noeviction")
	evicting := redistest.Start(t, "--maxmemory", "64mb", "--maxmemory-policy", "volatile-lru")
	unlimited := redistest.Start(t)
	for name, x := range map[string]struct {
		locks, records *redistest.Server
		want           string // of the log; empty: nothing
	}{
		"one server, with a limit":    {limited, limited, "no lock can be taken"},
		"one server, without a limit": {unlimited, unlimited, ""},
		"the records' server has one": {unlimited, apart, ""},
		"the records' server evicts":  {unlimited, evicting, "executed again"},
		"the locks' server has one":   {limited, unlimited, ""},
	} {
		t.Run(name, func(t *testing.T) {
			var logged lockedBuffer
			c := start(t, redisarbiter.New(x.locks.Client(t), &redisarbiter.Options{ColdStart: true}), nil)
			middleware.Idempotent(c, middleware.NewRedisStore(x.records.Client(t), nil), middleware.Unscoped, &middleware.IdempotentOptions{
				Logger: slog.New(slog.NewTextHandler(&logged, nil)),
			})
			if got := logged.String(); (got != "") != (x.want != "") || !strings.Contains(got, x.want) {
				t.Errorf("the log: %q, want %q", got, x.want)
			}
		})
	}
}
