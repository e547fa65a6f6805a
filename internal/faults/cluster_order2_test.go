package faults

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/await"
	"github.com/holdfast-go/holdfast/internal/takes"
)

// gate is an arbiter whose calls of one node can be held up before they are executed.
type gate struct {
	fallback.Arbiter
	lock    func(ctx context.Context) error           // before each Lock; or nil
	acquire func(ctx context.Context, p uint32) error // before each Acquire; or nil
}

func (g *gate) Attach(ctx context.Context, s fallback.Settings) (fallback.Namespace, error) {
	ns, err := g.Arbiter.Attach(ctx, s)
	return &gateNamespace{ns, g}, err
}

type gateNamespace struct {
	fallback.Namespace
	g *gate
}

func (n *gateNamespace) Lock(ctx context.Context, r fallback.LockRequest) (fallback.LockAnswer, error) {
	if f := n.g.lock; f != nil {
		if err := f(ctx); err != nil {
			return fallback.LockAnswer{}, err
		}
	}
	return n.Namespace.Lock(ctx, r)
}

func (n *gateNamespace) Acquire(ctx context.Context, p uint32, me string, x fallback.Expect) (fallback.Acquisition, error) {
	if f := n.g.acquire; f != nil {
		if err := f(ctx, p); err != nil {
			return fallback.Acquisition{}, err
		}
	}
	return n.Namespace.Acquire(ctx, p, me, x)
}

// until returns a function that waits until c is closed.
func until(c <-chan struct{}) func(context.Context) error {
	return func(ctx context.Context) error {
		select {
		case <-c:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// raw attaches to the arbiter without a coordinator.
func raw(t *testing.T, a fallback.Arbiter, o *coord.Options) fallback.Namespace {
	t.Helper()
	ns, err := a.Attach(t.Context(), fallback.Settings{Namespace: o.Namespace, Partitions: o.Partitions, Grace: o.Grace})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ns.Close() })
	return ns
}

func slowNode() *coord.Options {
	o := nodeOptions(20 * time.Second)
	o.CallTimeout = 3 * time.Second
	o.Cluster.Keepalive = 200 * time.Millisecond
	return o
}

// underWay starts two nodes. The first one has a request at the arbiter for a key of each
// partition, which is not executed before open is closed. underWay returns when both own
// partitions, and the keys of the first one.
func underWay(t *testing.T, memory fallback.Arbiter, open chan struct{}) (x, other *coord.Coordinator, mine []string, got func(string) (coord.Lock, error)) {
	t.Helper()
	o := slowNode()
	o.Cluster.Debounce = 500 * time.Millisecond
	x = startNode(t, &gate{Arbiter: memory, lock: until(open)}, o)
	var mu sync.Mutex
	locks, errs := make(map[string]coord.Lock), make(map[string]error)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	var work sync.WaitGroup
	for _, k := range keysOf61() { // before the ring has settled, so each goes to the arbiter
		work.Go(func() {
			l, err := x.Lock(ctx, k)
			mu.Lock()
			defer mu.Unlock()
			locks[k], errs[k] = l, err
		})
	}
	t.Cleanup(func() { cancel(); work.Wait() })
	other = startNode(t, memory, slowNode())
	await.Until(t, "both own partitions", shared(x, other))
	for _, k := range keysOf61() {
		if n, ok := x.Owner(k); ok && n.Self {
			mine = append(mine, k)
		}
	}
	return x, other, mine, func(k string) (coord.Lock, error) {
		mu.Lock()
		defer mu.Unlock()
		l, ok := locks[k]
		if !ok {
			return l, errors.New("not yet")
		}
		return l, errs[k]
	}
}

// A node has a request at the arbiter under way when it becomes the owner. Another node tries the
// key.
func TestTryLockOfAKeyThatTheOwnerWaitsForAtTheArbiter(t *testing.T) {
	takes.Seconds(t)
	open := make(chan struct{})
	defer sync.OnceFunc(func() { close(open) })()
	_, other, mine, _ := underWay(t, fallback.NewMemory(), open)
	for _, k := range mine {
		l, err := other.TryLock(t.Context(), k)
		switch {
		case err == nil:
			_ = l.Unlock()
		case !errors.Is(err, coord.ErrLocked):
			t.Errorf("%s: %v", k, err)
		}
	}
}

// The same, and the waiter gets the key as the owner's own, before its request at the arbiter is
// executed: after the partition was given back.
func TestARequestAtTheArbiterThatNobodyWaitsForAnyMore(t *testing.T) {
	takes.Seconds(t)
	open := make(chan struct{})
	opened := sync.OnceFunc(func() { close(open) })
	defer opened()
	memory := fallback.NewMemory()
	_, other, mine, got := underWay(t, memory, open)
	ns := raw(t, memory, slowNode())
	for _, k := range mine[:1] {
		var own coord.Lock
		var err error
		await.Until(t, "the owner's waiter has the key", func() bool { own, err = got(k); return err == nil })
		_ = own.Unlock()
		l, err := other.Lock(t.Context(), k)
		if err != nil {
			t.Fatal(err)
		}
		_ = l.Unlock()
		p := uint32(xxhash.Sum64String(k) % 61)
		r, err := ns.Load(t.Context(), p)
		if err != nil {
			t.Fatal(err)
		}
		if err := ns.Revoke(t.Context(), p, r.Epoch, "test"); err != nil {
			t.Fatal(err)
		}
		await.Until(t, "the partition is given back", func() bool {
			r, err := ns.Load(t.Context(), p)
			return err == nil && r.Owner == ""
		})
	}
	opened()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	l, err := other.Lock(ctx, mine[0])
	if err != nil {
		t.Fatal(err)
	}
	_ = l.Unlock()
}

// A partition's owner is dead. A node begins to make the partition Shared, for a waiter. It takes
// it for its own at the same time, because the ring has settled meanwhile (rule 6, I1, I4).
func TestAPartitionThatIsFreedAndTakenAtTheSameTime(t *testing.T) {
	takes.Seconds(t)
	memory := fallback.NewMemory()
	o := slowNode()
	o.Cluster.Debounce = time.Second
	ns := raw(t, memory, o)
	if _, err := ns.Open(t.Context(), "ghost", fallback.Registration{TTL: 200 * time.Millisecond}); err != nil {
		t.Fatal(err)
	}
	for p := range uint32(61) {
		r, err := ns.Load(t.Context(), p)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := ns.Acquire(t.Context(), p, "ghost", fallback.Expect{Epoch: r.Epoch}); err != nil || got.Verdict != fallback.Granted {
			t.Fatal(got, err)
		}
	}
	await.Until(t, "the ghost is dead", func() bool {
		l, err := ns.Dead(t.Context(), "ghost", fallback.Stamp{})
		if err != nil {
			t.Fatal(err)
		}
		return l.Dead
	})
	const p = 7
	var keys []string
	for i := 0; len(keys) < 3; i++ {
		if k := "z" + string(rune('a'+i%26)) + string(rune('a'+i/26)); xxhash.Sum64String(k)%61 == p {
			keys = append(keys, k)
		}
	}
	open := make(chan struct{})
	var calls atomic.Int32
	x := startNode(t, &gate{Arbiter: memory, acquire: func(ctx context.Context, n uint32) error {
		if n == p && calls.Add(1) == 1 {
			return until(open)(ctx)
		}
		return nil
	}}, o)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	go func() {
		if l, err := x.Lock(ctx, keys[0]); err == nil {
			_ = l.Unlock()
		}
	}()
	await.Until(t, "the partition is about to be made shared", func() bool { return calls.Load() == 1 })
	await.Until(t, "the other partitions are taken", func() bool { return x.Stats().Owned >= 60 })
	close(open)
	await.Until(t, "all partitions are taken", func() bool { return x.Stats().Owned == 61 })
	first, err := x.Lock(ctx, keys[1])
	if err != nil {
		t.Fatal(err)
	}
	r, err := ns.Load(ctx, p)
	t.Logf("record: %+v, %v", r, err)
	plain := startNode(t, memory, &coord.Options{Namespace: o.Namespace, Partitions: 61, SessionTTL: o.SessionTTL, Grace: o.Grace})
	short, cancel2 := context.WithTimeout(ctx, 500*time.Millisecond)
	defer cancel2()
	second, err := plain.Lock(short, keys[1])
	if err == nil && first.Context().Err() == nil && second.Context().Err() == nil {
		t.Errorf("I1: %s is held with %v and with %v", keys[1], fallback.Token(first.Fence()), fallback.Token(second.Fence()))
	}
	third, err := plain.Lock(short, keys[2])
	if err == nil {
		_ = third.Unlock()
		if fourth, err := x.Lock(short, keys[2]); err == nil && fourth.Fence() < third.Fence() {
			t.Errorf("I2: %s was granted with %v and then with %v", keys[2], fallback.Token(third.Fence()), fallback.Token(fourth.Fence()))
		}
	}
}

// A partition is revoked while the arbiter is in Grace, in which it cannot be given back.
// Afterwards its keys can be had (I8).
func TestAPartitionThatIsRevokedInGrace(t *testing.T) {
	takes.Seconds(t)
	const ttl = 3 * time.Second
	memory := fallback.NewMemory()
	o := nodeOptions(ttl)
	a, b := startNode(t, memory, o), startNode(t, memory, o)
	await.Until(t, "both own partitions", shared(a, b))
	ns := raw(t, memory, o)
	memory.Restore(memory.Snapshot()) // it has restarted, with its data
	since := time.Now()
	const p = 7
	r, err := ns.Load(t.Context(), p)
	if err != nil || r.Owner == "" || r.Grace == 0 {
		t.Fatal(r, err)
	}
	if err := ns.Revoke(t.Context(), p, r.Epoch, "test"); err != nil {
		t.Fatal(err)
	}
	time.Sleep(time.Until(since.Add(o.Grace + 500*time.Millisecond)))
	begun, late := time.Now(), mine.Late()
	for _, c := range []*coord.Coordinator{a, b} {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		l, err := c.Lock(ctx, keysOf61()[p])
		cancel()
		if d := time.Since(begun); err != nil || d > 2*time.Second+slack(late) {
			t.Errorf("500 ms after Grace a key was had after %v: %v", d, err)
		}
		if err == nil {
			_ = l.Unlock()
		}
	}
}
