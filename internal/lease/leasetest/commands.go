package leasetest

import (
	"fmt"
	"maps"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/lease"
)

// commands of a node, by name, besides its calls. Some take a key.
var commands = map[string]func(n *Node, args []string){
	"lock":   func(n *Node, args []string) { n.lock(args[0], false) },
	"try":    func(n *Node, args []string) { n.lock(args[0], true) },
	"unlock": func(n *Node, args []string) { n.unlock(args[0]) },
	"cede":   func(n *Node, args []string) { n.cede(args[0]) },
	"leave":  func(n *Node, args []string) { n.leave(args[0]) },
	"watch":  func(n *Node, args []string) { n.watch(args[0]) },
	"asked":  func(n *Node, args []string) { n.asked(args[0]) },
	"status": func(n *Node, args []string) { n.w.say("%s: %s", n.Name, n.status(args[0])) },
	"calls":  func(n *Node, _ []string) { n.contendAll() },
	"freeze": func(n *Node, _ []string) { n.freeze() },
	"renew":  func(n *Node, _ []string) { n.renew() },
	"doubt":  func(n *Node, _ []string) { n.doubt() },
	"duty":   func(n *Node, args []string) { n.duty(args[0]) },
	"step":   func(n *Node, _ []string) { n.step() },
	"die":    func(n *Node, _ []string) { n.die() },
	"quit":   func(n *Node, _ []string) { n.quit() },
	"free":   func(n *Node, _ []string) { n.free() },
	"late":   func(n *Node, _ []string) { n.late() },
	"doubts": func(n *Node, _ []string) { n.doubted() },
	"told":   func(n *Node, args []string) { n.told(args) },
	"open":   func(n *Node, _ []string) { n.open() },
	"close": func(n *Node, _ []string) {
		n.event(func(now time.Time, fx *lease.Effects) { n.P.Close(errClosed, now, fx) })
	},

	"verify": func(n *Node, _ []string) {
		n.call("verify", "")
		n.call("reclaim", "")
	},
	"send":    func(n *Node, args []string) { n.send(args[0], args[1]) },
	"execute": func(n *Node, args []string) { n.execute(args[0], args[1]) },
	"answer":  func(n *Node, args []string) { n.answered(args[0], args[1]) },
	"fail":    func(n *Node, args []string) { n.fail(args[0], args[1]) },
	"repeat":  func(n *Node, args []string) { n.repeat(args[0], args[1]) },
}

// shown shows the names of holds that are not exclusive with a colon: "k:sa" is a shared one of the
// key k, by the holder a.
var shown = strings.NewReplacer("\x00\xff", "", "\x00", ":")

// nameOf is the inverse of shown.
func nameOf(word string) string {
	if key, spec, ok := strings.Cut(word, ":"); ok {
		return key + "\x00" + spec + "\x00\xff"
	}
	return word
}

// Do executes a command, and returns the log of its results.
//
//	tick 1s            time goes on
//	pass 10s           the same, and every 2.5 s all nodes renew their sessions, ping, and verify
//	                   their holds
//	round              the same for 3 s, once; "round a": a is cut off from everything meanwhile
//	deliver            all streams deliver until nothing is on its way; "deliver a b": the frames
//	                   from a to b, "deliver a b 1": the first
//	ping               all nodes ask all others for how long they answer
//	cut a b            the stream between two nodes ends; "link a b": there is one again, with the statements; "link a b quiet": without pings;
//	                   "link a b begins": so early that only a's statement knows of it, until "begun a b"
//	owner a            all rings name the node that should own the partition
//	most a 1           so many keys of a's may another node have; 0: any number
//	offers a 1         so many holds may a offer to their owners
//	delete k           the row of a key is deleted by hand
//	dead a             the arbiter says that a's session is dead
//	failover           another server goes on with the same record; "failover empty": with none
//	record             the arbiter's record
//	a lock k           of a node: see commands
//	a lock k:sa        the same of a name of the key: "s" and a holder for reading, "p2/3/" and a holder for two permits of three
//	a acquire          a call of a node, which is executed and answered at once: see operations
//	a send acquire     its steps, as are execute and answer; "a fail acquire": it is not answered; "a late": it is executed then; "a repeat acquire": it is
//	                   to be executed once more
func (w *World) Do(line string) ([]string, error) {
	w.log = nil
	words := append(strings.Fields(line), "", "", "", "")
	for i, word := range words {
		words[i] = nameOf(word)
	}
	switch words[0] {
	case "tick":
		d, err := time.ParseDuration(words[1])
		if err != nil {
			return nil, err
		}
		w.now = w.now.Add(d)
	case "pass":
		d, err := time.ParseDuration(words[1])
		if err != nil {
			return nil, err
		}
		w.pass(d)
	case "capped":
		d, err := time.ParseDuration(words[1])
		if err != nil {
			return nil, err
		}
		w.capped = d
	case "round":
		w.round(words[1])
	case "deliver":
		if words[1] != "" {
			w.deliver(w.node(words[1]), w.node(words[2]), words[3] == "1")
			break
		}
		w.deliverAll()
	case "ping":
		w.pairs(w.ping)
		w.deliverAll()
	case "cut":
		w.cut(w.node(words[1]), w.node(words[2]))
	case "link":
		a, b := w.node(words[1]), w.node(words[2])
		w.link(a, b, words[3] == "")
		a.ends[b.Name].begins = words[3] == "begins"
	case "begun":
		w.node(words[1]).ends[w.node(words[2]).Name].begins = false
	case "owner":
		w.owner = words[1]
	case "most":
		w.node(words[1]).most, _ = strconv.Atoi(words[2])
	case "offers":
		n, _ := strconv.ParseInt(words[2], 10, 64)
		w.node(words[1]).offers.Store(n)
	case "delete":
		delete(w.record.Rows, words[1])
		w.record.SetRows(w.record.Rows)
	case "dead":
		w.dead[words[1]] = true
	case "failover":
		w.server += "'"
		if words[1] == "empty" {
			w.record = fallback.Partition{}
		}
	case "record":
		w.say("%s", w.recordText())
	default:
		if !slices.ContainsFunc(w.Nodes, func(n *Node) bool { return n.Name == words[0] }) {
			return nil, fmt.Errorf("leasetest: no command %q", line)
		}
		n := w.node(words[0])
		if f := commands[words[1]]; f != nil {
			f(n, words[2:])
		} else if _, ok := operations[words[1]]; ok {
			n.call(words[1], words[2])
		} else {
			return nil, fmt.Errorf("leasetest: no command %q", line)
		}
	}
	return w.log, nil
}

func (w *World) pass(d time.Duration) {
	for ; d > 0; d -= renewEvery {
		w.now = w.now.Add(min(d, renewEvery))
		for _, n := range w.Nodes {
			n.renew()
			commands["verify"](n, nil)
		}
		w.pairs(w.ping)
		w.deliverAll()
	}
}

// round: three seconds pass. All nodes renew their sessions, verify, and ping; one may be cut off
// from everything meanwhile. The arbiter counts sessions dead that were not renewed for as long as
// they last.
func (w *World) round(without string) {
	w.now = w.now.Add(w.Times.TTL * 3 / 10)
	for _, n := range w.Nodes {
		if n.Name != without {
			n.renew()
			commands["verify"](n, nil)
		}
		if !w.now.Before(n.session.Deadline().Add(w.Times.Margin)) {
			w.dead[n.session.ID] = true
		}
	}
	if without == "" {
		w.pairs(w.ping)
		w.deliverAll()
	}
}

func (w *World) pairs(f func(a, b *Node)) {
	for _, a := range w.Nodes {
		for _, b := range w.Nodes {
			if e := a.ends[b.Name]; e != nil && !e.down {
				f(a, b)
			}
		}
	}
}

func (w *World) deliverAll() {
	for moved := true; moved; {
		moved = false
		w.pairs(func(a, b *Node) { moved = w.deliver(a, b, false) > 0 || moved })
	}
}

func (w *World) cut(a, b *Node) {
	for _, e := range []*end{a.ends[b.Name], b.ends[a.Name]} {
		e.down = true
		e.from.event(func(now time.Time, fx *lease.Effects) { e.from.P.Cut(e, now, fx) })
	}
}

// link makes a stream, perhaps with pings, and with the statements of all holds (rule 12).
func (w *World) link(a, b *Node, pings bool) {
	w.connect(a, b)
	w.connect(b, a)
	for _, e := range []*end{a.ends[b.Name], b.ends[a.Name]} {
		e.from.event(func(_ time.Time, fx *lease.Effects) { e.from.P.State(e, fx) })
		if pings {
			w.ping(e.from, e.to)
		}
	}
	w.deliverAll()
	for _, e := range []*end{a.ends[b.Name], b.ends[a.Name]} {
		e.from.event(func(now time.Time, fx *lease.Effects) { e.from.P.Stated(e, e.to.Name, now, fx) })
	}
}

func (w *World) recordText() string {
	r := w.record.Load(w.moment())
	var rows []string
	for key, row := range w.record.Rows {
		rows = append(rows, fmt.Sprintf("%s: %s, token %s", key, identity(row.Identity), token(uint64(row.Token))))
	}
	sort.Strings(rows)
	text := "Shared"
	switch {
	case r.Grace > 0:
		text = fmt.Sprintf("Grace for %v", r.Grace)
	case r.Owner != "":
		text = "Owned by " + r.Owner
	}
	rows = append(rows, "no more rows")
	for _, key := range slices.Sorted(maps.Keys(w.record.Queues)) {
		for _, x := range w.record.Queues[key] {
			rows = append(rows, fmt.Sprintf("%s waits for %s", identity(x.Identity), key))
		}
	}
	return fmt.Sprintf("%s, epoch %d; %s", text, r.Epoch, strings.Join(rows, "; "))
}
