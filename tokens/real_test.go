package tokens_test

import (
	"context"
	"errors"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/oauth2"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback/redisarbiter"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/tokens"
	"github.com/holdfast-go/holdfast/tokens/storetest"
)

func TestMemoryStoreConforms(t *testing.T) {
	storetest.Run(t, func(*testing.T) tokens.Store { return tokens.NewMemoryStore() })
}

func TestRedisStoreConforms(t *testing.T) {
	s := redistest.Start(t)
	client := s.Client(t)
	storetest.Run(t, func(t *testing.T) tokens.Store { return tokens.NewRedisStore(client, t.Name()+":") })
	t.Run("what is damaged is told from what is not there", func(t *testing.T) {
		client.HSet(t.Context(), "x:a", "r", "{")
		if _, err := tokens.NewRedisStore(client, "x:").Load(t.Context(), "a"); err == nil || errors.Is(err, tokens.ErrNoAccount) {
			t.Error(err)
		}
	})
}

// readmeACL is the rule of README for the store's user.
func readmeACL(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile("../README.md")
	rule := regexp.MustCompile("`tokens.NewRedisStore\\(client, \"tokens:\"\\)` needs `([^`]*)`").FindSubmatch(text)
	if err != nil || rule == nil {
		t.Fatalf("README does not say what the store needs: %v", err)
	}
	return strings.Fields(string(rule[1]))
}

// The ACL in the documents is enough, no other command is used, and none that hurts others is
// permitted.
func TestRedisStoreWithAnACL(t *testing.T) {
	s := redistest.Start(t)
	admin := s.Client(t)
	args := []any{"ACL", "SETUSER", "shop", "on", ">secret"}
	for _, right := range readmeACL(t) {
		args = append(args, right)
	}
	if err := admin.Do(t.Context(), args...).Err(); err != nil {
		t.Fatal(err)
	}
	client := redis.NewClient(&redis.Options{Addr: s.Addr, Username: "shop", Password: "secret", DisableIdentity: true})
	t.Cleanup(func() { // after the subtests, which are parallel
		_ = client.Close()
		refused, err := admin.ACLLog(context.Background(), 100).Result()
		if err != nil {
			t.Error(err)
		}
		for _, x := range refused {
			t.Errorf("refused: %s %q (%s)", x.Reason, x.Object, x.Context)
		}
	})
	for _, harm := range []string{"CLIENT KILL TYPE normal", "CLIENT PAUSE 1", "SCRIPT FLUSH", "SCRIPT KILL", "FUNCTION FLUSH"} {
		var args []any
		for word := range strings.FieldsSeq(harm) {
			args = append(args, word)
		}
		if err := client.Do(t.Context(), args...).Err(); err == nil || !redis.HasErrorPrefix(err, "NOPERM") {
			t.Errorf("%s: %v", harm, err)
		}
	}
	if err := admin.ACLLogReset(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	storetest.Run(t, func(t *testing.T) tokens.Store { return tokens.NewRedisStore(client, "tokens:"+t.Name()+":") })
}

// An account that was forgotten leaves nothing for long, and one that has come back stays.
func TestRedisStoreForgets(t *testing.T) {
	client := redistest.Start(t).Client(t)
	s := tokens.NewRedisStore(client, "")
	for i, x := range []struct {
		r    tokens.Record
		gone bool
	}{{tokens.Record{RefreshToken: tokens.NewSecret("x")}, false}, {tokens.Record{}, true}, {tokens.Record{RefreshToken: tokens.NewSecret("y")}, false}} {
		x.r.Fence = uint64(i + 1)
		if err := s.Save(t.Context(), "a", x.r); err != nil {
			t.Fatal(err)
		}
		ttl, err := client.PTTL(t.Context(), "a").Result()
		if err != nil || (ttl > 0) != x.gone || ttl > 24*time.Hour {
			t.Errorf("%+v: TTL %v, %v", x.r, ttl, err)
		}
	}
}

func processes(t *testing.T, n int, url string, client *redis.Client, opts *tokens.Options) (all []*tokens.Keeper) {
	t.Helper()
	for range n {
		locks, err := coord.New(context.Background(), redisarbiter.New(client, &redisarbiter.Options{ColdStart: true}), &coord.Options{Partitions: 31})
		if err != nil {
			t.Fatal(err)
		}
		k, err := tokens.New(locks, config(url), tokens.NewRedisStore(client, "tokens:"), opts)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			k.Close()
			_ = locks.Close(context.Background())
		})
		all = append(all, k)
	}
	return all
}

// expired is a token that has to be refreshed at once.
func expired() *oauth2.Token {
	return &oauth2.Token{AccessToken: "a1", RefreshToken: "r1", Expiry: time.Now().Add(-time.Second)}
}

func TestOneRefreshOverHTTPAndRedis(t *testing.T) {
	p := newProvider()
	server := httptest.NewServer(p)
	defer server.Close()
	all := processes(t, 3, server.URL, redistest.Start(t).Client(t), &tokens.Options{HTTPClient: server.Client()})
	if err := all[0].Replace(t.Context(), "alice", expired()); err != nil {
		t.Fatal(err)
	}
	var work sync.WaitGroup
	for _, k := range all {
		for range 32 {
			work.Go(func() {
				if got, err := k.Token(t.Context(), "alice"); err != nil || got.AccessToken != "a2" {
					t.Errorf("got %v, %v", got, err)
				}
			})
		}
	}
	work.Wait()
	p.want(t, 1)
}

func TestAProviderThatIsDownLeavesNoDoubt(t *testing.T) {
	p := newProvider()
	server := httptest.NewServer(p)
	defer server.Close()
	const gone = "http://127.0.0.1:1" // no server listens there
	client := redistest.Start(t).Client(t)
	down := processes(t, 1, gone, client, &tokens.Options{HTTPClient: server.Client()})[0]
	up := processes(t, 1, server.URL, client, &tokens.Options{HTTPClient: server.Client()})[0]
	if err := down.Replace(t.Context(), "alice", expired()); err != nil {
		t.Fatal(err)
	}
	if _, err := down.Token(t.Context(), "alice"); err == nil || errors.Is(err, tokens.ErrInDoubt) {
		t.Errorf("got %v", err)
	}
	if got, err := up.Token(t.Context(), "alice"); err != nil || got.AccessToken != "a2" {
		t.Errorf("got %v, %v", got, err)
	}
	p.want(t, 1)
}

func TestAConnectionThatBreaksLeavesDoubt(t *testing.T) {
	p := newProvider()
	server := httptest.NewServer(p)
	defer server.Close()
	p.set(nil, unheard) // net/http closes the connection
	all := processes(t, 2, server.URL, redistest.Start(t).Client(t), &tokens.Options{HTTPClient: server.Client()})
	if err := all[0].Replace(t.Context(), "alice", expired()); err != nil {
		t.Fatal(err)
	}
	for _, k := range all {
		if _, err := k.Token(t.Context(), "alice"); !errors.Is(err, tokens.ErrInDoubt) {
			t.Errorf("got %v", err)
		}
	}
	p.want(t, 1)
}
