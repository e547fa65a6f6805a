package sim

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/holdfast-go/holdfast/coord"
)

// scenario is a failure that happened once, or that chance would hardly find.
type scenario struct {
	name   string
	runs   int
	config func(n int) Config
}

var scenarios = []scenario{
	{"a short hold ends in time", 60, shortHold},                          // rule 1
	{"nothing is granted while a partition is given back", 3, longDemote}, // rule 5, I5, I8
	{"a grant on its way is not denied", 8, grantOnItsWay},                // rule 13, I5
	{"what is not confirmed lapses", 3, shardLost},                        // rule 1
	{"a request of long ago does nothing", 4, echoes},
	{"an owner that cannot confirm that it is one grants nothing", 3, unconfirmed},          // rule 1
	{"a session is not closed while what it announced may be believed", 6, closeAfterLapse}, // rule 6
	{"a dead shard costs no lock of another one", 8, deadShard},
	{"the same, of the first ones that are adopted", 12, deadFirst},
	{"what rests on an owner that is not heard any more is adopted in time", 40, cutFromOwner}, // rule 7
	{"what a node gives that does not reach the arbiter is adopted in time", 18, ownerCutOff},
	{"nothing is given back to a server that does not answer", 3, kept},          // rule 4
	{"what was announced has passed by slower clocks", 20, slowClock},            // rule 6
	{"a row that a failover lost was not released", 3, rowsLost},                 // I5
	{"older data under the same identity give out no token again", 4, olderData}, // I2
	{"a node that takes its partitions notices older data", 8, olderTaken},       // I1
	{"a session is not dead by older data", 4, olderSessions},
	{"two arbiters: two new servers, and common Seeds", 2, twoArbiters{seeds: true}.config},
	{"two arbiters: a copy of the data", 2, twoArbiters{copied: true}.config},
	{"two arbiters: an address that changes in a rolling restart", 2, twoArbiters{seeds: true, moves: true}.config},
	{"two arbiters: the same, and the data were copied", 2, twoArbiters{copied: true, moves: true}.config},
	{"a killed node's keys are locked again soon", 10, killed},                                  // G6
	{"the same, when it was seen to end", 20, seenToEnd},                                        // G9
	{"a holder keeps what it has by the word of a node that was seen to end", 8, heldByWord},    // G10, G11
	{"a grant of a node that was seen to end is not taken", 8, grantOnTheWay},                   // G10
	{"nor are holders forgotten that have just started", 5, notListed},                          // G11
	{"the same, when the arbiter has lost its data", 3, killedAtTheNew},                         // G8
	{"a killed node's partitions are taken unasked", 8, takenUnasked},                           // G6
	{"a deaf node's keys are locked again soon", 3, deafened},                                   // G6
	{"a node that is cut off ends before it is buried", 3, cutOff},                              // G3
	{"the other one of two nodes outlives a killed one", 8, killedOfTwo},                        // G7
	{"a node that falls silent to one after another is buried soon", 8, silentByTurns},          // G7
	{"a guardian that stood still is one as before", 4, stoodStill},                             // G5
	{"what a node has relied on has passed before it has its first guardian", 2, firstGuardian}, // G7
	{"a node is valid no longer than a deposed server may bury it", 10, buriedByTheDeposed},     // G7
	{"an answer that was long on its way counts from its question", 8, answersLate},             // G4
	{"a hold does not rest on an owner that has given the partition on", 6, givenOn},            // rule 5
	{"a key that was adopted is not granted at a deposed server", 8, adoptedAtTheNew},           // rule 7
	{"a node that renews at a new server is not dead at the one before", 12, renewsLate},        // rule 3, I3
	{"a hold that is given back lets no reader in", 8, lateReader},                              // I8
	{"no circle is told that is none", 12, noCircle},
	{"a reader whose grant is late is in no circle", 4, lateGrant},
	{"Grace of some partitions ends early", 8, graceEndsEarly},
	{"Grace does not end before all is reclaimed", 4, holdsOver},
	{"what was taken at a deposed server is reclaimed before Grace ends early", 40, takesLate},
	{"a Grace that was seen is ended, and not the next", 6, failsTwice}, // E2
	{"another Grace ends early by a round of its own", 4, nextRound},
	{"what was taken is reclaimed also when the answer comes late", 4, answeredLate},
	{"Grace does not end early where the table has only those that have come since", 4, lostWithAll},
	{"a pass counts once the server before is silent", 16, passesLate},                                 // E3
	{"a process that starts takes nothing while the server before may call it dead", 4, opensAtTheNew}, // E6
	{"tokens rise over lost data though Grace ends early", 2, runsAhead},                               // E5, I2
	{"and though the next failover follows at once, and loses these as well", 4, runsAheadTwice},       // E3, I2
	{"what was announced has passed before Grace ends early", 8, letsGo},                               // E3
	{"what was given back to a deposed server is reclaimed before Grace ends early", 8, demotesLate},   // E3, I5
	{"Grace does not end early where the sessions were lost", 4, unheard},
	{"Grace of the one server ends early", 8, oneServer},
	{"Grace of the one server ends early: it has keys, and no session of it is lost", 4, opensLate},
	{"Grace of the one server does not end while a session lives that seems to have expired", 4, seemsExpired},
	{"Grace of the one server does not end early where its data are a backup's", 4, backup},
	{"Grace of the one server does not end before each session has looked whether it is known", 20, noticesLate},
	{"Grace of the one server does not end early where all was lost before", 4, lostTwice},
	{"Grace ends early though the server of the sessions fails over, too", 8, onTwo(oneServer)},
	{"the same: it has keys, and no session of it is lost", 4, onTwo(opensLate)},
	{"Grace does not end while a session lives that seems to have expired at the other server", 4, onTwo(seemsExpired)},
	{"Grace does not end early where the data of both servers are a backup's", 4, onTwo(backup)},
	{"Grace does not end before each session has looked whether the other server knows it", 20, onTwo(noticesLate)},
	{"Grace does not end early where all data of both servers were lost before", 4, onTwo(lostTwice)},
	{"Grace ends no later where openings are on all replicas of a server that does not fail over", 4, partOfTwo},
}

// noCircle: the reports of waits that nodes send each other are older than the waits that they look
// for. Most tasks read, with a writer between them at times only.
func noCircle(i int) Config {
	return Config{Seed: uint64(i), TTL: 10 * time.Second, Nodes: 3, Clients: 6, Keys: 4, hasty: true, script: func(w *world) {
		w.net.setLatency(time.Duration(i%3+1) * 100 * time.Millisecond)
		time.Sleep(2 * time.Minute)
	}}
}

// lateGrant: a task waits to read a key, as its node does not reach the owner for a while. Another
// one reads the key, and waits for a lock of the first. No writer is between the readers, so they
// do not wait for each other.
func lateGrant(i int) Config {
	return Config{Seed: uint64(i), TTL: 10 * time.Second, Nodes: 3, Keys: 1, hasty: true, script: func(w *world) {
		time.Sleep(15*time.Second + time.Duration(i)*250*time.Millisecond)
		one, two, owner := w.nodes[0].now, w.nodes[1].now, w.nodes[2].now
		reads, writes := owner.ownKey(), one.ownKey()
		task := func(s *start) (context.Context, *task) {
			x := w.h.begins(s)
			return coord.WithLabel(coord.WithLocker(context.Background()), x.label), x
		}
		firstCtx, first := task(one)
		secondCtx, second := task(two)
		ends := []func(){one.next(firstCtx, first, 0, writes, false), two.next(secondCtx, second, 0, reads, true)}
		cut := func(cut bool) {
			w.net.setCut(one.h, owner.h, cut)
			w.net.setCut(owner.h, one.h, cut)
		}
		cut(true)
		var work sync.WaitGroup
		var last [2]func()
		work.Go(func() { // it gets its key, and then gives back the key that the other one wants
			last[0] = one.next(firstCtx, first, 0, reads, true)
			ends[0]()
		})
		time.Sleep(50 * time.Millisecond)
		work.Go(func() { last[1] = two.next(secondCtx, second, 0, writes, false) })
		time.Sleep(time.Second)
		cut(false)
		work.Wait()
		for _, end := range []func(){last[0], last[1], ends[1]} {
			if end != nil {
				end()
			}
		}
	}}
}

// ownKey returns a key that the process owns.
func (s *start) ownKey() string {
	for n := 0; ; n++ {
		key := fmt.Sprint("key", n)
		if o, _ := s.c.Owner(key); o.Self {
			return key
		}
	}
}

// shortHold: an owner is about to lose its partition, as it does not reach the arbiter. It grants a
// key until then to a node that does not reach it either. That node must be told at that moment,
// and not when it looks the next time.
func shortHold(i int) Config {
	at := 7550*time.Millisecond - time.Duration(i%12)*50*time.Millisecond
	phase := time.Second + time.Duration(i/12)*500*time.Millisecond // nodes look at their clocks once per R, which is 2.5 s
	return Config{Seed: uint64(i), TTL: 10 * time.Second, History: true, Nodes: 2, Keys: 1, script: func(w *world) {
		w.nodes[1].leave()()
		time.Sleep(phase)
		<-w.nodes[1].start().ready
		time.Sleep(15 * time.Second)
		owner, holder := w.nodes[0].now, w.nodes[1].now
		key := owner.ownKey()
		owner.client.set(func(x *weather) { x.away = true })
		time.Sleep(at)
		holder.client.set(func(x *weather) { x.away = true })
		l, err := holder.c.TryLock(context.Background(), key)
		if err != nil {
			return // the owner has lapsed already
		}
		ctx := endOf(l)
		w.net.setCut(owner.h, holder.h, true) // or the owner tells it
		w.net.setCut(holder.h, owner.h, true)
		for begin := time.Now(); owner.c.Stats().Owned > 0 && time.Since(begin) < 9*time.Second-at; { // T - M after its last renewal, at the latest
			time.Sleep(time.Millisecond)
		}
		time.Sleep(5 * time.Millisecond)
		if ctx.Err() == nil {
			w.h.say("the owner has lapsed, and the holder of %q has not been told", key)
		}
		if err := l.Unlock(); !errors.Is(err, coord.ErrLost) {
			w.h.say("Unlock: %v", err)
		}
	}}
}

// grantOnItsWay: a grant is on its way while its owner gives the partition back, and so the key has
// a row before it has arrived. A node that wants it then asks the holder's node, which must not say
// that it has not got it.
func grantOnItsWay(i int) Config {
	return Config{Seed: uint64(i), TTL: 10 * time.Second, History: true, Nodes: 3, Clients: 6, Keys: 3, script: func(w *world) {
		w.net.setLatency(100 * time.Microsecond)
		for i := range 10 {
			time.Sleep(12 * time.Second)
			n := w.nodes[i%3]
			n.leave()()
			<-n.start().ready
		}
	}}
}

// longDemote: a node waits long for the arbiter, and has to give partitions back whenever the other
// one comes. Until the answer is there it must not grant their keys, which another process may have
// got by then.
func longDemote(i int) Config {
	return Config{Seed: uint64(i), TTL: 10 * time.Second, History: true, Nodes: 2, Clients: 6, Keys: 4, Think: 100 * time.Millisecond, script: func(w *world) {
		w.nodes[0].now.client.set(func(x *weather) { x.latency = 850 * time.Millisecond })
		for range 6 {
			w.nodes[1].leave()()
			time.Sleep(5 * time.Second)
			<-w.nodes[1].start().ready
			time.Sleep(7 * time.Second)
		}
	}}
}

// shardLost: a node keeps its session, but reaches none of its partitions, neither does it reach
// the other node; and the arbiter loses them. When Grace is over they are free for others, and the
// node must not believe that it owns them.
func shardLost(i int) Config {
	return Config{Seed: uint64(i), TTL: 10 * time.Second, History: true, Nodes: 2, Clients: 4, Keys: 4, script: func(w *world) {
		time.Sleep(15 * time.Second)
		a, b := w.nodes[0].now, w.nodes[1].now
		a.reachNone()
		w.net.setCut(a.h, b.h, true)
		w.net.setCut(b.h, a.h, true)
		w.s.failover(nil, false)
		time.Sleep(time.Minute)
	}}
}

// reachNone lets nothing about any partition arrive from this node.
func (s *start) reachNone() {
	s.client.set(func(x *weather) {
		for p := range x.shard {
			x.shard[p] = true
		}
	})
}

// sever locks a key of the owner's at the holder. Then neither reaches any partition, nor the other
// one.
func sever(w *world, owner, holder *start) (coord.Lock, error) {
	held, err := holder.c.Lock(context.Background(), owner.ownKey())
	owner.reachNone()
	holder.reachNone()
	w.net.setCut(owner.h, holder.h, true)
	w.net.setCut(holder.h, owner.h, true)
	return held, err
}

// contend tries to get a key at another node, until its holder has lost it, for two minutes at
// most.
func contend(w *world, held coord.Lock, other *start) {
	for begin := time.Now(); held.Context().Err() == nil && time.Since(begin) < 2*time.Minute; time.Sleep(10 * time.Millisecond) {
		l, err := other.c.TryLock(context.Background(), held.Key())
		if err != nil {
			continue
		}
		if held.Context().Err() == nil {
			w.h.say("%q has two holders (I1)", held.Key())
		}
		_ = l.Unlock()
	}
	_ = held.Unlock()
}

// slowClock: an owner with a fast clock reaches no partition until its ownership lapses. It has its
// session, so it takes the partition back as soon as it can. By then another node's hold must have
// lapsed, by a clock that runs slow.
func slowClock(i int) Config {
	return Config{Seed: uint64(i), TTL: 10 * time.Second, History: true, Nodes: 2, Keys: 1, rates: []float64{1 + maxDrift, 1 - maxDrift}, script: func(w *world) {
		time.Sleep(15*time.Second + time.Duration(i)*250*time.Millisecond) // the last ping was heard a while ago, or just now
		owner, holder := w.nodes[0].now, w.nodes[1].now
		held, err := sever(w, owner, holder)
		if err != nil {
			w.h.say("Lock: %v", err)
			return
		}
		time.Sleep(w.cfg.TTL * 8 / 10)
		owner.client.set(func(x *weather) { x.shard = [partitions]bool{} })
		contend(w, held, owner)
	}}
}

// echoes: every request of a node is executed again, up to 12 s later, while the other node comes
// and goes. So a partition that the first has got back may be told that it is demoted, as it was
// before.
func echoes(i int) Config {
	return Config{Seed: uint64(i), TTL: 10 * time.Second, History: true, Nodes: 2, Clients: 4, Keys: 6, script: func(w *world) {
		w.nodes[0].now.client.set(func(x *weather) { x.repeated, x.echo = 1, 12*time.Second })
		for range 8 {
			w.nodes[1].leave()()
			time.Sleep(4 * time.Second)
			<-w.nodes[1].start().ready
			time.Sleep(5 * time.Second)
		}
	}}
}

// closeAfterLapse: an owner with a clock that runs fast reaches no partition for so long that its
// ownership lapses, but has its session. Then it is closed, and so its session: others may take its
// partitions, though another node's hold has not lapsed, by a clock that runs slow.
func closeAfterLapse(i int) Config {
	return Config{Seed: uint64(i), TTL: 10 * time.Second, Nodes: 3, Keys: 1, rates: []float64{1 + maxDrift, 1 - maxDrift, 1}, script: func(w *world) {
		time.Sleep(15*time.Second + time.Duration(i)*250*time.Millisecond)
		owner, holder, third := w.nodes[0].now, w.nodes[1].now, w.nodes[2].now
		held, err := sever(w, owner, holder)
		if err != nil {
			w.h.say("Lock: %v", err)
			return
		}
		begin := time.Now()
		for owner.c.Stats().Owned > 0 && time.Since(begin) < time.Minute {
			time.Sleep(time.Millisecond)
		}
		left := w.nodes[0].leave()
		w.work.Go(left)
		contend(w, held, third)
	}}
}

// kept: a node's partitions cannot be reached for some seconds, and another node comes. As long as
// the first one's ownership lasts, it grants their keys.
func kept(i int) Config {
	return Config{Seed: uint64(i), TTL: 10 * time.Second, Nodes: 2, Keys: 1, script: func(w *world) {
		time.Sleep(15 * time.Second)
		w.nodes[1].leave()()
		time.Sleep(10 * time.Second)
		owner := w.nodes[0].now
		owner.reachNone()
		time.Sleep(3 * time.Second)
		w.nodes[1].start() // it is seen 2.7 s later
		for range 340 {    // the ownership lasts for T - M - R, which is 6.5 s, or longer
			for n := range 20 {
				ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
				l, err := owner.c.Lock(ctx, fmt.Sprint("key", n))
				cancel()
				if err != nil {
					w.h.say("%v", err)
					return
				}
				_ = l.Unlock()
			}
			time.Sleep(10 * time.Millisecond)
		}
	}}
}

// deadShard: no node reaches some partitions for 30 s. Locks of the others, which are held all the
// time, must not be lost.
func deadShard(i int) Config {
	return Config{Seed: uint64(i), TTL: 10 * time.Second, Nodes: 2, Keys: 1, script: func(w *world) {
		time.Sleep(15 * time.Second)
		owner, holder := w.nodes[0].now, w.nodes[1].now
		mine := make(map[uint64]bool) // its partitions: whether they are to be on the server that dies
		for n := range 200 {
			key := fmt.Sprint("key", n)
			if p := xxhash.Sum64String(key) % partitions; !mine[p] {
				if o, _ := owner.c.Owner(key); o.Self {
					mine[p] = len(mine) == 0
				}
			}
		}
		if len(mine) < 2 {
			return
		}
		dead := func(p uint64) bool { return mine[p] }
		var far, near []coord.Lock
		for n := 0; len(far) < deadLocks || len(near) < 2*deadLocks; n++ {
			key := fmt.Sprint("key", n)
			if o, _ := owner.c.Owner(key); !o.Self {
				continue
			}
			list, most := &near, 2*deadLocks
			if dead(xxhash.Sum64String(key) % partitions) {
				list, most = &far, deadLocks
			}
			if len(*list) == most {
				continue
			}
			l, err := holder.c.Lock(context.Background(), key)
			if err != nil {
				w.h.say("Lock: %v", err)
				return
			}
			_ = l.Context()
			*list = append(*list, l)
		}
		for _, s := range []*start{owner, holder} {
			s.client.set(func(x *weather) {
				for p := range x.shard {
					x.shard[p] = dead(uint64(p))
				}
			})
		}
		time.Sleep(30 * time.Second)
		lost := func(list []coord.Lock) (n int) {
			for _, l := range list {
				if l.Context().Err() != nil {
					n++
				}
			}
			return n
		}
		w.say(fmt.Sprintf("lost: %d of %d in the dead shard, %d of %d in others", lost(far), len(far), lost(near), len(near)))
		if n := lost(near); n > 0 {
			w.h.say("lost: %d of %d in the dead shard, %d of %d in others", lost(far), len(far), n, len(near))
		}
		for _, l := range append(far, near...) {
			_ = l.Unlock()
		}
	}}
}

const deadLocks = 300

// lateReader: a node has a key for reading, and its readers take seats. Each does so between two
// steps that give the key to a writer. A reader that has found the hold before it was given back
// must notice. Else it reads beside the writer, or leaves without giving the hold back: then
// neither gets the key again.
func lateReader(i int) Config {
	return Config{Seed: uint64(i), TTL: 10 * time.Second, History: true, Nodes: 2, Keys: 1, script: func(w *world) {
		time.Sleep(15 * time.Second)
		w.net.setLatency(100 * time.Microsecond) // less than a reader takes
		owner, other := w.nodes[0].now, w.nodes[1].now
		key := owner.ownKey()
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		end := time.Now().Add(30 * time.Second) // a wait that has begun before is over before ctx is
		var reads atomic.Bool
		var work sync.WaitGroup
		work.Go(func() {
			for time.Now().Before(end) {
				l, err := owner.c.Lock(ctx, key)
				if err != nil {
					w.h.say("I8: a caller waited for %q: %v", key, err)
					return
				}
				for range 4 {
					if reads.Load() {
						w.h.say("I1: a caller has %q beside a reader", key)
					}
					time.Sleep(50 * time.Microsecond)
				}
				_ = l.Unlock()
				time.Sleep(7 * time.Millisecond)
			}
		})
		for time.Now().Before(end) {
			l, err := other.c.RLock(ctx, key)
			if err != nil {
				w.h.say("I8: a reader waited for %q: %v", key, err)
				break
			}
			reads.Store(true)
			time.Sleep(150 * time.Microsecond)
			reads.Store(false)
			_ = l.Unlock()
			time.Sleep(100 * time.Microsecond)
		}
		work.Wait()
	}}
}
