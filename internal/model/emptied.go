package model

import (
	"fmt"
	"slices"
)

// Emptied explores a durable store whose records are deleted while processes are at work: all in
// one step, or the partition's alone. It has a table of sessions, and one partition, which has a
// record once it was changed; the table tells then that it was made. The holder has a row from
// before. Another process was attached before, too, and a newcomer attaches at any time: both want
// the key. In Grace each of them may write a row of another key. A call may be under way if it is
// the holder's that writes its row again.
type Emptied struct {
	T, Q    uint8 // ticks: the lease, and Grace
	Wipes   uint8 // in all
	Ticks   uint8
	Without EmptiedGuard
}

// An EmptiedGuard is something without which the key has two holders when a store was emptied.
type EmptiedGuard uint8

// Guards of a durable store that is emptied, or loses the record of the partition.
const (
	NewGrace     EmptiedGuard = 1 << iota // a table of sessions begins with Grace, also if the process that makes it knows of no other
	AbsentGrace                           // a partition without a record is in Grace while the table is
	NewGraceAnew                          // that Grace is another one each time: a process that counted the one before does not end it
	MadeGrace                             // a partition that was made and has no record is lost: a Grace of its own begins
	MadeAnew                              // that Grace has its full length, also while the table is in Grace
	MadeFirst                             // a record's data count when the table tells that the partition was made
)

const (
	rivals   = 2 // the one that was attached before, and the newcomer
	newcomer = 1
)

// emptied is a state.
type emptied struct {
	table     bool
	grace     uint8 // beat of the table's Grace; 0: none
	made      bool  // it tells that the partition was made
	there     bool  // the partition's record
	row       bool  // the holder's, in it
	claims    bool  // the holder has written its row, and not yet told the table that the partition is made
	partGrace uint8 // beat of the record's Grace
	partFor   uint8 // and its length in ticks
	beats     uint8 // that were used
	holds     bool  // the holder has the key, by its own opinion
	listed    bool  // its session is in the table
	lease     uint8 // ticks that are left to it
	attached  bool  // the newcomer
	two       bool  // the key was granted while the holder has it in time
	o         [rivals]emptiedObserver
	wipes     uint8 // left, as the fields below
	ticks     uint8
}

type emptiedObserver struct {
	grace, since         uint8 // the beat of the table's Grace that it has seen, and ticks since
	partGrace, partSince uint8 // the same of the partition
}

// Explore sees every state, or stops at the first violation and returns a shortest story of it.
func (m *Emptied) Explore() (states int, broken string, story []string) {
	type origin struct {
		from int
		what string
	}
	first := emptied{table: true, made: true, there: true, row: true, holds: true, listed: true, lease: m.T, wipes: m.Wipes, ticks: m.Ticks}
	seen := map[emptied]bool{first: true}
	all, origins := []emptied{first}, []origin{{-1, ""}}
	for at := 0; at < len(all) && broken == ""; at++ {
		m.next(all[at], func(n emptied, what string) {
			if broken != "" || seen[n] {
				return
			}
			seen[n] = true
			all, origins = append(all, n), append(origins, origin{at, what})
			if n.two {
				broken = "I1: the key has two holders"
				for i := len(all) - 1; i > 0; i = origins[i].from {
					story = append(story, origins[i].what)
				}
				slices.Reverse(story)
			}
		})
	}
	return len(all), broken, story
}

func (e *emptied) unmake() { e.there, e.row, e.partGrace, e.partFor = false, false, 0, 0 }

// begin writes the partition's record, without rows, in a Grace for so many ticks.
func (m *Emptied) begin(n *emptied, length uint8) {
	n.there, n.row, n.partGrace, n.partFor = true, false, m.beat(n), length
}

// lost reports whether the partition has lost its record.
func (m *Emptied) lost(n *emptied) bool {
	return !n.there && n.made && m.has(MadeGrace) && (n.grace == 0 || m.has(MadeAnew))
}

func (m *Emptied) has(g EmptiedGuard) bool { return m.Without&g == 0 }

func (m *Emptied) next(was emptied, emit func(emptied, string)) {
	if n := was; was.wipes > 0 {
		n.wipes--
		n.unmake()
		alone := n
		n.table, n.grace, n.made, n.listed = false, 0, false, false
		emit(n, "the store is emptied")
		if was.there {
			emit(alone, "the partition's record is deleted")
		}
	}
	if n := was; was.ticks > 0 {
		n.ticks--
		less(&n.lease)
		for i := range n.o {
			n.o[i].since, n.o[i].partSince = min(n.o[i].since+1, m.Q), min(n.o[i].partSince+1, m.Q)
		}
		emit(n, "a tick")
	}
	m.renew(was, emit)
	for i := range was.o {
		m.rival(was, i, emit)
	}
}

// make makes the table of a namespace that the store does not have. known: the process was
// attached, so the store has lost it.
func (m *Emptied) make(n *emptied, known bool) {
	n.table = true
	if known || m.has(NewGrace) {
		n.grace = m.beat(n)
	}
}

// beat returns that of a new Grace.
func (m *Emptied) beat(n *emptied) uint8 {
	if !m.has(NewGraceAnew) {
		return 1
	}
	n.beats++
	return n.beats
}

// renew is a renewal of the holder's, and its look at its row, in time.
func (m *Emptied) renew(was emptied, emit func(emptied, string)) {
	if !was.holds || was.lease == 0 {
		return
	}
	n := was
	if !n.table {
		m.make(&n, true)
	} else if !n.listed && n.grace == 0 {
		n.grace = m.beat(&n) // it was told that it had a session: the table is of older data
	}
	n.listed = true
	switch graced := n.partGrace != 0 || !n.there && n.grace != 0 || m.lost(&n); {
	case n.claims:
		n.claims, n.made, n.lease = false, true, m.T
		emit(n, "the holder tells the table that the partition is made: it has the key")
		return
	case n.row:
		n.lease = m.T
		if m.has(MadeFirst) {
			n.made = true
		}
	case graced:
		if !n.there {
			m.begin(&n, m.Q)
		}
		if n.row = true; n.made || !m.has(MadeFirst) {
			n.lease = m.T
			break
		}
		n.claims = true
		emit(n, "the holder renews, and writes its row anew")
		return
	default:
		n.holds = false
	}
	emit(n, fmt.Sprintf("the holder renews, and looks at its row: it has the key: %t", n.holds))
}

// rival makes the actions of another process.
func (m *Emptied) rival(was emptied, i int, emit func(emptied, string)) {
	name := [rivals]string{"the other process", "the newcomer"}[i]
	n := was
	if i == newcomer && !was.attached {
		n.attached = true
		if !n.table {
			m.make(&n, false)
		}
		emit(n, name+" attaches")
		return
	}
	if !was.table {
		m.make(&n, true)
		emit(n, name+" finds no table, and makes it")
		return
	}
	x := &n.o[i]
	if x.grace != was.grace || x.partGrace != was.partGrace {
		if x.grace != was.grace {
			x.grace, x.since = was.grace, 0
		}
		if x.partGrace != was.partGrace {
			x.partGrace, x.partSince = was.partGrace, 0
		}
		emit(n, fmt.Sprintf("%s sees Grace %d of the table, %d of the partition", name, was.grace, was.partGrace))
	}
	m.ask(was, i, name, emit)
}

// ask is a rival that ends a Grace that it has counted to the end, writes another row, or locks.
func (m *Emptied) ask(was emptied, i int, name string, emit func(emptied, string)) {
	x := was.o[i]
	if n := was; was.grace != 0 && x.grace == was.grace && x.since >= m.Q {
		n.grace = 0
		emit(n, name+" ends the table's Grace")
	}
	if n := was; was.partGrace != 0 && x.partGrace == was.partGrace && x.partSince >= was.partFor {
		n.partGrace, n.partFor = 0, 0
		emit(n, name+" ends the partition's Grace")
	}
	n := was
	switch {
	case m.lost(&was):
		m.begin(&n, m.Q)
		emit(n, name+" finds that the partition's record is lost, and begins Grace")
	case was.partGrace != 0:
	case !was.there && was.grace != 0 && m.has(AbsentGrace):
		if x.grace == was.grace { // its Grace ends with the table's
			m.begin(&n, m.Q-x.since)
			n.made, n.o[i].partGrace, n.o[i].partSince = true, n.partGrace, 0
			emit(n, name+" writes another row")
		}
	case !was.row:
		n.there, n.made = true, true
		if n.two = was.holds && was.lease > 0; n.two {
			emit(n, name+" locks the key")
		}
	}
}
