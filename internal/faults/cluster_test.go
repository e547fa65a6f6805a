//go:build unix

package faults

import (
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/holdfast-go/holdfast/internal/await"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/takes"
)

// A fabric is a scene whose workers are the nodes of a cluster.
type fabric struct {
	*scene
	server *redistest.Server // that the records are read from
	keys   []string          // one of each partition, that all workers take turns with
}

// clustered is a job of a node.
func clustered(redis string, ttl time.Duration) job {
	return job{Redis: redis, TTL: ttl, Grace: ttl*5/4 + 250*time.Millisecond, Cluster: true}
}

// keyIn returns a key of a partition.
func keyIn(p int, prefix string) string {
	for i := 0; ; i++ {
		k := fmt.Sprint(prefix, i)
		if xxhash.Sum64String(k)%partitions == uint64(p) {
			return k
		}
	}
}

func keysOf(prefix string) []string {
	var keys []string
	for p := range partitions {
		keys = append(keys, keyIn(p, prefix))
	}
	return keys
}

// newFabric starts n nodes that take turns with a key of each partition, and waits until they own
// all of them.
func newFabric(t *testing.T, server *redistest.Server, base job, n int) *fabric {
	t.Helper()
	f := newIdleFabric(t, server, base, n)
	for _, p := range f.workers {
		for _, t := range f.turns() {
			f.give(p, t)
		}
	}
	f.settle(f.keys...)
	return f
}

// newIdleFabric starts n nodes without tasks.
func newIdleFabric(t *testing.T, server *redistest.Server, base job, n int) *fabric {
	t.Helper()
	f := &fabric{scene: newScene(t, base), server: server, keys: keysOf("b")}
	for i := range n {
		f.start(fmt.Sprint("w", i+1))
	}
	f.awaitOwners(20 * time.Second)
	return f
}

// turns are the tasks of a node: one for each key, so that a key that is not to be had holds up no
// other.
func (f *fabric) turns() []task {
	var all []task
	for _, k := range f.keys {
		all = append(all, task{Keys: []string{k}, Hold: span{5 * time.Millisecond, 20 * time.Millisecond},
			Rest: span{20 * time.Millisecond, 60 * time.Millisecond}})
	}
	return all
}

func (f *fabric) join(name string, more ...task) *process {
	return f.start(name, append(f.turns(), more...)...)
}

func (f *fabric) node(name string) *process {
	i := slices.IndexFunc(f.workers, func(p *process) bool { return p.name == name })
	return f.workers[i]
}

// owners returns the names of the nodes that own the partitions by the records: "" for none, "?"
// for one whose session the judge does not know.
func (f *fabric) owners() []string {
	f.t.Helper()
	c := f.server.Client(f.t)
	defer c.Close()
	all := make([]string, partitions)
	for p := range all {
		m, err := c.HGet(f.t.Context(), part(p), "m").Result()
		if err != nil {
			return all
		}
		parts := strings.SplitN(m, " ", 6)
		if len(parts) < 6 || parts[5] == "" {
			continue
		}
		f.judge.mu.Lock()
		all[p] = f.judge.sessions[parts[5]]
		f.judge.mu.Unlock()
		if all[p] == "" {
			all[p] = "?"
		}
	}
	return all
}

// unchanged is for how long nothing may change before the owners are believed to be the last: more
// than the ring's debounce.
const unchanged = 600 * time.Millisecond

// awaitOwners waits until all partitions are owned by the workers that there are, not all by the
// same one, and that stays so. (With few partitions, some workers may own none.)
func (f *fabric) awaitOwners(limit time.Duration) []string {
	f.t.Helper()
	var last []string
	var since time.Time
	late := mine.Late()
	for begun := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		all := f.owners()
		if !slices.Equal(all, last) {
			last, since = all, time.Now()
		}
		names := make(map[string]bool)
		good := true
		for _, n := range all {
			names[n] = true
			good = good && slices.Contains(f.names, n)
		}
		if good && (len(names) > 1 || len(f.names) == 1) && time.Since(since) > unchanged {
			return all
		}
		over := limit + unchanged + slack(late)
		if mine.Sum()-f.stalled > time.Second { // then partitions may have been revoked, for 12 R, and sessions lost
			over += 12*f.base.renewEvery() + 2*f.base.TTL + mine.Sum() - f.stalled
		}
		if time.Since(begun) > over {
			f.t.Fatalf("the partitions are owned by %q after %v; the nodes are %v", all, limit, f.names)
		}
	}
}

// forget takes a worker that has ended out of those that have to work.
func (f *fabric) forget(name string) {
	f.names = slices.DeleteFunc(slices.Clone(f.names), func(n string) bool { return n == name })
}

// leave lets a worker end and waits until it has.
func (f *fabric) leave(p *process) {
	f.t.Helper()
	f.forget(p.name)
	_ = p.stdin.Close()
	select {
	case <-p.ended:
	case <-time.After(endLimit):
		f.t.Errorf("%s has not ended after %v", p.name, endLimit)
		_ = p.cmd.Process.Signal(syscall.SIGQUIT) // for the goroutines' stacks
		<-p.ended
	}
}

// longest returns the visit of the keys that was waited for longest, of those that began in the
// time given.
func (f *fabric) longest(from, to time.Time) (longest visit) {
	for _, v := range f.judge.seen() {
		if slices.Contains(f.keys, v.Key) && v.Entered.After(from) && v.Entered.Before(to) && v.Waited > longest.Waited {
			longest = v
		}
	}
	return longest
}

// hold gives a worker keys for as long as it lives, and waits until it has them.
func (f *fabric) hold(p *process, keys ...string) {
	f.t.Helper()
	for i, k := range keys {
		t := forever(k)
		if i%2 == 1 {
			t = quietly(t)
		}
		f.give(p, t)
	}
	f.judge.await(f.t, 5*time.Second, fmt.Sprint(p.name, " has ", keys),
		each(keys, byKey, func(v visit) bool { return v.Worker == p.name }))
}

func TestAnOwnerIsKilled(t *testing.T) {
	takes.Seconds(t)
	long(t)
	server := redistest.Start(t)
	f := newIdleFabric(t, server, clustered(server.Addr, 3*time.Second), 4)
	owners := f.awaitOwners(time.Second)
	victim := owners[0]
	var his, others []int
	for p, n := range owners {
		if n == victim {
			his = append(his, p)
		} else {
			others = append(others, p)
		}
	}
	// The victim takes no part in others' keys: a key that it holds is not free before T.
	for i, t := range f.turns() {
		for _, p := range f.workers {
			if p.name != victim || owners[i] == victim {
				f.give(p, t)
			}
		}
	}
	f.settle(f.keys...)
	holder := f.node(owners[others[0]])
	held := keysOf("h")
	f.hold(holder, held...)
	f.work(100)

	killed := f.kill(f.node(victim))
	f.forget(victim)
	var keys []string
	for _, p := range his {
		keys = append(keys, f.keys[p])
	}
	got := f.judge.await(t, f.base.TTL+3*time.Second, "the keys of the killed node's partitions are granted again",
		each(keys, byKey, func(v visit) bool { return v.Entered.After(killed.Add(200 * time.Millisecond)) }))
	t.Logf("T is %v; the keys of the killed node's partitions are granted again after %v (to be: T + 1 s)", f.base.TTL,
		got.Sub(killed).Round(time.Millisecond))
	for _, p := range others {
		f.steady(f.keys[p], killed, got)
	}
	now := f.awaitOwners(f.base.TTL + 3*time.Second)
	t.Logf("all partitions are owned %v after the kill: %v", time.Since(killed).Round(time.Millisecond), now)
	time.Sleep(time.Until(killed.Add(2 * f.base.TTL)))
	f.work(100)
	f.unscathed(f.check(), held...)
}

func TestAnOwnerIsStopped(t *testing.T) {
	takes.Seconds(t)
	long(t)
	server := redistest.Start(t)
	f := newFabric(t, server, clustered(server.Addr, 3*time.Second), 3)
	owners := f.awaitOwners(time.Second)
	victim := f.node(owners[0])
	held := keysOf("h")
	f.hold(victim, held...)
	var his []string
	for p, n := range owners {
		if n == victim.name {
			his = append(his, f.keys[p])
		}
	}
	for _, n := range f.names {
		if n != victim.name {
			for _, k := range held {
				f.give(f.node(n), brief(k))
			}
		}
	}
	f.work(50)

	stopped := f.signal(victim, syscall.SIGSTOP)
	limit := f.base.TTL + 2*time.Second + scheduling
	got := f.judge.await(t, limit, "other nodes get the keys that it held",
		each(held, byKey, func(v visit) bool { return v.Worker != victim.name }))
	again := f.judge.await(t, limit, "the keys of its partitions are granted again", each(his, byKey,
		func(v visit) bool {
			return v.Worker != victim.name && v.Entered.After(stopped.Add(200*time.Millisecond))
		}))
	time.Sleep(time.Until(stopped.Add(f.base.TTL + 1500*time.Millisecond)))
	woken := f.signal(victim, syscall.SIGCONT)
	told := f.judge.await(t, scheduling, "the holder is told",
		each(held, byKey, func(v visit) bool { return v.Worker == victim.name && v.State == forfeited }))
	back := f.judge.await(t, f.base.TTL+2*scheduling, "the stopped node works again", each(his, byKey,
		func(v visit) bool { return v.Worker == victim.name && v.Entered.After(woken) && v.State == unlocked }))
	f.awaitOwners(f.base.TTL + 3*time.Second)
	t.Logf("T is %v; stopped for %v; what it held was granted after %v, what it owned after %v; told after %v, works again after %v, owns again after %v",
		f.base.TTL, woken.Sub(stopped).Round(time.Millisecond), got.Sub(stopped).Round(time.Millisecond),
		again.Sub(stopped).Round(time.Millisecond), told.Sub(woken).Round(time.Millisecond),
		back.Sub(woken).Round(time.Millisecond), time.Since(woken).Round(time.Millisecond))
	f.work(50)
	all := f.check()
	if n := all[victim.name].Sessions; n != 2 {
		t.Errorf("the stopped node has had %d sessions", n)
	}
	delete(all, victim.name)
	f.unscathed(all)
}

func TestOwnersWorkWithoutTheArbiter(t *testing.T) {
	takes.Seconds(t)
	long(t)
	server := redistest.Start(t)
	proxy := redistest.StartProxy(t, server.Addr)
	f := newFabric(t, server, clustered(proxy.Addr, 6*time.Second), 3)
	held := keysOf("h")
	f.hold(f.node("w1"), held...)
	const away = 2500 * time.Millisecond
	if away >= f.base.outage()-f.base.TTL/5 {
		t.Fatalf("T - M - R is %v", f.base.outage())
	}
	for _, fault := range []struct {
		name       string
		begin, end func()
	}{
		{"stopped", func() { stopServer(t, server, syscall.SIGSTOP) }, func() { stopServer(t, server, syscall.SIGCONT) }},
		{"cut off", func() { proxy.Point("") }, func() { proxy.Point(server.Addr) }},
	} {
		f.work(50)
		begun := time.Now()
		fault.begin()
		time.Sleep(away)
		over := time.Now()
		fault.end()
		n := 0
		for _, v := range f.judge.seen() {
			if v.Entered.After(begun) && v.Entered.Before(over) {
				n++
			}
		}
		time.Sleep(f.base.renewEvery() + scheduling)
		for _, k := range f.keys {
			f.steady(k, begun, time.Now())
		}
		longest := f.longest(begun, time.Now())
		t.Logf("T - M - R is %v; redis was %s for %v: %d locks meanwhile, the longest wait was %v", f.base.outage(), fault.name,
			away, n, longest.Waited.Round(time.Millisecond))
		if longest.Waited > pause+mine.Late()-f.late {
			t.Errorf("%v waited for %v", longest, longest.Waited)
		}
	}
	all := f.check()
	f.unscathed(all, held...)
}

// recoverOwned is recover for nodes that own partitions and go on with them.
func (f *failover) recoverOwned() {
	f.t.Helper()
	limit, late := f.restored.Add(f.base.Grace+3*time.Second), mine.Late()
	after := func(v visit) bool { return v.Entered.After(f.restored.Add(f.base.Grace)) }
	processes := f.judge.await(f.t, time.Until(limit), "every process works again (I8)", each(f.names, byWorker, after))
	keys := f.judge.await(f.t, time.Until(limit)+slack(late), "every key is granted again (I8)", each(f.keys, byKey, after))
	f.t.Logf("Q is %v; away for %v; after Grace every process works after %v, every key is granted after %v", f.base.Grace,
		f.restored.Sub(f.killed).Round(time.Millisecond), processes.Sub(f.restored).Round(time.Millisecond),
		keys.Sub(f.restored).Round(time.Millisecond))
}

func TestRedisFailsOverUnderOwners(t *testing.T) {
	for _, test := range []struct {
		name    string
		to      successor
		joining bool
	}{
		{"restarted empty", itself, false},
		{"a promoted replica that misses writes", replica, false},
		{"a promoted replica that misses who owns what", replica, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			long(t)
			f := newFailoverOf(t, clustered("", 3*time.Second), test.to, crew())
			x := &fabric{scene: f.scene, server: f.primary}
			x.awaitOwners(20 * time.Second)
			if test.to == replica {
				f.missing = f.base.TTL + 100*time.Millisecond // to the replica, all sessions have expired
			}
			if test.joining {
				if err := f.next.Replicate(t.Context(), nil); err != nil {
					t.Fatal(err)
				}
				f.start("w5", brief(busy...))
				x.awaitOwners(20 * time.Second)
			}
			f.strike()
			f.recoverOwned()
			x.server = f.primary
			x.awaitOwners(f.base.Grace + 5*time.Second)
			f.verify()
		})
	}
}

func TestNodesAreRestartedOneByOne(t *testing.T) {
	takes.Seconds(t)
	long(t)
	server := redistest.Start(t)
	f := newFabric(t, server, clustered(server.Addr, 3*time.Second), 4)
	keeper := f.join("n1")
	f.awaitOwners(10 * time.Second)
	held := keysOf("h")
	f.hold(keeper, held...)
	begun := time.Now()
	for i := range 4 {
		if i > 0 {
			f.join(fmt.Sprint("n", i+1))
			f.awaitOwners(10 * time.Second)
		}
		since := time.Now()
		f.leave(f.node(fmt.Sprint("w", i+1)))
		left := time.Now()
		f.awaitOwners(10 * time.Second)
		f.judge.await(t, 5*time.Second, "each key is used", each(f.keys, byKey, func(v visit) bool { return v.Entered.After(left) }))
		t.Logf("w%d left within %v; all is owned again %v later", i+1, left.Sub(since).Round(time.Millisecond),
			time.Since(left).Round(time.Millisecond))
	}
	time.Sleep(time.Until(begun.Add(f.base.TTL + time.Second)))
	f.work(50)
	all := f.check()
	longest := f.longest(begun, time.Now())
	t.Logf("the longest wait was %v (to be: 1 s), of %v for %s", longest.Waited.Round(time.Millisecond), longest, longest.Key)
	if longest.Waited > 3*time.Second+mine.Late()-f.late {
		t.Errorf("%v waited for %v", longest, longest.Waited)
	}
	f.unscathed(all, held...)
}

func TestEightNodesStartAtOnce(t *testing.T) {
	takes.Seconds(t)
	long(t)
	server := redistest.Start(t)
	f := &fabric{scene: newScene(t, clustered(server.Addr, 3*time.Second)), server: server, keys: keysOf("b")}
	begun := time.Now()
	for i := range 8 {
		f.start(fmt.Sprint("w", i+1), brief(f.keys...))
	}
	await.Until(t, "all partitions are owned", func() bool { return !slices.Contains(f.owners(), "") })
	t.Logf("all partitions are owned after %v", time.Since(begun).Round(time.Millisecond))
	f.settle(f.keys...)
	f.check()
}

// All nodes lose their sessions at the same time, and begin new ones. From then on everything is as
// before: also a hold that an owner gave to another node is good for as long as both live.
func TestNodesFindTogetherAfterALongStopOfRedis(t *testing.T) {
	takes.Seconds(t)
	long(t)
	server := redistest.Start(t)
	f := newFabric(t, server, clustered(server.Addr, 3*time.Second), 3)
	f.work(50)
	stopped := stopServer(t, server, syscall.SIGSTOP)
	time.Sleep(f.base.TTL + time.Second)
	back := stopServer(t, server, syscall.SIGCONT)
	f.judge.await(t, f.base.TTL+3*time.Second, "every node works again",
		each(f.names, byWorker, func(v visit) bool { return v.Entered.After(back) }))
	again := f.judge.await(t, f.base.TTL+3*time.Second, "every key is granted again",
		each(f.keys, byKey, func(v visit) bool { return v.Entered.After(back) }))
	f.awaitOwners(f.base.TTL + 3*time.Second)
	t.Logf("stopped for %v; every key is granted again after %v, every partition is owned after %v",
		back.Sub(stopped).Round(time.Millisecond), again.Sub(back).Round(time.Millisecond), time.Since(back).Round(time.Millisecond))
	held := keysOf("h")
	f.hold(f.node("w1"), held...)
	await.Throughout(t, f.base.TTL+time.Second, "nothing is lost", func() bool {
		for _, v := range f.judge.seen() {
			if v.State == forfeited && slices.Contains(held, v.Key) {
				t.Errorf("%s, held by %v, was lost: %s", v.Key, v, v.Cause)
			}
		}
		return !t.Failed()
	})
	f.check()
}
