package coord_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/fallback/redisarbiter"
	"github.com/holdfast-go/holdfast/internal/await"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/takes"
)

// A server of a Redis Cluster is killed, and its replica takes over. It has not the table of
// sessions, or its replica knows each session: so keys of its partitions that no process has are
// locked again long before Grace would end by itself. A lock in force stays in force (E3, E4, E5,
// E7).
func TestGraceEndsEarly_ACrashInARedisCluster(t *testing.T) {
	takes.Seconds(t)
	for name, all := range map[string]int{"a server without the sessions": 0, "AllReplicas, the server of the sessions": 1} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			crashInACluster(t, all)
		})
	}
}

// crashInACluster: all is Options.AllReplicas, and more than 0 if the server has the table of
// sessions.
func crashInACluster(t *testing.T, all int) {
	var args []string
	if all > 0 {
		args = []string{"--appendonly", "yes", "--appendfsync", "always"}
	}
	nodes := redistest.StartCluster(t, 3, args...)
	c := redistest.ClusterClient(t, nodes)
	primary := serverOf(t, nodes, func(addr string) bool { return (addr == masterOf(t, c, "{ns:s}")) == (all > 0) })
	replica := redistest.StartClusterNode(t, args...)
	replica.FollowInCluster(t, primary)

	opts := func() *coord.Options {
		return &coord.Options{Namespace: "ns", Partitions: 16, SessionTTL: 20 * time.Second, Margin: time.Second, Grace: 22 * time.Second}
	}
	var both []*coord.Coordinator
	for range 2 {
		x, err := coord.New(t.Context(), redisarbiter.New(redistest.ClusterClient(t, nodes), &redisarbiter.Options{ColdStart: true, AllReplicas: all}), opts())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			defer cancel()
			_ = x.Close(ctx)
		})
		both = append(both, x)
	}
	held, free := "", ""
	var number uint64
	for i := 0; free == ""; i++ {
		key := fmt.Sprint("key", i)
		number = xxhash.Sum64String(key) % 16
		switch at := masterOf(t, c, fmt.Sprintf("{ns:p%d}", number)); {
		case at != primary.Addr:
		case held == "":
			held = key
		default:
			free = key
		}
	}
	l, err := both[0].Lock(t.Context(), held)
	if err != nil {
		t.Fatal(err)
	}
	inStep(t, primary, replica)
	primary.Kill()
	r := replica.Client(t)
	await.Within(t, 30*time.Second, "the replica takes over", func() bool {
		return r.Do(t.Context(), "CLUSTER", "FAILOVER", "TAKEOVER").Err() == nil && strings.Contains(r.Info(t.Context(), "replication").Val(), "role:master")
	})
	begun := time.Now()
	ends := make(chan int64, 1) // when Grace of the partition would end by itself, by the server's clock
	go func() {
		for end := ""; ; time.Sleep(10 * time.Millisecond) {
			if end = r.HGet(t.Context(), fmt.Sprintf("{ns:p%d}", number), "e").Val(); end != "" || t.Context().Err() != nil {
				ms, _ := strconv.ParseInt(end, 10, 64)
				ends <- ms
				return
			}
		}
	}()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	got, err := both[1].Lock(ctx, free)
	if err != nil {
		t.Fatal(err)
	}
	took := time.Since(begun)
	if now, end := r.Time(t.Context()).Val(), time.UnixMilli(<-ends); !now.Before(end) {
		t.Errorf("the key was had after %v, at %v: not before Grace was over, at %v", took, now, end)
	}
	if l.Context().Err() != nil {
		t.Error("the lock in force was lost")
	}
	if _, err := both[1].TryLock(t.Context(), held); err == nil {
		t.Error("the lock in force has a second holder")
	}
	t.Logf("a free key of partition %d was had %v after the takeover; Grace is 22s", number, took)
	_, _ = got.Unlock(), l.Unlock()
}

// A rounder is an arbiter of several servers. That of the partitions fails to end Graces for as
// often as silent says.
type rounder struct {
	*fallback.Memory
	silent, ends, told atomic.Int64
	blind              atomic.Int64 // for as often it does not tell the names of Graces
	others             atomic.Int64 // for as often partitions are in others when they are to be ended

	mu     sync.Mutex // protects the fields below
	expiry int64      // that the session was told last, if there is one
	at     time.Time  // when
	stale  int        // renewals with a lower one
	slow   time.Duration
	tell   func(ctx context.Context) error // gives all sessions the hint
}

type rounderSpace struct {
	fallback.Namespace
	fallback.Rounder
	a *rounder
}

func (a *rounder) Attach(ctx context.Context, s fallback.Settings) (fallback.Namespace, error) {
	n, err := a.Memory.Attach(ctx, s)
	if err != nil {
		return nil, err
	}
	a.tell = n.(fallback.Rounder).TellRound
	return rounderSpace{n, n.(fallback.Rounder), a}, nil
}

// Spread implements [fallback.Spreader].
func (rounderSpace) Spread() bool { return true }

func (n rounderSpace) Graces(ctx context.Context, partitions []uint32) []fallback.NamedGrace {
	all := n.Rounder.Graces(ctx, partitions)
	if n.a.blind.Add(-1) >= 0 {
		for i := range all {
			all[i].Name, all[i].Err = "", errCut
		}
	}
	return all
}

// Renew notes whether a session knows the expiry that it was told at an earlier moment. Its answer
// is slow.
func (n rounderSpace) Renew(ctx context.Context, id string, reg fallback.Registration) (fallback.Renewal, error) {
	n.a.mu.Lock()
	defer n.a.mu.Unlock()
	if reg.Seen < n.a.expiry && n.a.at.Before(time.Now()) {
		n.a.stale++
	}
	r, err := n.Namespace.Renew(ctx, id, reg)
	n.a.expiry, n.a.at = r.Expiry, time.Now()
	if slow := n.a.slow; slow > 0 {
		n.a.mu.Unlock()
		time.Sleep(slow)
		n.a.mu.Lock()
	}
	return r, err
}

func (n rounderSpace) EndGraces(ctx context.Context, g []fallback.NamedGrace) []fallback.EndedGrace {
	if n.a.ends.Add(1) <= n.a.silent.Load() {
		return slices.Repeat([]fallback.EndedGrace{{Err: errCut}}, len(g))
	}
	if n.a.others.Add(-1) >= 0 {
		return make([]fallback.EndedGrace, len(g))
	}
	return n.Rounder.EndGraces(ctx, g)
}

func (n rounderSpace) TellRound(ctx context.Context) error {
	n.a.told.Add(1)
	return n.Rounder.TellRound(ctx)
}

// partitionsFail starts a coordinator, and has the server of the partitions fail over once "k" was
// locked and given back.
func partitionsFail(t *testing.T, a *rounder) *coord.Coordinator {
	c := start(t, a, &coord.Options{SessionTTL: 20 * time.Second, Margin: time.Second, Grace: 22 * time.Second})
	unlock(t, lock(t, c, "k"))
	time.Sleep(6 * time.Second) // the key is given back, and a session speaks 5 s after it was opened
	a.RestorePartitions(a.Snapshot(), func(uint32) bool { return true })
	return c
}

// While a server does not answer that is to end Graces, sessions are told nothing: each would
// renew, and each of their callers ask.
func TestGraceEndsEarly_NothingIsToldBeforeItDoes(t *testing.T) {
	bubble(t, func(t *testing.T, m *fallback.Memory) {
		a := &rounder{Memory: m}
		a.silent.Store(5)
		c := partitionsFail(t, a)
		began := time.Now()
		unlock(t, lock(t, c, "k"))
		if took := time.Since(began); took >= 22*time.Second {
			t.Errorf("the key was had after %v, when Grace was over", took)
		}
		if n := a.ends.Load(); n != 6 {
			t.Errorf("Graces were to be ended %d times", n)
		}
		if n := a.told.Load(); n != 2 {
			t.Errorf("sessions were told %d times, not of the round and of the end", n)
		}
	})
}

// A call goes to the server before, a moment after a failover: no round has to go by for that.
func TestGraceEndsEarly_ThoughACallFailsAtFirst(t *testing.T) {
	bubble(t, func(t *testing.T, m *fallback.Memory) {
		a := &rounder{Memory: m}
		c := partitionsFail(t, a)
		a.blind.Store(2)
		began := time.Now()
		unlock(t, lock(t, c, "k"))
		if took := time.Since(began); took > 3*time.Second {
			t.Errorf("the key was had after %v, and delta and M are 2 s", took)
		}
	})
}

// A session speaks for a round 5 s after it was opened, and for one that follows another one 5 s
// after it was told of it (E3).
func TestGraceEndsEarly_SessionsSpeakApart(t *testing.T) {
	bubble(t, func(t *testing.T, m *fallback.Memory) {
		a := &rounder{Memory: m}
		c := partitionsFail(t, a)
		for i, most := range []time.Duration{3 * time.Second, 6 * time.Second, 6 * time.Second, 3 * time.Second} {
			began := time.Now()
			unlock(t, lock(t, c, "k"))
			if took := time.Since(began); took > most || took < most-2*time.Second {
				t.Errorf("failover %d: the key was had after %v, want at most %v", i, took, most)
			}
			if time.Sleep(time.Second); i == 2 {
				time.Sleep(2 * 22 * time.Second) // the table has forgotten the round
			}
			a.RestorePartitions(a.Snapshot(), func(uint32) bool { return true })
		}
	})
}

// A Grace that is another one by then does not end, and the log does not say that it did.
func TestGraceEndsEarly_TheLogSaysWhatHasEnded(t *testing.T) {
	bubble(t, func(t *testing.T, m *fallback.Memory) {
		a, logged := &rounder{Memory: m}, newRecords()
		a.others.Store(1)
		c := start(t, a, &coord.Options{Partitions: 3, SessionTTL: 20 * time.Second, Margin: time.Second, Grace: 22 * time.Second, Logger: slog.New(logged)})
		unlock(t, lock(t, c, "k"))
		time.Sleep(time.Second) // the key is given back
		m.RestorePartitions(m.Snapshot(), func(uint32) bool { return true })
		unlock(t, lock(t, c, "k"))
		time.Sleep(time.Second)
		found := logged.about("holdfast: Grace ends early")
		if a.ends.Load() != 2 || len(found) != 1 || found[0].attrs["partitions"].Int64() != 3 {
			t.Errorf("Graces were to be ended %d times; %v", a.ends.Load(), found)
		}
	})
}

// Each renewal states the expiry that the last one was told, also one for a round. A table of
// Options.AllReplicas in Grace may have reported a session with a later expiry as missing: all
// replicas must have it anew.
func TestGraceEndsEarly_RenewalsKnowWhatRoundsWereTold(t *testing.T) {
	bubble(t, func(t *testing.T, m *fallback.Memory) {
		a := &rounder{Memory: m}
		c := partitionsFail(t, a)
		unlock(t, lock(t, c, "k"))
		time.Sleep(20 * time.Second) // renewals without a round
		a.mu.Lock()
		defer a.mu.Unlock()
		if a.ends.Load() == 0 || a.stale > 0 {
			t.Errorf("Graces were ended %d times, %d renewals did not know what was told before", a.ends.Load(), a.stale)
		}
	})
}

// So do those that would be on their way together with another one, which is answered within 250
// ms.
func TestGraceEndsEarly_RenewalsOfASessionComeOneAfterAnother(t *testing.T) {
	bubble(t, func(t *testing.T, m *fallback.Memory) {
		a := &rounder{Memory: m}
		start(t, a, &coord.Options{SessionTTL: 20 * time.Second, Margin: time.Second, Grace: 22 * time.Second})
		a.mu.Lock()
		a.slow = 200 * time.Millisecond
		a.mu.Unlock()
		for range 300 { // each has the session renewed
			if err := a.tell(t.Context()); err != nil {
				t.Fatal(err)
			}
			time.Sleep(100 * time.Millisecond)
		}
		a.mu.Lock()
		defer a.mu.Unlock()
		if a.stale > 0 {
			t.Errorf("%d renewals did not know what was told before", a.stale)
		}
	})
}

// A round that is complete makes another failover wait for nothing: all sessions are asked anew.
func TestGraceEndsEarly_AfterAnotherFailover(t *testing.T) {
	bubble(t, func(t *testing.T, m *fallback.Memory) {
		a := &rounder{Memory: m}
		c := start(t, a, &coord.Options{SessionTTL: 35 * time.Second, Margin: 3500 * time.Millisecond, Grace: 42 * time.Second})
		unlock(t, lock(t, c, "k"))
		time.Sleep(time.Second) // the key is given back
		for range 2 {
			m.RestorePartitions(m.Snapshot(), func(uint32) bool { return true })
			began := time.Now()
			unlock(t, lock(t, c, "k"))
			if took := time.Since(began); took > 12*time.Second {
				t.Errorf("the key was had after %v, and the session speaks 11 s after it was told of the round", took)
			}
			time.Sleep(4 * time.Second)
		}
	})
}

// Stats tells of a partition's Grace that the table of sessions is not in, and of its end.
func TestStats_GraceOfAPartition(t *testing.T) {
	bubble(t, func(t *testing.T, m *fallback.Memory) {
		a := &rounder{Memory: m}
		c := partitionsFail(t, a)
		if _, err := c.TryLock(t.Context(), "k"); !errors.Is(err, coord.ErrUnavailable) {
			t.Fatal(err)
		}
		if left := c.Stats().Grace; left < 21*time.Second || left > 22*time.Second {
			t.Errorf("%v of Grace are left, want 22 s", left)
		}
		unlock(t, lock(t, c, "k")) // it ended early
		time.Sleep(3 * time.Second)
		if left := c.Stats().Grace; left != 0 {
			t.Errorf("%v of Grace are left, and it has ended", left)
		}
	})
}

func masterOf(t *testing.T, c *redis.ClusterClient, key string) string {
	m, err := c.MasterForKey(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	return m.Options().Addr
}

// serverOf returns a server that will do.
func serverOf(t *testing.T, nodes []*redistest.Server, good func(addr string) bool) *redistest.Server {
	for _, s := range nodes {
		if good(s.Addr) {
			return s
		}
	}
	t.Fatal("no server will do")
	return nil
}

// inStep waits until the replica has all that its primary has.
func inStep(t *testing.T, primary, replica *redistest.Server) {
	t.Helper()
	offset := func(s *redistest.Server, field string) int64 {
		_, rest, _ := strings.Cut(s.Client(t).Info(t.Context(), "replication").Val(), field+":")
		text, _, _ := strings.Cut(rest, "\r")
		n, _ := strconv.ParseInt(text, 10, 64)
		return n
	}
	await.Within(t, 30*time.Second, "the replica is in step", func() bool {
		return offset(replica, "slave_repl_offset") >= offset(primary, "master_repl_offset")
	})
}
