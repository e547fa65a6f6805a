package sim

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// The scenarios of a server with replicas that have each session before it counts. Some or all
// partitions are on it.

// onTwo is a scenario with the partitions that keys are of on another server.
func onTwo(of func(int) Config) func(int) Config {
	return func(i int) Config {
		cfg := of(i)
		cfg.Spread = true
		return cfg
	}
}

// oneServer: the server fails over, to one that lacks the last moments. Processes without a cluster
// want a key of each partition, and have it long before Q. There are no other clients: the judge
// looks at clients' locks, and needs a longer Grace than the processes. A Grace that it has begun
// ends as a whole.
func oneServer(i int) Config {
	const most = 6 * time.Second // Q is 12 s
	return Config{Seed: uint64(i), TTL: 10 * time.Second, Nodes: 2 + i%3, Keys: 1, Opened: true, apart: true, script: func(w *world) {
		time.Sleep(20 * time.Second)
		replica := w.s.Snapshot()
		time.Sleep(time.Duration(i) * 100 * time.Millisecond)
		w.fail(replica)
		begin := time.Now()
		took := make(chan time.Duration)
		for _, n := range w.nodes {
			for _, key := range onOther() {
				go func() {
					ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
					defer cancel()
					l, err := n.now.c.Lock(ctx, key)
					if err != nil {
						w.h.say("Lock of %q: %v", key, err)
					} else {
						_ = l.Unlock()
					}
					took <- time.Since(begin)
				}()
			}
		}
		var longest time.Duration
		for range len(w.nodes) * len(onOther()) {
			longest = max(longest, <-took)
		}
		w.say(fmt.Sprintf("the longest wait was %v", longest))
		if longest > most {
			w.h.say("the longest wait after a failover was %v, not %v", longest, most)
		}
		time.Sleep(20 * time.Second)
	}}
}

// holdAll has a node lock a key of some partitions. Another one contends for each lock, until the
// node has lost it.
func holdAll(w *world, work *sync.WaitGroup, holder, other *start) {
	for _, l := range holder.lockOther() {
		work.Go(func() { inVain(w, l, other) })
	}
}

// away cuts a node off from the arbiter.
func (s *start) away(is bool) { s.client.set(func(x *weather) { x.away = is }) }

// apartOnOne is a run with one server, and script makes its events. A process leaves at the end of
// each.
func apartOnOne(i int, script func(w *world, work *sync.WaitGroup)) Config {
	return Config{Seed: uint64(i), TTL: 10 * time.Second, Nodes: 3, Keys: 1, Opened: true, apart: true, script: func(w *world) {
		time.Sleep(20 * time.Second)
		var work sync.WaitGroup
		script(w, &work)
		work.Wait()
	}}
}

// opensLate: a process starts, takes keys and is cut off. The server fails over to one that has
// nothing of that but the session.
func opensLate(i int) Config {
	return apartOnOne(i, func(w *world, work *sync.WaitGroup) {
		w.nodes[0].leave()()
		replica := w.s.Snapshot()
		<-w.nodes[0].start().ready
		holder := w.nodes[0].now
		time.Sleep(time.Duration(i) * 300 * time.Millisecond)
		holdAll(w, work, holder, w.nodes[1].now)
		holder.away(true)
		w.fail(replica)
		work.Wait()
		holder.away(false)
	})
}

// seemsExpired: a replica lacks the last renewals. By its data a session has expired that lives.
func seemsExpired(i int) Config {
	return apartOnOne(i, func(w *world, work *sync.WaitGroup) {
		replica := w.s.Snapshot()
		time.Sleep(8*time.Second + time.Duration(i)*500*time.Millisecond)
		holder := w.nodes[0].now
		holdAll(w, work, holder, w.nodes[1].now)
		holder.away(true)
		w.fail(replica)
		work.Wait()
		holder.away(false)
	})
}

// backup: the server has the data of a backup, in which two processes are missing that have started
// since, and becomes another one. One of the two is cut off; the other one is not known either.
func backup(i int) Config {
	return apartOnOne(i, func(w *world, work *sync.WaitGroup) {
		for _, n := range w.nodes[:2] {
			n.leave()()
		}
		old := w.s.Snapshot()
		for _, n := range w.nodes[:2] {
			<-n.start().ready
		}
		time.Sleep(time.Second + time.Duration(i)*300*time.Millisecond) // both have a session
		holder := w.nodes[0].now
		holdAll(w, work, holder, w.nodes[2].now)
		holder.away(true)
		w.s.startWith(old)
		if i%2 == 1 { // and once more, when it is known that one is missing
			time.Sleep(2700 * time.Millisecond)
			w.fail(w.s.Snapshot())
		}
		work.Wait()
		holder.away(false)
	})
}

// noticesLate: as backup. The other one renews at the deposed server for as long as that answers,
// and hears no message: it is the last one to see that it is not known.
func noticesLate(i int) Config {
	return apartOnOne(i, func(w *world, work *sync.WaitGroup) {
		for _, n := range w.nodes[:2] {
			n.leave()()
		}
		old := w.s.Snapshot()
		for _, n := range w.nodes[:2] {
			<-n.start().ready
		}
		// A renewal is due just before the deposed server falls silent.
		time.Sleep(1750*time.Millisecond + time.Duration(i)*125*time.Millisecond)
		holder, late := w.nodes[0].now, w.nodes[1].now
		holdAll(w, work, holder, w.nodes[2].now)
		holder.away(true)
		late.client.set(func(x *weather) { x.deposed, x.unmessage = true, 1 })
		w.s.startWith(old)
		time.Sleep(w.answers())
		late.client.set(func(x *weather) { x.deposed = false })
		work.Wait()
		late.client.set(func(x *weather) { x.unmessage = 0 })
		holder.away(false)
	})
}

// lostTwice: all data are lost, and then another server takes over. The table has those that have
// renewed since.
func lostTwice(i int) Config {
	return apartOnOne(i, func(w *world, work *sync.WaitGroup) {
		holder := w.nodes[0].now
		holdAll(w, work, holder, w.nodes[2].now)
		holder.away(true)
		w.fail(nil)
		time.Sleep(2700*time.Millisecond + time.Duration(i)*100*time.Millisecond)
		w.fail(w.s.Snapshot())
		work.Wait()
		holder.away(false)
	})
}
