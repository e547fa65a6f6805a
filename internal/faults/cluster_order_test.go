package faults

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/gossip"
	"github.com/holdfast-go/holdfast/internal/await"
	"github.com/holdfast-go/holdfast/internal/loopback"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/takes"
)

// The tests of this file bring about one order of events that is rare in the tests with processes.
// They run nodes in this process, with an embedded arbiter and real streams between them.

// slowArbiter is an arbiter between which and one node something goes wrong.
type slowArbiter struct {
	fallback.Arbiter
	away  atomic.Bool  // nothing reaches it
	tried atomic.Int32 // calls of Attach meanwhile
	mute  atomic.Bool  // no Demote and no Adopt reaches it
	lock  func()       // called after a Lock was executed, before its answer is known; or nil
}

var errAway = errors.New("the arbiter is away")

func (a *slowArbiter) Attach(ctx context.Context, s fallback.Settings) (fallback.Namespace, error) {
	if a.away.Load() {
		a.tried.Add(1)
		return nil, errAway
	}
	ns, err := a.Arbiter.Attach(ctx, s)
	return &slowNamespace{ns, a}, err
}

type slowNamespace struct {
	fallback.Namespace
	a *slowArbiter
}

func (n *slowNamespace) Lock(ctx context.Context, r fallback.LockRequest) (fallback.LockAnswer, error) {
	ans, err := n.Namespace.Lock(ctx, r)
	if n.a.lock != nil {
		n.a.lock()
	}
	return ans, err
}

func (n *slowNamespace) Open(ctx context.Context, id string, r fallback.Registration) (fallback.Renewal, error) {
	if n.a.away.Load() {
		return fallback.Renewal{}, errAway
	}
	return n.Namespace.Open(ctx, id, r)
}

func (n *slowNamespace) Renew(ctx context.Context, id string, r fallback.Registration) (fallback.Renewal, error) {
	if n.a.away.Load() {
		return fallback.Renewal{}, errAway
	}
	return n.Namespace.Renew(ctx, id, r)
}

func (n *slowNamespace) Demote(ctx context.Context, p uint32, me string, epoch uint32,
	holds map[string]fallback.Row) (fallback.Demotion, error) {
	if n.a.mute.Load() {
		return fallback.Demotion{}, errAway
	}
	return n.Namespace.Demote(ctx, p, me, epoch, holds)
}

func (n *slowNamespace) Restore(ctx context.Context, claims []fallback.Claims) []fallback.Restored {
	if n.a.mute.Load() {
		return slices.Repeat([]fallback.Restored{{Err: errAway}}, len(claims))
	}
	return n.Namespace.Restore(ctx, claims)
}

// nodeOptions are those of a node in this process.
func nodeOptions(ttl time.Duration) *coord.Options {
	return &coord.Options{Namespace: namespace, Partitions: 61, SessionTTL: ttl, Grace: ttl*5/4 + 250*time.Millisecond,
		Cluster: &coord.Cluster{Membership: gossip.Start, Gossip: "127.0.0.1:0", Debounce: 200 * time.Millisecond, Keepalive: ttl / 15}}
}

func startNode(t *testing.T, a fallback.Arbiter, o *coord.Options) *coord.Coordinator {
	t.Helper()
	c, err := coord.New(context.Background(), a, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		_ = c.Close(ctx)
	})
	return c
}

// shared tells whether the nodes own all 61 partitions, and each of them some.
func shared(nodes ...*coord.Coordinator) func() bool {
	return func() bool {
		sum := 0
		for _, c := range nodes {
			n := c.Stats().Owned
			if n == 0 || len(c.Nodes()) != len(nodes) {
				return false
			}
			sum += n
		}
		return sum == 61
	}
}

// keysOf61 returns one key of each partition.
func keysOf61() []string {
	keys := make([]string, 61)
	for i, n := 0, 0; n < len(keys); i++ {
		k := fmt.Sprint("k", i)
		if p := xxhash.Sum64String(k) % 61; keys[p] == "" {
			keys[p] = k
			n++
		}
	}
	return keys
}

// A node has locked a key at the arbiter, and does not know it yet, when it becomes the owner of
// the key's partition. Then it must not grant the key to another node (I1).
func TestAnOwnerRespectsItsOwnRequestUnderWay(t *testing.T) {
	const ttl = time.Minute
	memory := fallback.NewMemory()
	answer := make(chan struct{})
	slow := &slowArbiter{Arbiter: memory, lock: func() { <-answer }}
	o := nodeOptions(ttl)
	o.Cluster.Keepalive, o.CallTimeout = 200*time.Millisecond, 6*time.Second
	x := startNode(t, slow, o)
	keys := keysOf61()
	type result struct {
		l   coord.Lock
		err error
	}
	var mu sync.Mutex
	got := make(map[string]result)
	var work sync.WaitGroup
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for _, k := range keys { // before the ring has settled, so each goes to the arbiter
		work.Go(func() {
			l, err := x.Lock(ctx, k)
			mu.Lock()
			defer mu.Unlock()
			got[k] = result{l, err}
		})
	}
	other := startNode(t, memory, o)
	await.Within(t, 5*time.Second, "both own partitions", shared(x, other))
	taken := make(map[string]coord.Lock)
	var tries sync.WaitGroup
	for _, k := range keys {
		if n, ok := other.Owner(k); ok && !n.Self {
			tries.Go(func() {
				c, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
				defer cancel()
				if l, err := other.Lock(c, k); err == nil {
					mu.Lock()
					defer mu.Unlock()
					taken[k] = l
				}
			})
		}
	}
	tries.Wait()
	close(answer) // the arbiter's answers come, in less than CallTimeout
	await.Throughout(t, 300*time.Millisecond, "each key has one holder (I1)", func() bool {
		mu.Lock()
		defer mu.Unlock()
		for k, l := range taken {
			if r, ok := got[k]; ok && r.err == nil && r.l.Context().Err() == nil && l.Context().Err() == nil {
				t.Errorf("I1: %s is held with %v at its owner and with %v at another node", k, fallback.Token(r.l.Fence()),
					fallback.Token(l.Fence()))
				return false
			}
		}
		return true
	})
	mu.Lock()
	defer mu.Unlock()
	for _, l := range taken {
		_ = l.Unlock()
	}
	mu.Unlock()
	cancel()
	work.Wait()
	mu.Lock()
	for _, r := range got {
		if r.err == nil {
			_ = r.l.Unlock()
		}
	}
}

// strangers starts two nodes while the arbiter is away, with a proxy between them. They look for
// each other, and must not have a stream, as nothing vouches for them. Then the arbiter answers,
// and strangers waits until both own partitions.
func strangers(t *testing.T, ttl time.Duration) (nodes []*coord.Coordinator, proxies []*redistest.Proxy) {
	t.Helper()
	memory := fallback.NewMemory()
	var arbiters []*slowArbiter
	var first string
	for i := range 2 {
		a := &slowArbiter{Arbiter: memory}
		a.away.Store(true)
		o := nodeOptions(ttl)
		o.StartUnavailable = true
		o.Cluster.Gossip, o.Cluster.Peer = loopback.Address(t), loopback.Address(t)
		p := redistest.StartProxy(t, o.Cluster.Peer)
		proxies = append(proxies, p)
		o.Cluster.PeerAdvertise = p.Addr
		if i == 0 {
			first = o.Cluster.Gossip
		} else {
			o.Cluster.Seeds = []string{first}
		}
		nodes, arbiters = append(nodes, startNode(t, a, o)), append(arbiters, a)
	}
	linked := func(c *coord.Coordinator) bool {
		for _, n := range c.Nodes() {
			if !n.Self && n.Linked {
				return true
			}
		}
		return false
	}
	await.Until(t, "both have tried", func() bool { return arbiters[0].tried.Load() > 3 && arbiters[1].tried.Load() > 3 })
	if linked(nodes[0]) || linked(nodes[1]) {
		t.Error("there is a stream between nodes that the arbiter has not listed")
	}
	for _, a := range arbiters {
		a.away.Store(false)
	}
	await.Until(t, "both own partitions", shared(nodes...))
	return nodes, proxies
}

// lockAll locks a key of each partition.
func lockAll(t *testing.T, c *coord.Coordinator) map[string]coord.Lock {
	t.Helper()
	locks := make(map[string]coord.Lock)
	for _, k := range keysOf61() {
		l, err := c.Lock(t.Context(), k)
		if err != nil {
			t.Fatal(err)
		}
		locks[k] = l
	}
	return locks
}

// Two nodes have started without an arbiter, and get their sessions at the same time. A grant of
// one of them to the other is good for as long as both live.
func TestNodesThatMeetWithoutSessions(t *testing.T) {
	takes.Seconds(t)
	const ttl = 3 * time.Second
	nodes, _ := strangers(t, ttl)
	keep(t, lockAll(t, nodes[1]), ttl+time.Second)
}

// keep looks for a while whether all of the locks stay in force, and unlocks them.
func keep(t *testing.T, locks map[string]coord.Lock, while time.Duration) {
	t.Helper()
	await.Throughout(t, while, "all locks are in force", func() bool {
		for _, l := range locks {
			if l.Context().Err() != nil {
				t.Errorf("%v is lost: %v", l, context.Cause(l.Context()))
				return false
			}
		}
		return true
	})
	for _, l := range locks {
		_ = l.Unlock()
	}
}

// The same, and the stream between them breaks and comes back while one has keys of the other (rule
// 12).
func TestAStatementOfHoldsIsBelieved(t *testing.T) {
	takes.Seconds(t)
	nodes, proxies := strangers(t, 6*time.Second)
	locks := lockAll(t, nodes[1])
	for _, p := range proxies {
		p.Break()
	}
	var work sync.WaitGroup
	for k, l := range locks {
		work.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			defer cancel()
			second, err := nodes[0].Lock(ctx, k)
			if err != nil {
				return
			}
			select {
			case <-l.Context().Done():
			case <-second.Context().Done():
			case <-time.After(200 * time.Millisecond):
				t.Errorf("I1: %s is held with %v and with %v", k, fallback.Token(l.Fence()), fallback.Token(second.Fence()))
			}
			_ = second.Unlock()
		})
	}
	work.Wait()
	for _, l := range locks {
		_ = l.Unlock()
	}
}

// Keys are held while their partitions go to another node, and are given back afterwards. Waiters
// for them there get them without having to wait for the doubt of R (rule 9: a release is told to
// the owner that the record names).
func TestAHoldThatChangedOwnersIsGivenBackToTheNewOne(t *testing.T) {
	takes.Seconds(t)
	memory := fallback.NewMemory()
	o := nodeOptions(20 * time.Second) // R is 5 s
	a, b := startNode(t, memory, o), startNode(t, memory, o)
	await.Until(t, "both own partitions", shared(a, b))
	locks := lockAll(t, a)
	c := startNode(t, memory, o)
	await.Until(t, "all own partitions", shared(a, b, c))
	var work sync.WaitGroup
	var mu sync.Mutex
	var unlocked, last time.Time
	slow := 0
	for k := range locks {
		work.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			l, err := c.Lock(ctx, k)
			now := time.Now()
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				t.Error(err)
				return
			}
			if last = now; now.Sub(unlocked) > o.SessionTTL/8 {
				slow++
			}
			_ = l.Unlock()
		})
	}
	await.Until(t, "all wait", func() bool { return c.Stats().Waiting == len(locks) })
	mu.Lock()
	for _, l := range locks {
		if err := l.Unlock(); err != nil {
			t.Error(err)
		}
	}
	unlocked = time.Now()
	mu.Unlock()
	work.Wait()
	t.Logf("the last of %d keys was granted %v after it was unlocked", len(locks), last.Sub(unlocked).Round(time.Millisecond))
	if slow > 0 {
		t.Errorf("%d of %d keys were granted more than half of R after they were unlocked", slow, len(locks))
	}
}

// A node joins while the arbiter is in Grace, in which no partition can be given back. Afterwards
// all keys can be had from the new node (I8).
func TestANodeJoinsInGrace(t *testing.T) {
	takes.Seconds(t)
	const ttl = 3 * time.Second
	memory := fallback.NewMemory()
	o := nodeOptions(ttl)
	a, b := startNode(t, memory, o), startNode(t, memory, o)
	await.Until(t, "both own partitions", shared(a, b))
	memory.Restore(memory.Snapshot()) // it has restarted, with its data
	since := time.Now()
	c := startNode(t, memory, o)
	time.Sleep(time.Until(since.Add(o.Grace + time.Second)))
	calls := a.Stats().Calls[coord.OpLock] + b.Stats().Calls[coord.OpLock] + c.Stats().Calls[coord.OpLock]
	stuck := 0
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	var work sync.WaitGroup
	var mu sync.Mutex
	for _, k := range keysOf61() {
		work.Go(func() {
			l, err := c.Lock(ctx, k)
			if err != nil {
				mu.Lock()
				defer mu.Unlock()
				stuck++
				t.Logf("%s: %v", k, err)
				return
			}
			_ = l.Unlock()
		})
	}
	work.Wait()
	after := a.Stats().Calls[coord.OpLock] + b.Stats().Calls[coord.OpLock] + c.Stats().Calls[coord.OpLock]
	if stuck > 0 {
		t.Errorf("%d of 61 keys could not be had within 5 s, long after Grace; %d requests were sent to the arbiter meanwhile",
			stuck, after-calls)
	}
	await.Until(t, "all partitions are owned", func() bool { return a.Stats().Owned+b.Stats().Owned+c.Stats().Owned == 61 })
}

// A node closes while its demotions do not get through, and then its last calls do. The holds that
// it has announced to others are still in force: no other node may have these keys (I1, I5; a
// session is closed after its partitions are demoted).
func TestANodeClosesWithoutDemoting(t *testing.T) {
	takes.Seconds(t)
	memory := fallback.NewMemory()
	o := nodeOptions(10 * time.Second)
	leaver, holder := &slowArbiter{Arbiter: memory}, &slowArbiter{Arbiter: memory}
	x, y := startNode(t, leaver, o), startNode(t, holder, o)
	await.Until(t, "both own partitions", shared(x, y))
	locks := make(map[string]coord.Lock)
	owner := x.Nodes()[0]
	for _, n := range x.Nodes() {
		if n.Self {
			owner = n
		}
	}
	for _, k := range keysOf61() {
		if n, ok := y.Owner(k); ok && n.ID == owner.ID {
			l, err := y.Lock(t.Context(), k)
			if err != nil {
				t.Fatal(err)
			}
			locks[k] = l
		}
	}
	leaver.mute.Store(true)
	holder.mute.Store(true)
	time.AfterFunc(3*time.Second, func() { holder.mute.Store(false) })
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	t.Logf("Close: %v", x.Close(ctx))
	z := startNode(t, memory, o) // which has not asked yet whether the session is dead
	var work sync.WaitGroup
	for k, l := range locks {
		work.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
			defer cancel()
			second, err := z.Lock(ctx, k)
			if err != nil {
				return
			}
			if second.Context().Err() == nil && l.Context().Err() == nil {
				t.Errorf("I1: %s is held with %v and with %v", k, fallback.Token(l.Fence()), fallback.Token(second.Fence()))
			}
			_ = second.Unlock()
		})
	}
	work.Wait()
	for _, l := range locks {
		_ = l.Unlock()
	}
}

// An owner cannot renew its session; all else is well. Others keep the locks that it has granted to
// them: they adopt them in time (rule 7).
func TestAnOwnerCannotRenew(t *testing.T) {
	takes.Seconds(t)
	const ttl = 4 * time.Second
	memory := fallback.NewMemory()
	slow := &slowArbiter{Arbiter: memory}
	x, y := startNode(t, slow, nodeOptions(ttl)), startNode(t, memory, nodeOptions(ttl))
	await.Until(t, "both own partitions", shared(x, y))
	locks := lockAll(t, y)
	slow.away.Store(true)
	keep(t, locks, ttl+time.Second)
}
