package model

import (
	"fmt"
	"slices"
	"strings"

	"github.com/holdfast-go/holdfast/fallback"
)

// Blocks explores blocks of a semaphore's permits: how processes get them, share them among their
// callers, make them smaller when others want permits, and give them back. The grantor's side is
// package fallback's, as in a Model. Failures affect these holds as any others: a Model explores
// that, for one key's holds.
//
// Each process has one block at a time. Requests, answers, the words of the grantor that permits
// are wanted, and releases take any time.
type Blocks struct {
	N        uint8 // permits
	Grants   uint8 // blocks that are granted, in all
	Crashes  uint8
	Refusals uint8 // requests for a smaller block that are refused, in all, as by an arbiter that is out of memory for a moment
	Without  BlockGuard
	Harm     bool // look for too many permits only
}

// A BlockGuard is something without which there are more permits in use than there are, or permits
// that are free are not to be had.
type BlockGuard uint8

// Guards of blocks.
const (
	Separate   BlockGuard = 1 << iota // the grantor counts holds of two blocks together
	CountOnce                         // and those of one block as the largest of them: the smaller one always fits
	GrantFirst                        // the larger hold is given back when the smaller one has been granted, not before
	AsInUse                           // the smaller one has as many permits as callers have
	ShutFirst                         // a block that is to be made smaller has nothing for further callers until it is
	WantedShut                        // nor has one that is wanted
	Shrink                            // a block that is wanted is made smaller while it is in use
	AskAgain                          // it is asked for again if that was refused
)

const blockProcesses = 2

// blocks is a state.
type blocks struct {
	p             *fallback.Partition
	x             [blockProcesses]blockOwner
	left, crashes uint8 // grants, crashes
	refusals      uint8
}

// blockOwner is a process.
type blockOwner struct {
	number, request uint8  // of the block, of the hold
	size, used      uint8  // of the block; 0: the process has none
	shut            bool   // nothing for further callers
	wanted          bool   // the grantor has said that permits are wanted, which is on its way
	ask             uint8  // a hold of so many permits is asked for; 0: none
	asks            uint8  // number of that request
	queued          bool   // it has reached the grantor, and waits there
	granted         bool   // it was granted, and the answer is on its way
	contended       bool   // the answer says that others wait
	refused         bool   // the last request, without AskAgain
	back            string // holds that were given back, which the grantor is still to hear of
}

func (s *blocks) copy() *blocks {
	c := *s
	c.p = s.p.Clone()
	return &c
}

func (s *blocks) key() string {
	names := make([]string, 0, len(s.p.Rows))
	for name, r := range s.p.Rows {
		names = append(names, fmt.Sprintf("%q %s %d", name, r.Session, r.Request))
	}
	slices.Sort(names)
	return fmt.Sprintf("%v %v %v %d %d %d", names, s.p.Queues[key], s.x, s.left, s.crashes, s.refusals)
}

func (m *Blocks) name(i int, number, n uint8) string {
	switch {
	case m.Without&Separate != 0:
		return fallback.BlockName(key, uint32(n), uint32(m.N), "all", 1)
	case m.Without&CountOnce != 0:
		return fallback.PermitsName(key, uint32(n), uint32(m.N), fmt.Sprintf("%dx%d", i, number))
	}
	return fallback.BlockName(key, uint32(n), uint32(m.N), names[i+1], uint64(number))
}

var blocksMoment = fallback.Moment{Now: 1000 * epochZero, Server: "now"}

// Explore sees every state, or stops at the first violation and returns a shortest story of it.
func (m *Blocks) Explore() (states int, broken string, story []string) {
	first := &blocks{p: new(fallback.Partition), left: m.Grants, crashes: m.Crashes, refusals: m.Refusals}
	first.p.Format(blocksMoment, 0)
	type origin struct {
		from int
		what string
	}
	seen := map[string]bool{first.key(): true}
	all, origins := []*blocks{first}, []origin{{-1, ""}}
	for at := 0; at < len(all) && broken == ""; at++ {
		if broken = m.bad(all[at]); broken != "" {
			for i := at; i > 0; i = origins[i].from {
				story = append(story, origins[i].what)
			}
			slices.Reverse(story)
			break
		}
		m.next(all[at], true, func(n *blocks, what string) {
			if k := n.key(); !seen[k] {
				seen[k] = true
				all, origins = append(all, n), append(origins, origin{at, what})
			}
		})
	}
	return len(all), broken, story
}

// bad returns the violation in a state, empty if there is none.
func (m *Blocks) bad(s *blocks) string {
	var used uint8
	for _, x := range s.x {
		used += x.used
	}
	if used > m.N {
		return fmt.Sprintf("I1: %d permits of %d are in use", used, m.N)
	}
	if q := s.p.Queues[key]; len(q) > 0 && !m.Harm {
		_, mode := fallback.Split(key + "\x00" + q[0].Spec + "\x00\xff")
		if used+uint8(mode.N) <= m.N && !m.reaches(s) {
			return fmt.Sprintf("I8: %d of %d permits are in use, and the first one that waits never gets %d, as long as they are", used, m.N, mode.N)
		}
	}
	return ""
}

// reaches reports whether the first one that waits is served though no caller leaves, and none
// comes.
func (m *Blocks) reaches(s *blocks) (served bool) {
	waits := s.p.Queues[key][0].Identity
	first := s.copy()
	first.left = 100
	seen := map[string]bool{first.key(): true}
	all := []*blocks{first}
	for at := 0; at < len(all) && !served; at++ {
		m.next(all[at], false, func(n *blocks, _ string) {
			served = served || !slices.ContainsFunc(n.p.Queues[key], func(w fallback.Waiter) bool { return w.Identity == waits })
			if k := n.key(); !seen[k] {
				seen[k] = true
				all = append(all, n)
			}
		})
	}
	return served
}

// next makes the states that follow. Without callers, only processes and the grantor act.
func (m *Blocks) next(s *blocks, callers bool, emit func(*blocks, string)) {
	for i := range s.x {
		x := &s.x[i]
		do := func(ok bool, what string, f func(n *blocks, y *blockOwner)) {
			if ok {
				n := s.copy()
				f(n, &n.x[i])
				emit(n, fmt.Sprintf(strings.ReplaceAll(what, "$", "%[1]d"), i+1))
			}
		}
		for want := uint8(1); callers && want <= m.N; want++ {
			do(x.size == 0 && x.ask == 0 && s.left > 0, fmt.Sprintf("$ asks for %d permits", want), func(_ *blocks, y *blockOwner) {
				y.number, y.ask, y.asks = 1-y.number, want, y.fresh()
			})
		}
		do(callers && x.used < x.size && !x.shut, "a caller gets a permit of $'s block", func(_ *blocks, y *blockOwner) { y.used++ })
		do(callers && x.used > 0, "a caller of $ gives a permit back", func(_ *blocks, y *blockOwner) {
			y.used, y.refused = y.used-1, false
		})
		do(x.wanted, "$ hears that permits are wanted", func(_ *blocks, y *blockOwner) {
			y.wanted = false
			y.shut = y.size > 0 && m.Without&WantedShut == 0
			m.shrink(y, i)
		})
		do(x.shut && x.used == 0 && x.size > 0, "$ gives its block back", func(_ *blocks, y *blockOwner) { m.giveBack(y, i) })
		do(x.shut && x.used > 0 && x.used < x.size && x.ask == 0, "$ makes its block smaller", func(_ *blocks, y *blockOwner) { m.shrink(y, i) })
		do(x.ask > 0 && !x.granted && s.left > 0, "$'s request reaches the grantor", func(n *blocks, _ *blockOwner) { m.lock(n, i) })
		do(callers && x.size > 0 && x.ask > 0 && !x.queued && !x.granted && s.refusals > 0, "$'s request is refused", func(n *blocks, y *blockOwner) {
			n.refusals--
			y.ask, y.asks, y.refused = 0, 0, m.Without&AskAgain != 0
		})
		do(x.granted, "$ has the answer", func(n *blocks, y *blockOwner) { m.answer(y, i) })
		do(x.back != "", "a release of $'s reaches the grantor", func(n *blocks, y *blockOwner) {
			var request uint64
			name, rest, _ := strings.Cut(y.back, "\n")
			name, no, _ := strings.Cut(name, "\t")
			if _, err := fmt.Sscan(no, &request); err != nil {
				panic(err) // giveBack has written it
			}
			y.back = rest
			n.p.Unlock(blocksMoment, name, fallback.Identity{Session: names[i+1], Request: request}, m.send(n))
		})
		do(callers && s.crashes > 0 && (x.size > 0 || x.ask > 0), "$ crashes, and its session is dead", func(n *blocks, y *blockOwner) {
			n.crashes--
			for name, r := range s.p.Rows {
				if r.Session == names[i+1] {
					n.p.Unlock(blocksMoment, name, r.Identity, m.send(n))
				}
			}
			n.p.Queues[key] = slices.DeleteFunc(n.p.Queues[key], func(w fallback.Waiter) bool { return w.Session == names[i+1] })
			*y = blockOwner{}
		})
	}
}

// fresh returns a number that no request has that the grantor may hear of.
func (x *blockOwner) fresh() uint8 {
	for r := uint8(1); ; r++ {
		if r != x.request && r != x.asks && !strings.Contains(x.back, fmt.Sprintf("\t%d", r)) {
			return r
		}
	}
}

// send notes the processes that hear that permits are wanted.
func (m *Blocks) send(n *blocks) fallback.Sender {
	return func(session string, msg fallback.Message) {
		if i := slices.Index(names[:], session) - 1; msg.Kind == fallback.Ask && i >= 0 {
			n.x[i].wanted = true
		}
	}
}

func (m *Blocks) lock(n *blocks, i int) {
	x := &n.x[i]
	r := fallback.LockRequest{
		Key: m.name(i, x.number, x.ask), Me: fallback.Identity{Session: names[i+1], Request: uint64(x.asks)}, Block: 1, Wait: true,
	}
	a := n.p.Lock(blocksMoment, r, m.send(n))
	x.queued = a.Verdict != fallback.Granted
	if a.Verdict == fallback.Granted {
		x.granted, x.contended = true, a.Contended
		n.left--
	}
	for k, w := range n.p.Queues[key] { // a promise lasts as long as it takes
		n.p.Queues[key][k].Promised = min(w.Promised, 1)
	}
}

// shrink asks for a smaller hold of the block, if there is something to give back.
func (m *Blocks) shrink(x *blockOwner, i int) {
	if x.used == 0 || x.used >= x.size || x.ask > 0 || x.refused || m.Without&Shrink != 0 {
		return
	}
	x.ask, x.asks = x.used, x.fresh()
	if m.Without&AsInUse != 0 {
		x.ask = max(1, x.used-1)
	}
	x.shut = m.Without&ShutFirst == 0
	if m.Without&GrantFirst != 0 {
		x.back += fmt.Sprintf("%s\t%d\n", m.name(i, x.number, x.size), x.request)
	}
}

func (m *Blocks) giveBack(x *blockOwner, i int) {
	x.back += fmt.Sprintf("%s\t%d\n", m.name(i, x.number, x.size), x.request)
	if x.ask > 0 { // the block asked for is given back, too
		x.back += fmt.Sprintf("%s\t%d\n", m.name(i, x.number, x.ask), x.asks)
	}
	x.size, x.shut, x.ask, x.asks, x.queued, x.granted, x.contended, x.request, x.refused = 0, false, 0, 0, false, false, false, 0, false
}

// answer gives the process the hold that it asked for: a block, or a smaller one of its block.
func (m *Blocks) answer(x *blockOwner, i int) {
	if x.size > 0 && m.Without&GrantFirst == 0 {
		x.back += fmt.Sprintf("%s\t%d\n", m.name(i, x.number, x.size), x.request)
	}
	x.size, x.request, x.shut = x.ask, x.asks, x.contended && m.Without&WantedShut == 0
	x.ask, x.asks, x.queued, x.granted, x.contended = 0, 0, false, false, false
}
