package redisarbiter_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/fallback/redisarbiter"
	"github.com/holdfast-go/holdfast/internal/await"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/takes"
)

// wantAdvice checks that there is one advice, which contains named, or none at all.
func wantAdvice(t *testing.T, n fallback.Namespace, named string) {
	t.Helper()
	advice, err := n.(fallback.Adviser).Advise(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if named == "" && len(advice) > 0 || named != "" && (len(advice) != 1 || !strings.Contains(advice[0], named)) {
		t.Errorf("got %q, want what says %q", advice, named)
	}
}

func TestReplicationThatLosesWritesIsAdvisedAgainst(t *testing.T) {
	t.Parallel()
	s, replica := redistest.Start(t, "--repl-diskless-sync-delay", "0"), redistest.Start(t)
	c := s.Client(t)
	n := attach(t, c, cold)
	wantAdvice(t, n, "")
	replicate(t, replica, s)
	wantAdvice(t, n, "redisarbiter.Options.Replicas")
	wantAdvice(t, attach(t, c, &redisarbiter.Options{ColdStart: true, Replicas: 1}), "")
	if err := c.ConfigSet(t.Context(), "min-replicas-to-write", "1").Err(); err != nil {
		t.Fatal(err)
	}
	wantAdvice(t, n, "")
}

// advises checks that an advice contains named.
func advises(t *testing.T, n fallback.Namespace, named string) {
	t.Helper()
	advice, err := n.(fallback.Adviser).Advise(t.Context())
	if err != nil || !slices.ContainsFunc(advice, func(s string) bool { return strings.Contains(s, named) }) {
		t.Errorf("%q, %v, want %q", advice, err, named)
	}
}

// Where a replica is away that sessions need, advice says so, and names the action to avoid; also
// to a process that only looks on.
func TestAdvice_AReplicaThatSessionsNeedIsAway(t *testing.T) {
	takes.Seconds(t)
	t.Parallel()
	s := redistest.Start(t, always...)
	c := s.Client(t)
	settings := replicas
	settings.Namespace = "usual"
	n := attachTo(t, c, onAllShortly, replicas)
	two := attachTo(t, c, &redisarbiter.Options{ColdStart: true, Replicas: 2, ReplicaTimeout: 50 * time.Millisecond}, settings)
	observer, err := redisarbiter.New(c, nil).Attach(t.Context(), replicas)
	if err != nil {
		t.Fatal(err)
	}
	defer observer.Close()
	for _, n := range []fallback.Namespace{n, observer} {
		advises(t, n, "0 of 1 replicas, and redisarbiter.Options.AllReplicas needs all: no process can begin a session")
	}
	advises(t, two, "has 0 replicas, and redisarbiter.Options.Replicas is 2: no session begins or is renewed")
	if err := enterSession(t.Context(), two, "a"); !errors.Is(err, fallback.ErrReplicas) {
		t.Errorf("a session without replicas: %v", err)
	}
	await.Until(t, "too few replicas, and nothing else, is why", func() bool { return errors.Is(enterSession(t.Context(), n, "a"), fallback.ErrReplicas) })
	follow(t, s, always...)
	wantAdvice(t, n, "has replicas (1), and acknowledges locks that none of them has") // Options.Replicas is about that
	advises(t, two, "has 1 replicas, and redisarbiter.Options.Replicas is 2")
}

// go-redis calls the server of a Sentinel client "FailoverClient", which tells an operator nothing.
func TestAdvice_NamesTheServer(t *testing.T) {
	info := map[string]string{"connected_slaves": "1"}
	for addr, name := range map[string]string{"redis-1:6379": "redis-1:6379 has replicas (1)", "FailoverClient": "the primary that Sentinel names has replicas (1)"} {
		if got := redisarbiter.AdviceOn(info, 0, addr); len(got) != 1 || !strings.HasPrefix(got[0], name) {
			t.Errorf("%s: %q", addr, got)
		}
	}
}

// A server that evicts only expiring keys loses no locks, but results. A process that keeps some is
// told of that. One that only locks, or publishes the key of an observer, is not.
func TestAdvice_ResultsThatMayBeEvicted(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, "--maxmemory", "100mb", "--maxmemory-policy", "volatile-ttl")
	c := s.Client(t)
	n := attach(t, c, cold)
	save := func(fence uint64) {
		t.Helper()
		if v, err := n.(fallback.ResultStore).SaveResult(t.Context(), 0, "k", []byte("v"), fence, time.Hour); err != nil || v != fallback.Granted {
			t.Fatal(v, err)
		}
	}
	save(1)
	wantAdvice(t, n, "")
	save(2)
	wantAdvice(t, n, "has a maxmemory-policy of volatile-ttl, and evicts results when it has filled its maxmemory of 104857600 bytes")
	for name, value := range map[string]string{"maxmemory-policy": "noeviction", "maxmemory": "0"} {
		if err := c.ConfigSet(t.Context(), "maxmemory-policy", "volatile-lru").Err(); err != nil {
			t.Fatal(err)
		}
		wantAdvice(t, n, "volatile-lru")
		if err := c.ConfigSet(t.Context(), name, value).Err(); err != nil {
			t.Fatal(err)
		}
		wantAdvice(t, n, "")
		if err := c.ConfigSet(t.Context(), "maxmemory", "100mb").Err(); err != nil {
			t.Fatal(err)
		}
	}
}

// Redis before 6.2.7 does not enforce min-replicas-to-write for the writes of a script, and all
// writes of Holdfast's are by scripts.
func TestAdvice_AServerWhoseScriptsWaitForNoReplica(t *testing.T) {
	for version, told := range map[string]string{"6.2.0": "6.2.7", "6.2.6": "6.2.7", "6.2.7": "", "6.2.14": "", "7.0.0": "", "7.2.4": "", "8.0": "", "": ""} {
		got := redisarbiter.AdviceOn(map[string]string{"redis_version": version, "connected_slaves": "1", "min_slaves_good_slaves": "1"}, 0, "redis-1:6379")
		if told == "" && len(got) > 0 || told != "" && (len(got) != 1 || !strings.Contains(got[0], told)) {
			t.Errorf("%q: %q", version, got)
		}
	}
}

// A replica of a Redis Cluster takes over after cluster-node-timeout and some seconds. By default
// that is longer than locks last.
func TestAdvice_AFailoverThatTakesLongerThanLocksLast(t *testing.T) {
	for _, x := range []struct {
		timeout string
		ttl     time.Duration
		told    string
	}{
		{"15000", 10 * time.Second, "set it to 1300 (ms), or coord.Options.SessionTTL to 28s"},
		{"5000", 10 * time.Second, "set it to 1300 (ms), or coord.Options.SessionTTL to 15s"},
		{"2000", 10 * time.Second, "set it to 1300 (ms), or coord.Options.SessionTTL to 11s"},
		{"1500", 10 * time.Second, "set it to 1300 (ms), or coord.Options.SessionTTL to 11s"},
		{"1300", 10 * time.Second, ""},
		{"5000", 15 * time.Second, ""},
		{"2000", 11 * time.Second, ""},
		{"15000", 35 * time.Second, ""},
		{"15000", 28 * time.Second, ""},
		{"", 10 * time.Second, ""},
	} {
		got := redisarbiter.TimeoutAdvice(x.timeout, x.ttl*11/10)
		if x.told == "" && len(got) > 0 || x.told != "" && (len(got) != 1 || !strings.Contains(got[0], x.told)) {
			t.Errorf("%s, %v: %q", x.timeout, x.ttl, got)
		}
	}
}

func TestAdvice_OfARedisCluster(t *testing.T) {
	takes.Seconds(t)
	t.Parallel()
	nodes := redistest.StartCluster(t, 3)
	ns, err := redisarbiter.New(redistest.ClusterClient(t, nodes), cold).Attach(t.Context(),
		fallback.Settings{Namespace: "ns", Partitions: 3, Grace: 12 * time.Second, Lease: 11 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Close()
	wantAdvice(t, ns, "") // there is no replica
	replica := redistest.StartClusterNode(t)
	replica.FollowInCluster(t, nodes[0])
	await.Within(t, time.Minute, "the primary has it", func() bool {
		return strings.Contains(nodes[0].Client(t).Info(t.Context(), "replication").Val(), "connected_slaves:1")
	})
	told := func(text string) bool {
		t.Helper()
		advice, err := ns.(fallback.Adviser).Advise(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return slices.ContainsFunc(advice, func(s string) bool { return strings.HasPrefix(s, text) })
	}
	const coverage = "cluster-require-full-coverage is yes, and 2 of 3 servers of the Redis Cluster have no replica: "
	if !told("cluster-node-timeout is 5s: ") || !told(coverage) {
		t.Error("nothing is said of the times, or of the coverage")
	}
	for _, s := range append(nodes, replica) {
		if err := s.Client(t).ConfigSet(t.Context(), "cluster-require-full-coverage", "no").Err(); err != nil {
			t.Fatal(err)
		}
	}
	if told(coverage) {
		t.Error("something is said of the coverage yet")
	}
}

func TestEvictionThatIsSwitchedOnLaterIsFound(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	n := attach(t, s.Client(t), cold)
	if err := s.Client(t).ConfigSet(t.Context(), "maxmemory-policy", "allkeys-lru").Err(); err != nil {
		t.Fatal(err)
	}
	if _, err := n.(fallback.Adviser).Advise(t.Context()); !errors.Is(err, fallback.ErrRefused) || !strings.Contains(err.Error(), "allkeys-lru") {
		t.Errorf("got %v, want ErrRefused that names the policy", err)
	}
}

// A user that may not call INFO: the server is checked by other commands.
func TestServerThatDoesNotPermitInfoIsCheckedAllTheSame(t *testing.T) {
	t.Parallel()
	s, replica := redistest.Start(t, "--repl-diskless-sync-delay", "0"), redistest.Start(t)
	wantAdvice(t, attach(t, aclUser(t, s, "noinfo", "-info"), cold), "")
	wantAdvice(t, attach(t, aclUser(t, s, "noconfig", "-info -config"), cold), "maxmemory-policy")
	if err := s.Client(t).ConfigSet(t.Context(), "maxmemory-policy", "allkeys-lru").Err(); err != nil {
		t.Fatal(err)
	}
	wantRefused(t, aclUser(t, s, "noinfo", "-info"), "maxmemory-policy is allkeys-lru")
	replicate(t, replica, s)
	_, err := redisarbiter.New(aclUser(t, replica, "noinfo", "-info"), cold).Attach(t.Context(), plain)
	if !errors.Is(err, redisarbiter.ErrReplica) {
		t.Errorf("Attach to a replica: got %v", err)
	}
}
