package coord

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/gossip"
	"github.com/holdfast-go/holdfast/internal/await"
	"github.com/holdfast-go/holdfast/internal/takes"
	"github.com/holdfast-go/holdfast/ring"
)

// demotesLate is an arbiter in which Demote of the partition of the key "left" waits, and so do
// questions about the key "busy".
type demotesLate struct {
	fallback.Arbiter
	asked, begun chan struct{} // closed when a question has come, and when Demote has
	goOn         chan struct{}
	once         [2]*sync.Once
}

func newDemotesLate() *demotesLate {
	return &demotesLate{
		Arbiter: fallback.NewMemory(), asked: make(chan struct{}), begun: make(chan struct{}), goOn: make(chan struct{}),
		once: [2]*sync.Once{new(sync.Once), new(sync.Once)},
	}
}

type demotesLateSpace struct {
	fallback.Namespace
	a *demotesLate
}

func (a *demotesLate) Attach(ctx context.Context, s fallback.Settings) (fallback.Namespace, error) {
	n, err := a.Arbiter.Attach(ctx, s)
	return demotesLateSpace{n, a}, err
}

func (n demotesLateSpace) Verify(ctx context.Context, reads []fallback.Read) []fallback.State {
	if slices.ContainsFunc(reads, func(r fallback.Read) bool { return slices.Contains(r.Keys, "busy") }) {
		n.a.once[0].Do(func() { close(n.a.asked) })
		<-ctx.Done()
	}
	return n.Namespace.Verify(ctx, reads)
}

func (n demotesLateSpace) Demote(ctx context.Context, p uint32, me string, epoch uint32, holds map[string]fallback.Row) (fallback.Demotion, error) {
	if p == partitionNumber("left") {
		n.a.once[1].Do(func() { close(n.a.begun) })
		<-n.a.goOn
	}
	return n.Namespace.Demote(ctx, p, me, epoch, holds)
}

func partitionNumber(key string) uint32 { return uint32(xxhash.Sum64String(key) % 61) }

// A hold is given back at the arbiter by a session that closes, while an owner that leaves demotes,
// which writes the row again: it removes it when that session is over. busy: it has something to
// look up at that moment.
func leavesARow(t *testing.T, o *Options, busy bool) {
	t.Helper()
	a := newDemotesLate()
	ns, err := a.Arbiter.Attach(t.Context(), fallback.Settings{Namespace: "holdfast", Partitions: 61, Grace: o.Grace})
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Close()
	if _, err := ns.Open(t.Context(), "ghost", fallback.Registration{TTL: time.Minute}); err != nil {
		t.Fatal(err)
	}
	for i, key := range []string{"left", "busy"} {
		r := fallback.LockRequest{Partition: partitionNumber(key), Key: key, Me: fallback.Identity{Session: "ghost", Request: uint64(i + 1)}, Block: 1}
		if got, err := ns.Lock(t.Context(), r); err != nil || got.Verdict != fallback.Granted {
			t.Fatal(got, err)
		}
	}
	c := enter(t, a, o)
	await.Until(t, "it owns all", func() bool { return c.Stats().Owned == 61 })
	if busy {
		c.handle(c.sessions.current(), fallback.Message{Kind: fallback.Freed, Key: "busy", Session: "ghost", Request: 2})
		<-a.asked
	}
	done := make(chan error)
	go func() { done <- c.Close(context.Background()) }()
	<-a.begun
	id := fallback.Identity{Session: "ghost", Request: 1}
	ns.Unlock(t.Context(), []fallback.Release{{Partition: partitionNumber("left"), Key: "left", Identity: id}})
	c.handle(c.sessions.current(), fallback.Message{Kind: fallback.Freed, Key: "left", Session: id.Session, Request: id.Request})
	if err := ns.CloseSession(t.Context(), "ghost"); err != nil {
		t.Fatal(err)
	}
	close(a.goOn)
	if err := <-done; err != nil {
		t.Error("Close:", err)
	}
	if s := ns.Verify(t.Context(), []fallback.Read{{Partition: partitionNumber("left"), Keys: []string{"left"}}}); s[0].Rows[0] != (fallback.Row{}) {
		t.Errorf("left: %+v", s[0])
	}
	if l, err := ns.Dead(t.Context(), "ghost", fallback.Stamp{}); err != nil || !l.Dead {
		t.Errorf("of that session the arbiter says %+v, %v", l, err)
	}
}

func TestCloseRemovesARowThatItHasWrittenAgain(t *testing.T) {
	takes.Seconds(t)
	t.Parallel()
	t.Run("at once", func(t *testing.T) { leavesARow(t, small(), false) })
	t.Run("what is to be heard again", func(t *testing.T) {
		for range 6 {
			leavesARow(t, small(), true)
		}
	})
	t.Run("it takes long to say that the node leaves", func(t *testing.T) {
		o := small()
		o.SessionTTL, o.Grace, o.Cluster.Keepalive = 3*time.Second, 5*time.Second, 200*time.Millisecond
		o.Cluster.Membership = func(x ring.Options) (ring.Membership, error) {
			r, err := gossip.Start(x)
			return slowLeaver{r}, err
		}
		leavesARow(t, o, false)
	})
}

// The announcements of a session that is over bind no node: its partitions are the arbiter's
// matter.
func TestCloseAfterASessionWasLost(t *testing.T) {
	takes.Seconds(t)
	t.Parallel()
	ended := make(chan struct{})
	o := small()
	var once sync.Once
	o.Trace = &Trace{Session: func(i SessionInfo) {
		if i.Ended {
			once.Do(func() { close(ended) })
		}
	}}
	c := enter(t, fallback.NewMemory(), o)
	await.Until(t, "it owns all", func() bool { return c.Stats().Owned == 61 })
	c.sessions.current().Extend(time.Now().Add(-time.Second)) // as when the promises of its guardians have passed
	<-ended
	if err := c.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

// A reader waits behind an earlier writer. If the writer's session is dead, it does not wait until
// the other readers have left.
func TestAReaderDoesNotWaitBehindADeadWriter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := fallback.NewMemory()
		o := func() *Options { return &Options{SessionTTL: 3 * time.Second, Grace: 5 * time.Second, Partitions: 61} }
		one, two := enter(t, m, o()), enter(t, m, o())
		first, err := one.RLock(t.Context(), "k")
		if err != nil {
			t.Fatal(err)
		}
		defer first.Unlock()
		ns, err := m.Attach(t.Context(), fallback.Settings{Namespace: "holdfast", Partitions: 61, Grace: 5 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		defer ns.Close()
		if _, err := ns.Open(t.Context(), "ghost", fallback.Registration{TTL: 3 * time.Second}); err != nil {
			t.Fatal(err)
		}
		me := fallback.Identity{Session: "ghost", Request: 1}
		if a, err := ns.Lock(t.Context(), fallback.LockRequest{Partition: partitionNumber("k"), Key: "k", Me: me, Block: 1, Wait: true}); err != nil || a.Verdict != fallback.Held {
			t.Fatal(a, err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
		defer cancel()
		begin := time.Now()
		second, err := two.RLock(ctx, "k")
		if err != nil {
			t.Fatalf("%v after the writer's session began: %v", time.Since(begin), err)
		}
		if d := time.Since(begin); d < 2*time.Second {
			t.Errorf("the writer was passed after %v, before it was dead", d)
		}
		_ = second.Unlock()
	})
}

// A request of a process that lives has gone, and an echo of it is in the arbiter's queue: readers
// that come later ask that process, which takes it out.
func TestAReaderDoesNotWaitBehindAnEchoOfALiveWriter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := fallback.NewMemory()
		o := func() *Options { return &Options{SessionTTL: 3 * time.Second, Grace: 5 * time.Second, Partitions: 61} }
		one, two, three := enter(t, m, o()), enter(t, m, o()), enter(t, m, o())
		first, err := one.RLock(t.Context(), "k")
		if err != nil {
			t.Fatal(err)
		}
		defer first.Unlock()
		ns, err := m.Attach(t.Context(), fallback.Settings{Namespace: "holdfast", Partitions: 61, Grace: 5 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		defer ns.Close()
		other, err := three.Lock(t.Context(), "other")
		if err != nil {
			t.Fatal(err)
		}
		defer other.Unlock()
		echo := fallback.Identity{Session: three.sessions.id(), Request: 1}
		if a, err := ns.Lock(t.Context(), fallback.LockRequest{Partition: partitionNumber("k"), Key: "k", Me: echo, Block: 1, Wait: true}); err != nil || a.Verdict != fallback.Held {
			t.Fatal(a, err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		second, err := two.RLock(ctx, "k")
		if err != nil {
			t.Fatal(err)
		}
		_ = second.Unlock()
	})
}

// closing is an arbiter that counts the calls of Close on its namespaces.
type closing struct {
	fallback.Arbiter
	closed int
}

type closingSpace struct {
	fallback.Namespace
	a *closing
}

func (a *closing) Attach(ctx context.Context, s fallback.Settings) (fallback.Namespace, error) {
	n, err := a.Arbiter.Attach(ctx, s)
	return closingSpace{n, a}, err
}

var errNoSession = errors.New("no session for you")

func (closingSpace) Open(context.Context, string, fallback.Registration) (fallback.Renewal, error) {
	return fallback.Renewal{}, errNoSession
}

func (n closingSpace) Close() error {
	n.a.closed++
	return n.Namespace.Close()
}

func TestNew_ThatFailsClosesTheNamespace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &closing{Arbiter: fallback.NewMemory()}
		if _, err := New(t.Context(), a, &Options{Partitions: 61}); !errors.Is(err, errNoSession) {
			t.Errorf("%v, want errNoSession", err)
		}
		if a.closed != 1 {
			t.Errorf("the namespace was closed %d times, want 1", a.closed)
		}
	})
}
