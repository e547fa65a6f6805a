package sim

import (
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/injure"
)

// The scenarios of a round that is taken for another one: an earlier one, a complete one, one of a
// table that has all sessions.

// nextRound: the server of some partitions fails over, and that Grace ends early. It fails over
// again, and has lost all. A node has keys, and has spoken for the first round, but does not reach
// the new server for half of its Grace (E1).
func nextRound(i int) Config {
	return Config{Seed: uint64(i), TTL: 10 * time.Second, Nodes: 3, Keys: 1, apart: true, script: func(w *world) {
		time.Sleep(20 * time.Second)
		holder, other := w.nodes[0].now, w.nodes[1].now
		w.failoverPart(w.s.Snapshot(), Fault{})
		held := holder.lockOther() // when Grace has ended
		time.Sleep(time.Duration(i) * time.Second)
		holder.reachNone()
		w.failoverPart(nil, Fault{})
		var work sync.WaitGroup
		for _, l := range held {
			work.Go(func() { inVain(w, l, other) })
		}
		time.Sleep(6 * time.Second)
		holder.client.set(func(x *weather) { x.shard = [partitions]bool{} })
		work.Wait()
	}}
}

// answeredLate: a node takes keys just before a deposed server falls silent. It has the answers
// when a pass could count, as a call may take longer than Margin. Then it reaches the new one only
// for as long as such a pass needs, and again when the others could have ended Grace (E3).
func answeredLate(i int) Config {
	return Config{Seed: uint64(i), TTL: 10 * time.Second, Nodes: 3, Keys: 1, apart: true, call: 2 * time.Second, script: func(w *world) {
		time.Sleep(20 * time.Second)
		taker, other := w.nodes[0].now, w.nodes[1].now
		var some [8]bool
		some[0] = true
		w.failoverPart(w.s.Snapshot(), Fault{Some: some})
		var work sync.WaitGroup
		other.wants(&work)
		time.Sleep(700 * time.Millisecond)
		taker.client.set(func(x *weather) { x.late = 1600*time.Millisecond + time.Duration(i)*50*time.Millisecond })
		taker.takes(w, &work, 4*time.Second, other)
		time.Sleep(180 * time.Millisecond) // a first call is short
		taker.client.set(func(x *weather) { x.late = 0 })
		time.Sleep(100 * time.Millisecond)
		taker.client.set(func(x *weather) { x.apart = false }) // it is silent, delta is 1 s
		time.Sleep(1300 * time.Millisecond)
		taker.reachNone()
		time.Sleep(5 * time.Second)
		taker.client.set(func(x *weather) { x.shard = [partitions]bool{} })
		work.Wait()
	}}
}

// lostWithAll: the table of sessions is lost, with the one session that there is, which has keys of
// the other server. A process starts then, so that the table has all sessions that renew there. The
// other server fails over to its earlier data (E8).
func lostWithAll(i int) Config {
	return Config{Seed: uint64(i), TTL: 10 * time.Second, Nodes: 2, Keys: 1, Opened: true, Spread: true, apart: true, script: func(w *world) {
		time.Sleep(20 * time.Second)
		w.nodes[1].leave()()
		old := w.s.Snapshot()
		time.Sleep(time.Duration(i) * 300 * time.Millisecond)
		holder := w.nodes[0].now
		held := holder.lockOther()
		holder.away(true)
		w.failoverTable(nil, Fault{})
		other := w.nodes[1].start()
		<-other.ready
		for end := time.Now().Add(5 * time.Second); w.s.sessions() == 0 && time.Now().Before(end); {
			time.Sleep(time.Millisecond)
		}
		w.failoverPart(old, Fault{})
		var work sync.WaitGroup
		for _, l := range held {
			work.Go(func() { inVain(w, l, other) })
		}
		work.Wait()
		holder.away(false)
	}}
}

// sessions returns how many sessions the table has.
func (s *server) sessions() (n int) {
	injure.State(s.Memory, s.settings().Namespace, func(t *fallback.Sessions, _ []fallback.Partition) { n = len(t.Members) })
	return n
}
