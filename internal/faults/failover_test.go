//go:build unix

package faults

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/takes"
)

// A failover test: workers that reach their server through a proxy. Then the server comes back, or
// another one in its place: not the server that they knew.
type failover struct {
	*scene
	proxy   *redistest.Proxy
	primary *redistest.Server
	next    *redistest.Server // that takes over; nil: the primary is restarted
	follows bool              // next is a replica
	missing time.Duration     // how long the replica misses writes, at least

	// before is called, if it is not nil, with the new server before any worker gets to that.
	before func(s *redistest.Server)

	keys     []string  // that the workers take turns with
	kept     []string  // that a worker has all the time
	epoch    uint32    // the highest one seen before
	killed   time.Time // when the old server was
	restored time.Time // when workers could reach the new one
}

var (
	busy = []string{"a", "b", "c"} // keys that are held for milliseconds
	slow = []string{"x", "y"}      // keys that are held for a second
)

// brief and lasting are tasks that several workers do.
func brief(keys ...string) task {
	return task{Keys: keys, Hold: span{time.Millisecond, 15 * time.Millisecond}, Rest: span{0, 10 * time.Millisecond}}
}

func lasting(keys ...string) task {
	return task{Keys: keys, Hold: span{time.Second, time.Second}}
}

// forever is a task of one worker, that ends when the worker does, or when the lock is lost.
func forever(key string) task {
	return task{Keys: []string{key}, Hold: span{time.Hour, time.Hour}, Rest: span{time.Hour, time.Hour}}
}

// impatient is a task whose callers often give up.
func impatient(t task) task {
	t.Patience = span{0, 30 * time.Millisecond}
	return t
}

// quietly is a task that is done without looking at the lock.
func quietly(t task) task {
	t.Quiet = true
	return t
}

// crew is four processes that share short locks, and in pairs a long one. One of them has two locks
// all the time.
func crew() [][]task {
	all := make([][]task, 4)
	for i := range all {
		all[i] = []task{brief(busy...), brief(busy...), lasting(slow[i%len(slow)])}
	}
	all[0] = append(all[0], forever("kept"), quietly(forever("quiet")))
	return all
}

// successor is the server after the primary.
type successor int

const (
	itself  successor = iota // restarted
	empty                    // another server, that knows nothing
	replica                  // one that misses the last writes
)

// newFailover starts a process for each list of tasks, and waits until all of them work. args are
// the primary's.
func newFailover(t *testing.T, to successor, crew [][]task, args ...string) *failover {
	t.Helper()
	return newFailoverOf(t, job{TTL: 2 * time.Second, Grace: 2500 * time.Millisecond}, to, crew, args...)
}

// newFailoverOf is newFailover for workers that have base in common.
func newFailoverOf(t *testing.T, base job, to successor, crew [][]task, args ...string) *failover {
	t.Helper()
	f := &failover{primary: redistest.Start(t, append(args, "--repl-diskless-sync-delay", "0")...)}
	f.proxy = redistest.StartProxy(t, f.primary.Addr)
	if to != itself {
		f.next = redistest.Start(t)
	}
	if to == replica {
		f.follows = true
		follow(t, f.next, f.primary)
	}
	base.Redis = f.proxy.Addr
	f.scene = newScene(t, base)
	for i, tasks := range crew {
		f.start(fmt.Sprintf("w%d", i+1), tasks...)
		for _, task := range tasks {
			if task.Hold.From == time.Hour {
				f.kept = append(f.kept, task.Keys...)
			} else {
				f.keys = append(f.keys, task.Keys...)
			}
		}
	}
	f.settle(append(f.kept, f.keys...)...)
	// An epoch is a number of seconds. Without Grace, tokens after a loss would rise only from the
	// next second on.
	since := time.Now()
	f.judge.await(t, 20*time.Second, "they go on", func(v visit) bool { return v.Entered.Sub(since) > time.Second })
	return f
}

// settle waits until each process and each of the keys is at work.
func (s *scene) settle(keys ...string) {
	s.t.Helper()
	s.judge.await(s.t, 20*time.Second, "each process works", each(s.names, byWorker, anyVisit))
	s.judge.await(s.t, 20*time.Second, "each key is used", each(keys, byKey, anyVisit))
}

// work waits until so many locks have been unlocked, and returns how long that took. Two keys that
// workers take turns with, for 8 ms each, make some 200 locks a second; a loaded machine makes
// less.
func (s *scene) work(locks int) time.Duration {
	s.t.Helper()
	since := time.Now()
	done := s.judge.await(s.t, 5*time.Second+scheduling, fmt.Sprint(locks, " locks"), func(v visit) bool {
		if v.Entered.After(since) && v.State == unlocked {
			locks--
		}
		return locks <= 0
	})
	return done.Sub(since)
}

func anyVisit(visit) bool { return true }

// follow makes a server the replica of another and waits until it has everything.
func follow(t *testing.T, replica, primary *redistest.Server) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	c := replica.Client(t)
	for told := false; ; {
		var err error
		if !told { // it may have to load its data first
			err = replica.Replicate(ctx, primary)
			told = err == nil
		}
		info := c.Info(ctx, "replication").Val()
		if told && strings.Contains(info, "master_link_status:up") {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("no replication: %v\n%s", err, info)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// strike takes the old server away and brings the new one.
func (f *failover) strike() {
	f.t.Helper()
	if f.follows {
		f.miss()
	}
	if f.next != nil && f.before != nil {
		f.before(f.next)
	}
	if f.next == nil && f.before != nil {
		f.proxy.Point("")
	}
	f.primary.Kill()
	f.killed = time.Now()
	for _, v := range f.judge.seen() {
		f.epoch = max(f.epoch, v.Token.Epoch())
	}
	if f.next == nil {
		if err := f.primary.Restart(); err != nil {
			f.t.Fatal(err)
		}
		if f.before != nil {
			f.before(f.primary)
		}
		f.restored = time.Now()
		f.proxy.Point(f.primary.Addr)
		return
	}
	f.restored = time.Now()
	f.proxy.Point(f.next.Addr)
	f.primary, f.next, f.follows = f.next, nil, false
}

// miss promotes the replica while the workers go on with the primary, until each key and each
// process has had a turn unknown to the replica.
func (f *failover) miss() {
	f.t.Helper()
	if err := f.next.Replicate(f.t.Context(), nil); err != nil {
		f.t.Fatal(err)
	}
	cut := time.Now()
	missed := func(v visit) bool { return v.Entered.After(cut) }
	f.judge.await(f.t, 20*time.Second, "each key is locked again", each(f.keys, byKey, missed))
	f.judge.await(f.t, 20*time.Second, "each process locks again", each(f.names, byWorker, missed))
	f.judge.await(f.t, 20*time.Second, "they go on", func(v visit) bool { return v.Entered.Sub(cut) > f.missing })
}

// taken tells of a lock that the new server granted: an epoch ends with Grace.
func (f *failover) taken(v visit) bool { return v.Token.Epoch() > f.epoch }

// recover waits until the new server has granted a lock to every process, and every key. The
// protocol promises that within Q of the server's return; noticing and the machine get 2 s more.
func (f *failover) recover() {
	f.t.Helper()
	limit, late := f.restored.Add(f.base.Grace+2*time.Second), mine.Late()
	processes := f.judge.await(f.t, time.Until(limit), "every process works again (I8)", each(f.names, byWorker, f.taken))
	keys := f.judge.await(f.t, time.Until(limit)+slack(late), "every key is granted again (I8)",
		each(f.keys, byKey, f.taken))
	f.t.Logf("Q is %v; away for %v; every process works again after %v, every key is granted again after %v", f.base.Grace,
		f.restored.Sub(f.killed).Round(time.Millisecond), processes.Sub(f.restored).Round(time.Millisecond),
		keys.Sub(f.restored).Round(time.Millisecond))
}

// verify ends the workers and checks the guarantees after a failover.
func (f *failover) verify() {
	f.t.Helper()
	all := f.check()
	for _, v := range f.judge.seen() {
		if f.taken(v) && v.Entered.Before(f.killed.Add(f.base.Grace)) {
			f.t.Errorf("I7: %s: %v was granted in Grace, %v after the old server's end", v.Key, v, v.Entered.Sub(f.killed))
		}
	}
	// Locks outlive an outage shorter than T - M - R, with 500 ms for the calls themselves.
	if f.restored.Sub(f.killed) > f.base.outage()-500*time.Millisecond {
		f.t.Logf("the machine is slow: losses are not counted")
		return
	}
	f.unscathed(all, f.kept...)
}

func TestARedisThatRestartsEmptyGrantsNothingTwice(t *testing.T) {
	takes.Seconds(t)
	long(t)
	f := newFailover(t, itself, crew())
	f.strike()
	f.recover()
	f.verify()
}

func TestAnEmptyServerInItsPlaceGrantsNothingTwice(t *testing.T) {
	takes.Seconds(t)
	long(t)
	f := newFailover(t, empty, crew())
	f.strike()
	f.recover()
	f.verify()
}

func TestAPromotedReplicaThatMissesWritesGrantsNothingTwice(t *testing.T) {
	takes.Seconds(t)
	long(t)
	f := newFailover(t, replica, crew())
	f.missing = f.base.TTL + 100*time.Millisecond // to the replica, all sessions have expired
	f.strike()
	f.recover()
	f.verify()
}

// The queue of a key at the replica is the one of long ago: every process waits in it with a
// request that has ended since.
func TestWaitersThatAPromotedReplicaRemembersDelayNobody(t *testing.T) {
	takes.Seconds(t)
	long(t)
	f := newFailover(t, replica, slices.Repeat([][]task{{brief("hot")}}, 8))
	f.strike()
	f.recover()
	f.verify()
}

func TestLocksSurviveARestartOfRedisWithItsData(t *testing.T) {
	takes.Seconds(t)
	long(t)
	f := newFailover(t, itself, crew(), "--appendonly", "yes")
	f.before = func(s *redistest.Server) {
		rows := 0
		for p := range partitions {
			if ok, err := s.Client(t).HExists(t.Context(), part(p), "r:kept").Result(); err != nil {
				t.Fatal(err)
			} else if ok {
				rows++
			}
		}
		if rows != 1 {
			t.Errorf("the server came back with %d rows of a key that is held", rows)
		}
	}
	f.strike()
	f.recover()
	f.verify()
}

// long says that a test takes seconds. Such tests wait most of the time, so they do that together.
func long(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("takes seconds")
	}
	t.Parallel()
}
