package owners

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/fallback/redisarbiter"
	"github.com/holdfast-go/holdfast/gossip"
	"github.com/holdfast-go/holdfast/internal/await"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/storetest"
)

// A Store is a row of the table in docs/arbiters.md.
type Store struct {
	Name    string
	Options coord.Options // of each node, but for Cluster; Partitions is 31 if it is 0

	Serve func() (address string)               // starts a server, or names a file
	Open  func(address string) fallback.Arbiter // in this process, or in one that is killed

	// Usual returns the usual lock of the store's users elsewhere: a function that locks. Nil:
	// there is no such thing.
	Usual func(address string) func(ctx context.Context, key string) (unlock func() error, err error)
}

const (
	atAddress = "HOLDFAST_ROW_ADDRESS"  // in the environment of a process that is killed
	ready     = "owns and is guarded: " // the output of that process, with a key of its own
	kills     = 5
	rounds    = 200 // of two sides, by turns
	ownBatch  = 100 // locks of an owner, of a turn each
)

// Row logs the costs of locks with a store: an owner's, one that an owner is asked for, and an
// owner's of a key that was never locked; and the first one in a partition without an owner. Each
// is beside the same with a Redis of the same run. It also logs a key that is new to the store and
// one that is not, without a cluster, beside the store's usual lock. Last is how long the keys of a
// killed process stay its own. The test that calls Row is run again in that process, so it must do
// nothing else before.
func Row(t *testing.T, s Store) {
	t.Helper()
	storetest.Minutes(t)
	if s.Options.Partitions == 0 {
		s.Options.Partitions = 31
	}
	probesEnd(t) // runs after the nodes are closed
	if address := os.Getenv(atAddress); address != "" {
		c := s.node(t, s.Open(address), table, 0)
		await.Within(t, 3*time.Minute, "the node owns partitions, and is guarded", func() bool {
			x := c.Stats()
			return x.Owned > 0 && x.Guardians > 0
		})
		fmt.Println(ready + mine(t, c))
		_, _ = io.Copy(io.Discard, os.Stdin)
		return
	}
	address := s.Serve()
	server := redistest.Start(t)
	theirs := func(string) fallback.Arbiter {
		client := redis.NewClient(&redis.Options{Addr: server.Addr})
		t.Cleanup(func() { _ = client.Close() })
		return redisarbiter.New(client, &redisarbiter.Options{ColdStart: true})
	}
	ours, beside := s.pair(t, address, s.Open), s.pair(t, "", theirs)
	text := "row: | " + s.Name
	column := func(of string, unit float64, batch int, f, g func() error) {
		a, b := turns(t, batch, f, g)
		text += fmt.Sprintf(" | %.*f %s, %.2f x", digits(a/unit), a/unit, of, a/b)
	}
	column("ns", 1, ownBatch, ours.own(t), beside.own(t))
	column("µs", 1e3, 20, ours.forward(t), beside.forward(t))
	column("ns", 1, ownBatch, ours.fresh(t), beside.fresh(t))
	node, nodeRedis := s.touch(t, s.Open(address)), s.touch(t, theirs(""))
	column("ms", 1e6, 1, node.lock, nodeRedis.lock)
	node.end(t)
	nodeRedis.end(t)

	alone := s.node(t, s.Open(address), lone, -1)
	n := 0
	fresh := func() error {
		n++
		return lockAndUnlock(t.Context(), alone, fmt.Sprint("new ", n))
	}
	if s.Usual == nil {
		text += fmt.Sprintf(" | %.2f ms |", sample(t, fresh)[0]/1e6)
	} else {
		lock := s.Usual(address)
		took := sample(t, fresh, func() error {
			unlock, err := lock(t.Context(), "the usual")
			if err != nil {
				return err
			}
			return unlock()
		})
		text += fmt.Sprintf(" | %.2f ms, %.2g x the usual lock | %.2f ms", took[0]/1e6, took[0]/took[1], took[1]/1e6)
	}
	text += fmt.Sprintf(" | %.2f ms", sample(t, func() error { return lockAndUnlock(t.Context(), alone, "the same") })[0]/1e6)
	var gaps []float64
	for range kills {
		gaps = append(gaps, s.takeover(t, address, ours))
	}
	slices.Sort(gaps)
	t.Logf("%s | %.1f s |", text, gaps[len(gaps)/2])
	t.Logf("after %d kills: %.1f s; SessionTTL %v, RenewEvery %v (0: the default), %d partitions", kills, gaps, s.Options.SessionTTL,
		s.Options.RenewEvery, s.Options.Partitions)
}

// A pair is two nodes of a cluster. The second one gives keys of the first one back at once.
type pair struct{ one, two *coord.Coordinator }

func (s Store) pair(t *testing.T, address string, open func(string) fallback.Arbiter) pair {
	t.Helper()
	p := pair{s.node(t, open(address), table, 0), s.node(t, open(address), table, -1)}
	await.Within(t, 3*time.Minute, "two nodes own all partitions", func() bool {
		return p.whole(s.Options.Partitions)
	})
	return p
}

// whole reports whether the two own all partitions.
func (p pair) whole(partitions int) bool {
	return p.one.Stats().Owned+p.two.Stats().Owned == partitions
}

// Namespaces: that of a process without a cluster, and of nodes.
const lone, table, untouched = "alone", "table", "untouched"

func (s Store) node(t *testing.T, a fallback.Arbiter, namespace string, linger time.Duration) *coord.Coordinator {
	t.Helper()
	o := s.Options
	o.Namespace = namespace
	o.Handoff.Linger = linger
	if namespace != lone {
		o.Cluster = &coord.Cluster{Membership: gossip.Start, Gossip: "127.0.0.1:0"}
	}
	c, err := storetest.Join(t, a, &o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { leave(t, c) })
	return c
}

func leave(t *testing.T, c *coord.Coordinator) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := c.Close(ctx); err != nil { // on a machine that has much else to do
		t.Log(err)
	}
}

// key returns one that is free and fits.
func key(t *testing.T, fits func(key string) bool) string {
	t.Helper()
	for i := range 100_000 {
		if k := fmt.Sprint("key ", i); fits(k) {
			return k
		}
	}
	t.Fatal("no key is of that node")
	return ""
}

// mine returns a key that a node has locked as the owner: so no other node is about to hand it
// over.
func mine(t *testing.T, c *coord.Coordinator) string {
	return key(t, func(k string) bool {
		before := c.Stats().Granted[coord.PathOwn]
		return owns(c, k) && lockAndUnlock(t.Context(), c, k) == nil && c.Stats().Granted[coord.PathOwn] > before
	})
}

// owns reports whether a node owns a key.
func owns(c *coord.Coordinator, key string) bool {
	n, ok := c.Owner(key)
	return ok && n.Self
}

// own locks a key of the node's own.
func (p pair) own(t *testing.T) func() error {
	k := key(t, func(k string) bool { return owns(p.one, k) })
	return func() error { return lockAndUnlock(t.Context(), p.one, k) }
}

// fresh locks a key of the node's own that was never locked, another one each time.
func (p pair) fresh(t *testing.T) func() error {
	var keys []string
	for i := 0; len(keys) < rounds*ownBatch; i++ {
		if k := fmt.Sprint("fresh ", i); owns(p.one, k) {
			keys = append(keys, k)
		}
	}
	return func() error {
		k := keys[0]
		keys = keys[1:]
		return lockAndUnlock(t.Context(), p.one, k)
	}
}

// forward locks a key that the other node owns, and gives it back at once.
func (p pair) forward(t *testing.T) func() error {
	k := key(t, func(k string) bool { return owns(p.one, k) })
	return func() error { return lockAndUnlock(t.Context(), p.two, k) }
}

func lockAndUnlock(ctx context.Context, c *coord.Coordinator, key string) error {
	l, err := c.Lock(ctx, key)
	if err != nil {
		return err
	}
	return l.Unlock()
}

// turns returns the median times of two functions, in nanoseconds. They run by turns in batches.
func turns(t *testing.T, batch int, f, g func() error) (a, b float64) {
	t.Helper()
	var took [2][]float64
	for range rounds {
		for i, f := range []func() error{f, g} {
			began := time.Now()
			for range batch {
				if err := f(); err != nil {
					t.Fatal(err)
				}
			}
			took[i] = append(took[i], float64(time.Since(began))/float64(batch))
		}
	}
	return middle(took[0]), middle(took[1])
}

// sample returns the median times of functions, in nanoseconds. Each is called for some
// seconds, or a few hundred times, by turns in blocks: the first call of a block may be beside the
// last release of the block before.
func sample(t *testing.T, fs ...func() error) (medians []float64) {
	t.Helper()
	const calls, block = 300, 30
	took := make([][]float64, len(fs))
	for end := time.Now().Add(time.Duration(len(fs)) * 5 * time.Second); len(took[0]) < calls && (time.Now().Before(end) || len(took[0]) == 0); {
		for i, f := range fs {
			for range block {
				began := time.Now()
				if err := f(); err != nil {
					t.Fatal(err)
				}
				took[i] = append(took[i], float64(time.Since(began)))
			}
		}
	}
	for _, x := range took {
		medians = append(medians, middle(x))
	}
	return medians
}

// digits is how many places after the point a figure is told with.
func digits(x float64) int {
	switch {
	case x < 10:
		return 2
	case x < 100:
		return 1
	}
	return 0
}

func middle(of []float64) float64 {
	if len(of) == 0 {
		return math.NaN()
	}
	slices.Sort(of)
	return of[len(of)/2]
}

// sibling returns another key of a key's partition. The given key may still be in force in the
// process that has locked it a moment before: that may not have told the owner yet of its Unlock.
func (s Store) sibling(key string) string {
	for i := 0; ; i++ {
		if k := fmt.Sprint(key, " sibling ", i); s.partition(k) == s.partition(key) {
			return k
		}
	}
}

func (s Store) partition(key string) uint64 {
	return xxhash.Sum64String(key) % uint64(s.Options.Partitions)
}

// takeover has a third node join, in a process of its own, kills that, and returns for how many
// seconds its keys cannot be locked.
func (s Store) takeover(t *testing.T, address string, p pair) float64 {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-arbiters.full", "-test.timeout=5m")
	cmd.Env, cmd.Stderr = append(os.Environ(), atAddress+"="+address), os.Stderr
	stdin, err := cmd.StdinPipe() // so that it ends with this process
	if err != nil {
		t.Fatal(err)
	}
	defer stdin.Close()
	stdout, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	kill := sync.OnceFunc(func() { _, _ = cmd.Process.Kill(), cmd.Wait() })
	defer kill()
	k, own := "", false
	for lines := bufio.NewScanner(stdout); !own; k, own = strings.CutPrefix(lines.Text(), ready) {
		if !lines.Scan() {
			t.Fatal("the third node has ended")
		}
	}
	await.Within(t, time.Minute, "the second node asks the third one", func() bool {
		asked := p.two.Stats().Granted[coord.PathForwarded]
		return lockAndUnlock(t.Context(), p.two, s.sibling(k)) == nil && p.two.Stats().Granted[coord.PathForwarded] > asked
	})
	began := time.Now()
	kill()
	if err := lockAndUnlock(t.Context(), p.two, k); err != nil {
		t.Fatal(err)
	}
	gap := time.Since(began).Seconds()
	await.Within(t, 3*time.Minute, "two nodes own all partitions again", func() bool { return p.whole(s.Options.Partitions) })
	return gap
}
