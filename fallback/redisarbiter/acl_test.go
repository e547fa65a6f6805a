package redisarbiter_test

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/fallback/arbitertest"
	"github.com/holdfast-go/holdfast/fallback/redisarbiter"
	"github.com/holdfast-go/holdfast/gossip"
	"github.com/holdfast-go/holdfast/internal/await"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/takes"
)

// readmeACL is the rule of README's user for namespaces that begin with prefix, without its name
// and password.
func readmeACL(t *testing.T, prefix string) []string {
	t.Helper()
	text, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	rule := regexp.MustCompile(`(?m)^    (redis-cli ACL SETUSER (?:.*\\\n)*.*)$`).FindSubmatch(text)
	if rule == nil {
		t.Fatal("README has no ACL")
	}
	user, fields := []string{"ACL", "SETUSER", "shop", "on", ">secret"}, redistest.Pasted(t, string(rule[1]))
	if len(fields) < len(user) || !slices.Equal(fields[:len(user)], user) {
		t.Fatalf("README has another user: %q", fields)
	}
	fields = fields[len(user):]
	for _, f := range fields { // the shell has taken the quotes away
		if strings.ContainsAny(f, `'"\ `) {
			t.Fatalf("README's rule has %q", f)
		}
	}
	for i, f := range fields {
		fields[i] = strings.Replace(f, "{shop:", "{"+prefix, 1)
	}
	return fields
}

// onCluster returns the rights that README's user needs in addition on a Redis Cluster.
func onCluster(t *testing.T) []string { return needs(t, "on a Redis Cluster also") }

// needs returns the rights that README's user needs in addition, after some words of README.
func needs(t *testing.T, words string) []string {
	t.Helper()
	text, err := os.ReadFile("../../README.md")
	more := regexp.MustCompile(strings.ReplaceAll(regexp.QuoteMeta(words), " ", `\s`) + "\\s`([^`]*)`").FindSubmatch(text)
	if err != nil || more == nil {
		t.Fatalf("README does not say what is needed %s: %v", words, err)
	}
	return strings.Fields(string(more[1]))
}

// commands returns the commands that a rule permits.
func commands(rule []string) (all []string) {
	for _, f := range rule {
		if name, ok := strings.CutPrefix(f, "+"); ok {
			all = append(all, name)
		}
	}
	return all
}

// permit gives README's user to a server that is new.
func permit(t *testing.T, s *redistest.Server, more ...string) {
	t.Helper()
	c := s.Client(t)
	args := []any{"ACL", "SETUSER", "shop", "on", ">secret"}
	for _, f := range append(readmeACL(t, arbitertest.NamespacePrefix), more...) {
		args = append(args, f)
	}
	for _, cmd := range [][]any{args, {"CONFIG", "RESETSTAT"}} {
		if err := c.Do(t.Context(), cmd...).Err(); err != nil {
			t.Fatal(err)
		}
	}
}

// seen enters the commands that a server was asked for, and fails the test for each refused one.
func seen(t *testing.T, s *redistest.Server, into map[string]bool) {
	t.Helper()
	stats, err := s.Client(t).Info(t.Context(), "commandstats").Result()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`(?m)^cmdstat_(\S+?):`).FindAllStringSubmatch(stats, -1) {
		into[m[1]] = true
	}
	log, err := s.Client(t).ACLLog(t.Context(), 100).Result()
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range log {
		t.Errorf("refused: %s %q (%s)", e.Reason, e.Object, e.Context)
	}
}

// login makes a client the user's. It does not tell its name, which needs CLIENT.
func login(o *redis.UniversalOptions) *redis.UniversalOptions {
	o.Username, o.Password, o.DisableIdentity, o.ContextTimeoutEnabled = "shop", "secret", true, true
	return o
}

func userOf(t *testing.T, o *redis.UniversalOptions) redis.UniversalClient {
	c := redis.NewUniversalClient(login(o))
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// everything runs the conformance suite, and a cluster of coordinators that lock, share and leave. Then the servers forget the scripts.
func everything(t *testing.T, client func() redis.UniversalClient, servers ...*redistest.Server) {
	t.Run("suite", func(t *testing.T) {
		arbitertest.Run(t, arbitertest.Fixture{New: func(*testing.T) fallback.Arbiter { return redisarbiter.New(client(), cold) }})
	})
	t.Run("rows", func(t *testing.T) { // which coordinators look at in the background only, after some RenewEvery
		settings := plain
		settings.Namespace = arbitertest.NamespacePrefix + "rows"
		n := attachTo(t, client(), cold, settings)
		use(t, n)
		if _, err := n.(fallback.Lister).Rows(t.Context(), []uint32{0, 1}); err != nil {
			t.Error(err)
		}
	})
	t.Run("nodes", func(t *testing.T) {
		arbiter := redisarbiter.New(client(), cold)
		var nodes []*coord.Coordinator
		for range 2 {
			c, err := coord.New(t.Context(), arbiter, &coord.Options{
				Namespace: arbitertest.NamespacePrefix + "nodes", Partitions: 31, SessionTTL: 3 * time.Second, Grace: 4 * time.Second,
				Cluster: &coord.Cluster{Membership: gossip.Start, Gossip: "127.0.0.1:0", Debounce: 100 * time.Millisecond},
			})
			if err != nil {
				t.Fatal(err)
			}
			nodes = append(nodes, c)
		}
		if err := nodes[0].Settled(t.Context(), 2); err != nil {
			t.Fatal(err)
		}
		for i := range 100 {
			if err := nodes[i%2].Do(t.Context(), fmt.Sprint("key", i/2), func(context.Context, coord.Lock) error { return nil }); err != nil {
				t.Fatal(err)
			}
		}
		if err := nodes[0].RotateSecret(t.Context()); err != nil {
			t.Error(err)
		}
		for _, s := range servers {
			if err := s.Client(t).ScriptFlush(t.Context()).Err(); err != nil {
				t.Error(err)
			}
		}
		for _, c := range nodes {
			if err := c.Close(t.Context()); err != nil {
				t.Error(err)
			}
		}
	})
}

// TestReadmeACL runs everything as README's user on real servers. Nothing is refused, and each command that it permits is used.
func TestReadmeACL(t *testing.T) {
	takes.Seconds(t)
	t.Parallel()
	used := make(map[string]bool)
	t.Run("standalone", func(t *testing.T) {
		s, replica := redistest.Start(t), redistest.Start(t)
		permit(t, s)
		client := func() redis.UniversalClient { return userOf(t, &redis.UniversalOptions{Addrs: []string{s.Addr}}) }
		everything(t, client, s)
		if err := replica.Replicate(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		settings := plain
		settings.Namespace = arbitertest.NamespacePrefix + "replicas"
		n := attachTo(t, client(), &redisarbiter.Options{ColdStart: true, Replicas: 1, ReplicaTimeout: 10 * time.Second}, settings)
		use(t, n)
		open(t, n, "alice")
		seen(t, s, used)
	})
	t.Run("observers", func(t *testing.T) {
		s := redistest.Start(t)
		permit(t, s, needs(t, "`ObserverClock` needs")...)
		settings := plain
		settings.Namespace = arbitertest.NamespacePrefix + "observers"
		n := attachTo(t, userOf(t, &redis.UniversalOptions{Addrs: []string{s.Addr}}), &redisarbiter.Options{ColdStart: true, ObserverClock: true}, settings)
		for i := range 300 { // of more than 256 sessions a renewal tells of some
			if err := enterSession(t.Context(), n, fmt.Sprint("session", i)); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := n.Renew(t.Context(), "session0", fallback.Registration{TTL: 10 * time.Second}); err != nil {
			t.Error(err)
		}
		seen(t, s, make(map[string]bool))
	})
	t.Run("Sentinel", func(t *testing.T) {
		s := redistest.Start(t)
		permit(t, s)
		sentinel := redistest.StartSentinel(t, s, "shop")
		client := func() redis.UniversalClient {
			return userOf(t, &redis.UniversalOptions{Addrs: []string{sentinel}, MasterName: "shop"})
		}
		everything(t, client, s)
		seen(t, s, make(map[string]bool)) // the sentinel's as well
	})
	t.Run("Cluster", func(t *testing.T) {
		nodes := redistest.StartCluster(t, 3)
		var addrs []string
		for _, s := range nodes {
			permit(t, s, onCluster(t)...)
			addrs = append(addrs, s.Addr)
		}
		client := func() redis.UniversalClient {
			return userOf(t, &redis.UniversalOptions{Addrs: addrs, IsClusterMode: true})
		}
		everything(t, client, nodes...)
		for _, s := range nodes {
			seen(t, s, used)
		}
	})
	t.Run("all replicas of a Cluster", func(t *testing.T) {
		settings := replicas
		settings.Namespace = arbitertest.NamespacePrefix + settings.Namespace
		c, nodes := keepingCluster(t)
		m, err := c.MasterForKey(t.Context(), "{"+settings.Namespace+":s}")
		if err != nil {
			t.Fatal(err)
		}
		more := slices.Concat(onCluster(t), needs(t, "`AllReplicas` needs"), needs(t, "as well, and on a Redis Cluster"))
		var addrs []string
		for _, s := range nodes {
			if s.Addr == m.Options().Addr {
				followInCluster(t, nodes, s)
			}
			permit(t, s, more...)
			addrs = append(addrs, s.Addr)
		}
		client := userOf(t, &redis.UniversalOptions{Addrs: addrs, IsClusterMode: true})
		n := attachTo(t, client, onAll, settings)
		await.Until(t, "a session is opened", func() bool {
			err := enterSession(t.Context(), n, "a")
			if redis.HasErrorPrefix(err, "NOPERM") {
				t.Fatal(err)
			}
			return err == nil
		})
		for _, s := range nodes {
			seen(t, s, make(map[string]bool))
		}
	})
	for _, name := range commands(append(readmeACL(t, ""), onCluster(t)...)) {
		if !used[name] {
			t.Errorf("+%s is not needed", name)
		}
	}
}

// Namespaces share their scripts: a server keeps each text that it has ever been given.
func TestNamespacesShareScripts(t *testing.T) {
	s := redistest.Start(t)
	c := s.Client(t)
	count := func() string {
		text, err := c.Info(t.Context(), "memory").Result()
		if err != nil {
			t.Fatal(err)
		}
		return regexp.MustCompile(`number_of_cached_scripts:\d+`).FindString(text)
	}
	use(t, attach(t, c, cold))
	first := count()
	for _, name := range []string{"a", "b:p3", "ö", "x.y", "p7", "c:c", `'"\`} {
		settings := plain
		settings.Namespace = name
		n := attachTo(t, c, cold, settings)
		use(t, n)
		got := make(chan fallback.Message, 1)
		stop, err := n.Listen(t.Context(), "holder", func(m fallback.Message) { got <- m })
		if err != nil {
			t.Fatal(err)
		}
		lock(t, n, 3, "wanted", id("holder", 1))
		lock(t, n, 3, "wanted", id("other", 2))
		if m := <-got; m.Kind != fallback.Ask || m.Key != "wanted" {
			t.Errorf("%s: %+v", name, m)
		}
		stop()
	}
	if now := count(); now != first {
		t.Errorf("%s for one namespace, %s for eight", first, now)
	}
}
