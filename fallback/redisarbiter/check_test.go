package redisarbiter_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/fallback/redisarbiter"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/spacetest"
)

// cold are the options of most tests here.
var cold = &redisarbiter.Options{ColdStart: true}

// plain are the settings of most tests here.
var plain = spacetest.Plain

var id, lock, open = spacetest.ID, spacetest.Lock, spacetest.Open

// shared returns options that have a client serve all calls, so that a hook of it sees them all.
func shared(c redis.UniversalClient) *redisarbiter.Options {
	return &redisarbiter.Options{ColdStart: true, Background: c}
}

// attach attaches to the namespace "ns" of a server and closes it when the test ends.
func attach(t testing.TB, c redis.UniversalClient, opts *redisarbiter.Options) fallback.Namespace {
	t.Helper()
	return attachTo(t, c, opts, plain)
}

func attachTo(t testing.TB, c redis.UniversalClient, opts *redisarbiter.Options, s fallback.Settings) fallback.Namespace {
	t.Helper()
	n, err := redisarbiter.New(c, opts).Attach(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return n
}

// wantRefused checks that Attach says no and names why.
func wantRefused(t *testing.T, c redis.UniversalClient, named string) {
	t.Helper()
	n, err := redisarbiter.New(c, shared(c)).Attach(t.Context(), plain)
	if !errors.Is(err, fallback.ErrRefused) || n != nil {
		t.Fatalf("Attach: got %t, %v, want ErrRefused", n != nil, err)
	}
	if !strings.Contains(err.Error(), named) {
		t.Errorf("Attach: %q does not name %q", err, named)
	}
}

// use locks and unlocks a key, and fails the test if that fails.
func use(t *testing.T, n fallback.Namespace) {
	t.Helper()
	a, err := n.Lock(t.Context(), fallback.LockRequest{Key: "use", Me: id("user", 1), Block: 1})
	if err != nil || a.Verdict != fallback.Granted {
		t.Fatalf("Lock: got %+v, %v, want granted", a, err)
	}
	if err := errors.Join(n.Unlock(t.Context(), []fallback.Release{{Key: "use", Identity: id("user", 1)}})...); err != nil {
		t.Fatal(err)
	}
}

func TestAttachRefusesClientsThatCannotWork(t *testing.T) {
	t.Parallel()
	ring := redis.NewRing(&redis.RingOptions{})
	defer ring.Close()
	wantRefused(t, nil, "nil")
	wantRefused(t, ring, "Ring")
}

func TestAttachRefusesServersThatMayEvictLocks(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	c := s.Client(t)
	for _, policy := range []string{"allkeys-lru", "allkeys-lfu", "allkeys-random", "noeviction", "volatile-lru", "volatile-ttl"} {
		if err := c.ConfigSet(t.Context(), "maxmemory-policy", policy).Err(); err != nil {
			t.Fatal(err)
		}
		if strings.HasPrefix(policy, "allkeys-") {
			wantRefused(t, c, "maxmemory-policy is "+policy)
			looksOn := plain
			looksOn.Observes = true
			_ = attachTo(t, c, cold, looksOn) // it takes no lock, and shall tell the fault
		} else {
			use(t, attach(t, c, cold))
		}
	}
}

// A replica is no use, but the next moment it may be the primary, or the client know which one is.
func TestAttachToAReplica(t *testing.T) {
	t.Parallel()
	primary, replica := redistest.Start(t), redistest.Start(t)
	if err := replica.Replicate(t.Context(), primary); err != nil {
		t.Fatal(err)
	}
	c := replica.Client(t)
	n, err := redisarbiter.New(c, cold).Attach(t.Context(), plain)
	if n != nil || err == nil || errors.Is(err, fallback.ErrRefused) || !strings.Contains(err.Error(), "read-only replica") {
		t.Fatalf("got %v, %v, want an error about a replica that is not for good", n, err)
	}
	use(t, attach(t, primary.Client(t), cold))
	if err := replica.Replicate(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	use(t, attach(t, c, cold))
}

// A replica may be behind: its answer about a record counts no more than a write to it, however
// many are read at once.
func TestVerify_AReplicaDoesNotAnswer(t *testing.T) {
	t.Parallel()
	primary, replica := redistest.Start(t), redistest.Start(t)
	n := attach(t, replica.Client(t), cold)
	sizes := []int{1, 2, redisarbiter.PlainFrom}
	verify := func(size int) error {
		_, err := redisarbiter.Verify(t.Context(), n, make([]fallback.Read, size))
		return err
	}
	for _, size := range sizes {
		if err := verify(size); err != nil {
			t.Errorf("%d reads of a primary: %v", size, err)
		}
	}
	if err := replica.Replicate(t.Context(), primary); err != nil {
		t.Fatal(err)
	}
	use(t, attach(t, primary.Client(t), cold))
	for _, size := range sizes {
		if err := verify(size); err == nil || !strings.Contains(err.Error(), "READONLY") {
			t.Errorf("%d reads of a replica: %v", size, err)
		}
	}
}

func TestAttachRefusesWrongPasswords(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, "--requirepass", "right")
	user := func(name, password string) *redis.Client {
		return dial(t, s.Addr, func(o *redis.Options) { o.Username, o.Password = name, password })
	}
	wantRefused(t, user("", ""), "wants a password")
	wantRefused(t, user("", "wrong"), "password is wrong")
	wantRefused(t, user("nobody", "right"), "password is wrong")
	use(t, attach(t, user("", "right"), cold))
}

func TestAttachRefusesUsersThatLackPermissions(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	for _, tt := range []struct{ name, lacks string }{
		{"noeval", "-evalsha"},
		{"noload", "-script"},
		{"noscripting", "-@scripting"},
		{"nohash", "-hset"},
		{"nokeys", "resetkeys"},
		{"otherkeys", "resetkeys ~other:*"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			wantRefused(t, aclUser(t, s, tt.name, tt.lacks), "ACL")
		})
	}
}

// Attach cannot try everything; then it is the operation that is refused, and says why.
func TestOperationsNameThePermissionThatIsMissing(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	n := attach(t, aclUser(t, s, "nochannels", "resetchannels"), cold)
	use(t, n)
	if _, err := n.Listen(t.Context(), "alice", func(fallback.Message) {}); !errors.Is(err, fallback.ErrRefused) {
		t.Errorf("Listen without channels: got %v, want ErrRefused", err)
	}
	n = attach(t, aclUser(t, s, "noqueue", "-zadd"), cold)
	use(t, n)
	lock := func(session string) error {
		_, err := n.Lock(t.Context(), fallback.LockRequest{Key: "k", Me: id(session, 1), Block: 1, Wait: true})
		return err
	}
	if err := lock("alice"); err != nil {
		t.Error(err)
	}
	if err := lock("bob"); !errors.Is(err, fallback.ErrRefused) || !strings.Contains(err.Error(), "ACL") {
		t.Errorf("Lock without ZADD: got %v, want ErrRefused", err)
	}
}

func aclUser(t *testing.T, s *redistest.Server, name, rule string) *redis.Client {
	t.Helper()
	args := []any{"ACL", "SETUSER", name, "on", ">secret", "~*", "&*", "+@all"}
	for f := range strings.FieldsSeq(rule) {
		args = append(args, f)
	}
	if err := s.Client(t).Do(t.Context(), args...).Err(); err != nil {
		t.Fatal(err)
	}
	return dial(t, s.Addr, func(o *redis.Options) { o.Username, o.Password = name, "secret" })
}

// A user that may not ask for the server's identity can work, but does not notice a failover.
func TestServerThatDoesNotTellWhoItIsCannotBeGuarded(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	n := attach(t, aclUser(t, s, "noinfo", "-info"), cold)
	if n.Guarded() {
		t.Error("Guarded, though INFO is forbidden")
	}
	use(t, n)
	r, err := n.Open(t.Context(), "alice", fallback.Registration{TTL: time.Hour})
	if err != nil || !r.Alive || r.Server != "" {
		t.Errorf("Open: got %+v, %v, want alive, and no server named", r, err)
	}

	// If only one of two processes noticed failovers, they would not agree on the meaning of a
	// record.
	_, err = redisarbiter.New(s.Client(t), cold).Attach(t.Context(), plain)
	if !errors.Is(err, fallback.ErrMismatch) {
		t.Errorf("Attach of a process that is guarded: got %v, want ErrMismatch", err)
	}
}

// Whether a server tells its identity must not depend on the moment of the question.
func TestServerThatIsBusyIsNotTakenForOneThatCannotBeGuarded(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	for _, text := range []redisError{
		"BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.",
		"LOADING Redis is loading the dataset in memory",
		"MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
		"CLUSTERDOWN The cluster is down",
		"ERR max number of clients reached",
	} {
		c := s.Client(t)
		c.AddHook(&failOnce{command: "info", err: text})
		n, err := redisarbiter.New(c, shared(c)).Attach(t.Context(), plain)
		if !errors.Is(err, text) || errors.Is(err, fallback.ErrRefused) || n != nil {
			t.Errorf("%s: Attach: got %v, %v, want that error", text, n, err)
		}
		if n := attach(t, c, cold); !n.Guarded() {
			t.Errorf("%s: not Guarded afterwards", text)
		}
	}
}

// redisError is an answer of a server.
type redisError string

func (e redisError) Error() string { return string(e) }
func (redisError) RedisError()     {}

// failOnce is a hook that answers the first command of a name in the server's place.
type failOnce struct {
	nothingHooked
	command string
	err     error
}

func (f *failOnce) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if cmd.Name() == f.command && f.err != nil {
			err := f.err
			f.err = nil
			cmd.SetErr(err)
			return err
		}
		return next(ctx, cmd)
	}
}

func (f *failOnce) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		for _, cmd := range cmds {
			if cmd.Name() == f.command && f.err != nil {
				err := f.err
				f.err = nil
				for _, cmd := range cmds {
					cmd.SetErr(err)
				}
				return err
			}
		}
		return next(ctx, cmds)
	}
}

// nothingHooked is a hook to be embedded.
type nothingHooked struct{}

func (nothingHooked) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (nothingHooked) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }
func (nothingHooked) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func TestAttachSaysWhenTheServerCannotBeReached(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	c := dial(t, s.Addr, func(o *redis.Options) { o.MaxRetries = -1 })
	s.Kill()
	_, err := redisarbiter.New(c, cold).Attach(t.Context(), plain)
	if err == nil || errors.Is(err, fallback.ErrRefused) || errors.Is(err, fallback.ErrMismatch) {
		t.Fatalf("Attach without a server: got %v, want an error that invites to try again", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := redisarbiter.New(c, cold).Attach(ctx, plain); err == nil {
		t.Error("Attach with a context that has ended: no error")
	}
	restart(t, s)
	use(t, attach(t, c, cold))
}

func TestCheckInfo(t *testing.T) {
	guarded := "master_replid:" + strings.Repeat("a", 40) + "\r\n"
	for _, tt := range []struct {
		name, info string
		guarded    bool
		named      string // in the refusal
	}{
		{"nothing is known", "", false, ""},
		{"an embedded server", "redis_version:7.0.0\r\n", false, ""},
		{"no identity", "redis_version:7.0.0\r\nmaster_replid:1\r\n", false, ""},
		{"as old as can be", "redis_version:6.2.0\r\nrole:master\r\n" + guarded, true, ""},
		{"new", "# Server\r\nredis_version:8.10.3\r\n\r\n# Replication\r\nrole:master\r\n" + guarded, true, ""},
		{"two digits", "redis_version:10.0\r\n" + guarded, true, ""},
		{"too old", "redis_version:6.0.20\r\n" + guarded, false, "redis_version is 6.0.20"},
		{"much too old", "redis_version:2.8\r\n" + guarded, false, "redis_version is 2.8"},
		{"not a version", "redis_version:unstable\r\n", false, "redis_version is unstable"},
		{"may evict", "redis_version:7.2.4\r\nmaxmemory_policy:allkeys-lru\r\n" + guarded, false, "maxmemory-policy is allkeys-lru"},
		{"may evict what expires", "maxmemory_policy:volatile-lru\r\n" + guarded, true, ""},
		{"colons in a value", "os:a:b\r\nexecutable:/x:y\r\n" + guarded, true, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := redisarbiter.CheckInfo(redisarbiter.ParseInfo(tt.info))
			if got != tt.guarded {
				t.Errorf("guarded: got %t, want %t", got, tt.guarded)
			}
			if tt.named == "" && err != nil {
				t.Errorf("refused: %v", err)
			}
			if tt.named != "" && (!errors.Is(err, fallback.ErrRefused) || !strings.Contains(err.Error(), tt.named)) {
				t.Errorf("got %v, want ErrRefused that says %q", err, tt.named)
			}
		})
	}
}

// To Redis a ReplicaTimeout of less than a millisecond is one without end.
func TestAttachRefusesAReplicaTimeoutTooShortToBeMeant(t *testing.T) {
	c := redistest.Start(t).Client(t)
	n, err := redisarbiter.New(c, &redisarbiter.Options{ColdStart: true, ReplicaTimeout: 500}).Attach(t.Context(), plain)
	if n != nil || !errors.Is(err, fallback.ErrRefused) || !strings.Contains(err.Error(), "Options.ReplicaTimeout is 500ns") {
		t.Errorf("got %t, %v", n != nil, err)
	}
}
