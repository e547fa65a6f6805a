package middleware_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/virtual"
	"github.com/holdfast-go/holdfast/middleware"
	"github.com/holdfast-go/holdfast/middleware/storetest"
)

func TestMemoryStore(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(*testing.T) middleware.Store { return middleware.NewMemoryStore(nil) })
}

func TestRedisStore(t *testing.T) {
	t.Parallel()
	client := redistest.Start(t).Client(t)
	n := 0
	storetest.Run(t, func(*testing.T) middleware.Store {
		n++
		return middleware.NewRedisStore(client, &middleware.RedisStoreOptions{Prefix: fmt.Sprint("test", n, ":")})
	})
}

// The ACL in the documents is enough.
func TestRedisStoreWithAnACL(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	if err := s.Client(t).Do(t.Context(), "ACL", "SETUSER", "shop", "on", ">secret", "~idempotency:*",
		"+eval", "+get", "+getrange", "+set").Err(); err != nil {
		t.Fatal(err)
	}
	client := redis.NewClient(&redis.Options{Addr: s.Addr, Username: "shop", Password: "secret"})
	t.Cleanup(func() { _ = client.Close() })
	n := 0
	storetest.Run(t, func(*testing.T) middleware.Store {
		n++
		return middleware.NewRedisStore(client, &middleware.RedisStoreOptions{Prefix: fmt.Sprint("idempotency:test", n, ":")})
	})
}

func TestRedisStoreOnACluster(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("three servers")
	}
	client := redistest.ClusterClient(t, redistest.StartCluster(t, 3))
	n := 0
	storetest.Run(t, func(*testing.T) middleware.Store {
		n++
		return middleware.NewRedisStore(client, &middleware.RedisStoreOptions{Prefix: fmt.Sprint("test", n, ":")})
	})
}

// As long as a duration can be is no mistake.
func TestRecordsThatAreKeptForEver(t *testing.T) {
	for name, s := range map[string]middleware.Store{
		"memory": middleware.NewMemoryStore(nil), "redis": middleware.NewRedisStore(redistest.Start(t).Client(t), nil),
	} {
		if err := s.Put(t.Context(), "k", []byte("record"), 5, math.MaxInt64); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if b, err := s.Get(t.Context(), "k"); string(b) != "record" || err != nil {
			t.Errorf("%s: %q, %v", name, b, err)
		}
	}
}

func TestRedisStoreKeys(t *testing.T) {
	client := redistest.Start(t).Client(t)
	s := middleware.NewRedisStore(client, nil)
	if err := s.Put(t.Context(), "k", []byte("record"), 5, 90*time.Second); err != nil {
		t.Fatal(err)
	}
	if got := client.Get(t.Context(), "idempotency:k").Val(); got != "00000000000000000005record" {
		t.Errorf("%q at the server", got)
	}
	if ttl := client.PTTL(t.Context(), "idempotency:k").Val(); ttl <= 0 || ttl > 90*time.Second {
		t.Errorf("it expires in %v", ttl)
	}
	client.Set(t.Context(), "idempotency:k", "foreign", 0)
	if b, err := s.Get(t.Context(), "k"); err == nil {
		t.Errorf("%q was taken for a record", b)
	}
}

func TestMemoryStoreEvictsWhatExpiresFirst(t *testing.T) {
	var evicted []string
	const size = 128 + 1 + 100 // of each record
	s := middleware.NewMemoryStore(&middleware.MemoryStoreOptions{MaxBytes: 3 * size, Evicted: func(key string) { evicted = append(evicted, key) }})
	record := []byte(strings.Repeat("x", 100))
	put := func(key string, ttl time.Duration) {
		t.Helper()
		if err := s.Put(t.Context(), key, record, 1, ttl); err != nil {
			t.Fatal(err)
		}
	}
	put("a", 3*time.Hour)
	put("b", time.Hour)
	put("c", 2*time.Hour)
	put("c", 2*time.Hour) // in its own place
	if evicted != nil {
		t.Fatalf("%q evicted while there was room", evicted)
	}
	put("d", time.Hour)
	put("e", 4*time.Hour)
	if want := []string{"b", "d"}; !slices.Equal(evicted, want) {
		t.Errorf("%q evicted, want %q", evicted, want)
	}
	for _, key := range []string{"a", "c", "e"} {
		if _, err := s.Get(t.Context(), key); err != nil {
			t.Errorf("%s: %v", key, err)
		}
	}
	if err := s.Put(t.Context(), "f", make([]byte, 3*size), 1, time.Hour); err == nil {
		t.Error("a record larger than all that there is room for was stored")
	}
	if len(evicted) != 2 {
		t.Errorf("%q evicted for a record that was refused", evicted)
	}
}

func TestMemoryStoreForgetsWhatExpired(t *testing.T) {
	virtual.Test(t, func(t *testing.T) {
		const n = 100
		s := middleware.NewMemoryStore(&middleware.MemoryStoreOptions{
			MaxBytes: n * (128 + 3), Evicted: func(key string) { t.Errorf("%q evicted, although others had expired", key) },
		})
		for i := range 10 * n {
			if i%n == 0 {
				time.Sleep(time.Minute)
			}
			if err := s.Put(t.Context(), fmt.Sprintf("%03d", i%1000), nil, 1, time.Minute); err != nil {
				t.Fatal(err)
			}
		}
	})
}
