package sim

import (
	"fmt"
	"time"
)

// schedule does things to the nodes, the network and the arbiter, until the time with faults is over.
func (w *world) schedule() {
	r := w.rng
	end := w.begin.Add(time.Duration(w.cfg.Length) * w.cfg.TTL)
	between := func(a, b time.Duration) time.Duration { return w.t(a) + time.Duration(r.Int64N(int64(w.t(b-a)))) }
	// after is for what ends a fault. Processes that are gone by then do not mind.
	after := func(d time.Duration, f func()) {
		w.work.Go(func() {
			time.Sleep(d)
			f()
		})
	}
	for {
		time.Sleep(between(100*time.Millisecond, 12*time.Second))
		if !time.Now().Before(end) {
			return
		}
		n := w.nodes[r.IntN(len(w.nodes))]
		m := w.nodes[r.IntN(len(w.nodes))]
		long := between(500*time.Millisecond, 25*time.Second)
		fault, share := r.IntN(15), r.Float64()/3
		if n.now == nil {
			if r.IntN(2) == 0 {
				w.tell("start: node %d", n.number)
				n.start()
			}
			continue
		}
		s := n.now
		switch fault {
		case 0, 1:
			if m.now == nil || m == n {
				continue
			}
			both := fault == 0
			w.tell("cut: node %d and %d for %v, both ways %v", n.number, m.number, long, both)
			other := m.now
			w.net.setCut(s.h, other.h, true)
			if both {
				w.net.setCut(other.h, s.h, true)
			}
			after(long, func() {
				w.net.setCut(s.h, other.h, false)
				w.net.setCut(other.h, s.h, false)
			})
		case 2:
			w.tell("alone: node %d is cut from all others for %v", n.number, long)
			var others []*host
			for _, m := range w.nodes {
				if m != n && m.now != nil {
					others = append(others, m.now.h)
				}
			}
			for _, o := range others {
				w.net.setCut(s.h, o, true)
				w.net.setCut(o, s.h, true)
			}
			after(long, func() {
				for _, o := range others {
					w.net.setCut(s.h, o, false)
					w.net.setCut(o, s.h, false)
				}
			})
		case 3, 4:
			w.tell("away: node %d does not reach the arbiter for %v", n.number, long)
			s.client.set(func(x *weather) { x.away = true })
			after(long, func() { s.client.set(func(x *weather) { x.away = false }) })
		case 5:
			w.tell("lossy: node %d loses %.0f%% at the arbiter for %v", n.number, 100*share, long)
			s.client.set(func(x *weather) { x.lost, x.unheard, x.repeated, x.unmessage = share/2, share/2, share, share })
			after(long, func() { s.client.set(func(x *weather) { x.lost, x.unheard, x.repeated, x.unmessage = 0, 0, 0, 0 }) })
		case 6:
			late := between(20*time.Millisecond, 3*time.Second)
			w.tell("slow: node %d waits up to %v for the arbiter for %v", n.number, late, long)
			s.client.set(func(x *weather) { x.latency = late })
			after(long, func() { s.client.set(func(x *weather) { x.latency = time.Millisecond }) })
		case 7:
			w.tell("crash: node %d", n.number)
			n.crash()
		case 8:
			w.tell("leave: node %d", n.number)
			n.leave()
		case 9:
			back := between(time.Millisecond, 3*time.Second)
			old := w.s.Snapshot()
			time.Sleep(back)
			var believers []*client
			names := ""
			for _, n := range w.nodes {
				if n.now != nil && r.IntN(3) == 0 {
					believers, names = append(believers, n.now.client), fmt.Sprint(names, " ", n.number)
				}
			}
			w.tell("failover: the arbiter to what it was %v ago; the deposed one still answers:%s", back, names)
			w.s.failover(old, true)
			for _, c := range believers {
				c.set(func(x *weather) { x.deposed = true })
			}
			time.Sleep(w.cfg.TTL / 12) // less than Q - T - M
			for _, c := range believers {
				c.set(func(x *weather) { x.deposed = false })
			}
		case 10:
			if r.IntN(3) > 0 {
				continue
			}
			w.tell("empty: the arbiter has lost everything")
			w.s.failover(nil, false)
		case 11:
			w.tell("down: the arbiter for %v", long)
			w.s.mu.Lock()
			w.s.down = true
			w.s.mu.Unlock()
			after(long, func() {
				w.s.mu.Lock()
				w.s.down = false
				w.s.mu.Unlock()
			})
		case 12:
			if m.now == nil || m == n {
				continue
			}
			w.tell("reset: connections between node %d and %d", n.number, m.number)
			w.net.reset(s.h, m.now.h)
		case 14:
			var shard [partitions]bool
			for p := range shard {
				shard[p] = r.IntN(3) == 0
			}
			w.tell("shard: node %d does not reach partitions %v for %v", n.number, shard, long)
			s.client.set(func(x *weather) { x.shard = shard })
			after(long, func() { s.client.set(func(x *weather) { x.shard = [partitions]bool{} }) })
		case 13:
			late := between(5*time.Millisecond, 400*time.Millisecond)
			w.tell("late: the network by up to %v for %v", late, long)
			w.net.mu.Lock()
			w.net.latency = late
			w.net.mu.Unlock()
			after(long, func() {
				w.net.mu.Lock()
				w.net.latency = time.Millisecond
				w.net.mu.Unlock()
			})
		}
	}
}
