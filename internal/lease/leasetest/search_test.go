package leasetest

import (
	"flag"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/internal/lease"
)

// A search sees every state that two nodes can reach from a root by so many steps. They have the
// record of an arbiter, and streams that deliver in order. Calls are sent, executed and answered in
// steps of their own. States that cannot be told apart are one.
type search struct {
	root   string // commands
	depth  int
	ticks  int // of 3 s
	cuts   int
	fails  int  // calls that are not answered
	lies   int  // messages that are not true
	whole  bool // a call is one step
	states int
}

// moment is a search's state: the commands that lead to it, after the root's, and the faults that
// are left.
type moment struct {
	way                     []string
	ticks, cuts, fails, lie int
	whole                   bool
}

// replay returns the world after commands.
func (x *search) replay(way []string) *World {
	w := New("a", "b")
	w.Quiet, w.newest = true, make(map[string]uint64)
	for _, line := range strings.Split(x.root, "\n") {
		if line = strings.TrimSpace(line); line != "" {
			w.run(line)
		}
	}
	for _, line := range way {
		w.run(line)
	}
	return w
}

// run executes a command, and looks for violations.
func (w *World) run(line string) {
	if _, err := w.Do(line); err != nil {
		panic(err)
	}
	holders := 0
	for _, n := range w.Nodes {
		h, ok := n.P.HoldOf("k")
		if _, locked := n.turns["k"]; ok && locked && !h.Until.Past(w.now) {
			holders++
		} else if w.now.Before(n.section) {
			holders++
		}
	}
	if holders > 1 && w.broken == "" {
		w.broken = "I1: two nodes hold the key"
	}
}

// run returns the first violation with the shortest story, "" if there is none.
func (x *search) run() (broken string, story []string) {
	first := moment{ticks: x.ticks, cuts: x.cuts, fails: x.fails, lie: x.lies, whole: x.whole}
	seen := map[uint64]bool{fingerprint(x.replay(nil)): true}
	now := []moment{first}
	depth := x.depth + *deeper
	if race || testing.Short() {
		depth -= 2
	}
	for range depth {
		var then []moment
		for _, s := range now {
			for _, next := range s.steps(x.replay(s.way)) {
				w := x.replay(next.way)
				if w.broken != "" {
					return w.broken, next.way
				}
				p := fingerprint(w) ^ uint64(next.ticks*7+next.cuts*131+next.fails*1031+next.lie*10007)*0x9E3779B97F4A7C15
				if !seen[p] {
					seen[p] = true
					then = append(then, next)
				}
			}
		}
		now = then
	}
	x.states = len(seen)
	return "", nil
}

// steps returns the possible next moments.
func (s moment) steps(w *World) (all []moment) {
	add := func(next moment, format string, args ...any) {
		next.way = append(slices.Clone(s.way), fmt.Sprintf(format, args...))
		all = append(all, next)
	}
	for _, n := range w.Nodes {
		s.callers(n, add)
		s.calls(n, add)
		begin := func(kind string) { s.begin(n, kind, add) }
		s.requests(n, begin)
		s.balance(n, begin, add)
		for _, e := range n.ends {
			if !e.down && len(e.sending) > 0 {
				add(s, "deliver %s %s 1", n.Name, e.to.Name)
			}
		}
		s.messages(w, n, add)
	}
	if s.ticks > 0 {
		next := s
		next.ticks--
		for _, who := range []string{"", " a", " b"} {
			add(next, "round%s", who)
		}
	}
	if s.cuts > 0 {
		next := s
		next.cuts--
		if w.Nodes[0].ends["b"].down {
			add(s, "link a b")
		} else {
			add(next, "cut a b")
		}
	}
	return all
}

type adder func(next moment, format string, args ...any)

func (s moment) callers(n *Node, add adder) {
	if _, ok := n.turns["k"]; ok {
		add(s, "%s unlock k", n.Name)
	} else if len(n.waiters["k"]) == 0 {
		add(s, "%s lock k", n.Name)
	} else {
		add(s, "%s leave k", n.Name)
	}
	if k := n.P.Find("k"); k != nil {
		add(s, "%s watch k", n.Name)
	}
}

// calls are the steps of calls that are under way.
func (s moment) calls(n *Node, add adder) {
	for _, c := range n.calls {
		if c.executed {
			add(s, "%s answer %s %s", n.Name, c.kind, c.key)
		} else {
			add(s, "%s execute %s %s", n.Name, c.kind, c.key)
		}
		if s.fails > 0 {
			next := s
			next.fails--
			add(next, "%s fail %s %s", n.Name, c.kind, c.key)
		}
	}
	if len(n.stray) > 0 {
		add(s, "%s late", n.Name)
	}
}

// begin begins a call that is not under way, or makes it.
func (s moment) begin(n *Node, kind string, add adder) {
	words := strings.Fields(kind + " ")
	key := ""
	if len(words) > 1 {
		key = words[1]
	}
	switch {
	case s.whole:
		add(s, "%s %s", n.Name, kind)
	case n.find(words[0], key) == nil:
		add(s, "%s send %s", n.Name, kind)
	}
}

// requests are the calls that wait to be sent.
func (s moment) requests(n *Node, begin func(kind string)) {
	if len(n.running) > 0 {
		begin("contend k")
	}
	if len(n.releases) > 0 {
		begin("release")
	}
	if len(n.rumors) > 0 {
		begin("rumors")
	}
}

// balance is taking and giving of the partition, whatever the ring says.
func (s moment) balance(n *Node, begin func(kind string), add adder) {
	switch n.P.Phase() {
	case lease.Unowned:
		begin("acquire")
		add(s, "%s look", n.Name)
		if h, ok := n.P.HoldOf("k"); ok && h.Source != lease.SourceArbiter {
			begin("adopt")
		}
	case lease.Acquiring:
		begin("acquire")
	case lease.Owned:
		begin("demote")
		add(s, "%s doubt", n.Name)
	}
}

// messages of the arbiter are hints, and may lie.
func (s moment) messages(w *World, n *Node, add adder) {
	row, ok := w.record.Rows["k"]
	if ok && row.Session == n.session.ID {
		add(s, "%s asked k", n.Name)
	}
	if id, _ := n.P.HolderOf("k"); s.lie > 0 && id.Session != "" {
		next := s
		next.lie--
		add(next, "%s told freed k %s", n.Name, identity(id))
	}
}

const (
	granted = "a acquire\n owner a\n ping\n b lock k\n deliver" // b has the key from the owner
	onItWay = "a acquire\n owner a\n ping\n b lock k\n deliver b a"
	rounds  = "\n round a\n round a\n round a\n round a" // a is cut off until its session is dead
)

// A scene is a root, and the search goes on from there. The search notices if the guard is missing.
type scene struct {
	name, guard string
	search
}

var scenes = []scene{
	{"nothing has happened", "", search{depth: 5, fails: 1}},
	{"a serves", "Freeze", search{root: "a acquire\n owner a\n ping", depth: 5, fails: 1}},
	{"b has the key from the owner", "", search{root: granted, depth: 4, ticks: 3, cuts: 1, lies: 1}},
	{"a message lies of a hold without a row", "Absent", search{root: granted, depth: 4, lies: 1, whole: true}},
	{"a message lies", "Hearsay", search{root: granted, depth: 4, lies: 1, fails: 1}},
	{"b has a row", "Import", search{root: "b lock k\n b calls\n a acquire\n owner a\n ping", depth: 4, ticks: 2, lies: 1}},
	{"a grant is on its way", "", search{root: onItWay, depth: 5, fails: 1}},
	{"a grant is on its way, and is a row", "OnItsWay", search{root: onItWay + "\n a demote\n a lock k", depth: 5, whole: true}},
	{"a is cut off", "Lapse", search{root: "a acquire\n owner b\n ping" + rounds, depth: 4, whole: true, ticks: 1}},
	{"the owner is cut off, and begins anew", "Announced", search{root: granted + "\n cut a b" + rounds + "\n a die\n a open", depth: 4, whole: true}},
	{"a demote is lost", "Waits", search{root: granted + "\n a send demote\n a fail demote", depth: 4, whole: true, ticks: 1}},
}

// race is whether this is a build with the race detector: a search is one goroutine, and takes ten
// times as long with it.
var race bool

var deeper = flag.Int("lease.deeper", 0, "`steps` more in each search: each takes about six times as long as the one before")

// TestSearch sees all that can happen within bounds. No key has two holders in force (I1), and
// tokens rise (I2).
func TestSearch(t *testing.T) {
	states := 0
	for _, x := range scenes {
		t.Run(x.name, func(t *testing.T) {
			if broken, story := x.run(); broken != "" {
				t.Errorf("%s:\n%s\n%s", broken, x.root, strings.Join(story, "\n"))
			}
			t.Logf("%d states", x.states)
			states += x.states
		})
	}
	if states < 10_000 && !race && !testing.Short() {
		t.Errorf("%d states only: the search does not do what it should", states)
	}
}
