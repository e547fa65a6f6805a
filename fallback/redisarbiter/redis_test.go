package redisarbiter_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/fallback/arbitertest"
	"github.com/holdfast-go/holdfast/fallback/redisarbiter"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/takes"
)

// restricted is a user of a server that may touch nothing but one prefix's keys and channels, and
// may not administer.
func restricted(name, password, prefix string) []string {
	return []string{"--user", name, "on", ">" + password, "~" + prefix + "*", "&" + prefix + "*", "+@all", "-@dangerous", "+info"}
}

func TestRedisConforms(t *testing.T) {
	// The arbiter's user may touch only keys and channels of the namespaces under test.
	shared := redistest.Start(t, restricted("app", "secret", "{"+arbitertest.NamespacePrefix)...)
	opts := &redisarbiter.Options{ColdStart: true}
	arbitertest.Run(t, arbitertest.Fixture{
		New: func(t *testing.T) fallback.Arbiter {
			c := dial(t, shared.Addr, func(o *redis.Options) { o.Username, o.Password = "app", "secret" })
			return redisarbiter.New(c, opts)
		},
		NewServer: func(t *testing.T) arbitertest.Server {
			takes.Seconds(t)
			s := redistest.Start(t)
			return arbitertest.Server{
				Arbiter: redisarbiter.New(s.Client(t), opts),
				Save:    func() { save(t, s) },
				Crash:   func() { restart(t, s) },
			}
		},
	})
}

// A client that heeds contexts by itself is called without a goroutine.
func TestRedisConformsWithClientThatHeedsContexts(t *testing.T) {
	takes.Seconds(t)
	shared := redistest.Start(t)
	arbitertest.Run(t, arbitertest.Fixture{
		New: func(t *testing.T) fallback.Arbiter {
			c := dial(t, shared.Addr, func(o *redis.Options) { o.ContextTimeoutEnabled, o.MaxRetries = true, -1 })
			return redisarbiter.New(c, &redisarbiter.Options{ColdStart: true})
		},
	})
}

// dial returns a client of a server, closed when the test ends.
func dial(t testing.TB, addr string, set ...func(*redis.Options)) *redis.Client {
	o := &redis.Options{Addr: addr, DialTimeout: time.Minute} // longer than any machine is slow
	for _, f := range set {
		f(o)
	}
	c := redis.NewClient(o)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// save writes the server's data to the file that it reads when it is started again.
func save(t *testing.T, s *redistest.Server) {
	t.Helper()
	if err := s.Client(t).Save(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
}

// restart kills the server and starts another process with the data last saved.
func restart(t *testing.T, s *redistest.Server) {
	t.Helper()
	if err := s.Restart(); err != nil {
		t.Fatal(err)
	}
}

var _ = time.Second
var _ = os.Remove
var _ = filepath.Join
