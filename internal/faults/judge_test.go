//go:build unix

package faults

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/fallback"
)

// statement is a worker's message to the judge, one line of JSON. The worker waits for the answer.
type statement struct {
	Verb   verb
	Key    string
	Token  uint64
	Waited time.Duration // enter: how long Lock took
	At     time.Time     // lost: when the worker learned of it
	Told   bool          // lost: the cause of the lock's context Is ErrLost, and so is Unlock's error
	Text   string        // lost: that cause; broken: the fault
}

type verb string

// The verbs of statements about a lock. Each but the first confirms the one before it, if its
// comment says so.
const (
	enter   verb = "enter"   // the lock was granted
	write   verb = "write"   // confirms: after the last answer the lock was in force
	leave   verb = "leave"   // confirms, and is followed by Unlock
	nilled  verb = "nilled"  // confirms: Unlock returned nil
	here    verb = "here"    // of no lock: the session of the process, in Text
	guarded verb = "guarded" // of no lock: other nodes guard the process
	late    verb = "late"    // a write after the lock was lost
	lost    verb = "lost"    // the lock was lost, and Unlock was called
	broken  verb = "broken"  // something that must not happen, happened in the worker
)

// accepted is the answer to a write; any other is a rejection by the resource.
const accepted = "ok"

// visit is one lock as the judge saw it. The moments are in the order of the judge: the number of
// messages so far.
type visit struct {
	Worker, Key string
	Token       fallback.Token
	Entered     time.Time
	Waited      time.Duration
	entered     int
	last        int       // the latest moment with the lock certainly in force; 0: none
	LastAt      time.Time // as last
	late        string    // the answer to the late write
	condemned   bool      // a violation was found
	State       state
	LostAt      time.Time
	Told        bool
	Cause       string
}

type state int

const (
	open state = iota // the worker is in it, or was when it was killed
	unlocked
	forfeited // lost, and the worker knows
)

// judge is the resource. It remembers everything, and rejects a statement with a token that is not
// the highest of its key.
type judge struct {
	addr     string
	listener net.Listener
	work     sync.WaitGroup

	mu       sync.Mutex // protects the fields below
	conns    map[net.Conn]bool
	moment   int
	sessions map[string]string // names of workers by session
	guarded  map[string]bool   // by worker
	highest  map[string]*visit // by key: with the highest token so far
	visits   []*visit
	broken   []string // the workers' findings
	found    []string // the judge's findings
	watchers map[int]func(visit)
	watches  int
}

func newJudge(t *testing.T) *judge {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	j := &judge{addr: l.Addr().String(), listener: l, conns: make(map[net.Conn]bool),
		highest: make(map[string]*visit), sessions: make(map[string]string), guarded: make(map[string]bool), watchers: make(map[int]func(visit))}
	j.work.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			j.mu.Lock()
			j.conns[c] = true
			j.mu.Unlock()
			j.work.Go(func() { j.serve(c) })
		}
	})
	t.Cleanup(j.close)
	return j
}

func (j *judge) close() {
	_ = j.listener.Close()
	j.mu.Lock()
	for c := range j.conns {
		_ = c.Close()
	}
	j.mu.Unlock()
	j.work.Wait()
}

// serve hears one goroutine of a worker, which has one lock at a time. Its first line is the
// worker's name.
func (j *judge) serve(c net.Conn) {
	defer func() {
		_ = c.Close()
		j.mu.Lock()
		delete(j.conns, c)
		j.mu.Unlock()
	}()
	in := bufio.NewReader(c)
	name, err := in.ReadString('\n')
	if err != nil {
		return
	}
	w := witness{j: j, name: strings.TrimSpace(name)}
	for lines := json.NewDecoder(in); ; {
		var s statement
		if err := lines.Decode(&s); err != nil {
			return // the worker has ended; how is checked elsewhere
		}
		if _, err := io.WriteString(c, w.hear(s, time.Now())+"\n"); err != nil {
			return
		}
	}
}

// witness is one goroutine of a worker as the judge knows it.
type witness struct {
	j    *judge
	name string
	v    *visit
	said int       // the moment of its last message
	at   time.Time // the same
	over *visit    // another lock, with a token not lower, that had been heard of then; or nil
}

// hear takes a statement and answers it.
func (w *witness) hear(s statement, now time.Time) string {
	j := w.j
	j.mu.Lock()
	defer j.mu.Unlock()
	j.moment++
	if s.Verb == here {
		j.sessions[s.Text] = w.name
		return accepted
	}
	if s.Verb == guarded {
		j.guarded[w.name] = true
		return accepted
	}
	if s.Verb == broken || s.Verb != enter && (w.v == nil || w.v.Key != s.Key || uint64(w.v.Token) != s.Token) {
		j.broken = append(j.broken, fmt.Sprintf("%s: %s %s %v %s", w.name, s.Verb, s.Key, fallback.Token(s.Token), s.Text))
		return "noted"
	}
	if s.Verb == write || s.Verb == leave || s.Verb == nilled {
		w.v.last, w.v.LastAt = w.said, w.at
		j.try(w.v, w.over)
	}
	switch s.Verb {
	case enter:
		w.v = &visit{Worker: w.name, Key: s.Key, Token: fallback.Token(s.Token), Entered: now, entered: j.moment,
			Waited: s.Waited}
		j.visits = append(j.visits, w.v)
		if high := j.highest[s.Key]; high == nil || high.Token < w.v.Token {
			j.highest[s.Key] = w.v
		}
	case nilled:
		w.v.State = unlocked
	case lost:
		w.v.State, w.v.LostAt, w.v.Told, w.v.Cause = forfeited, s.At, s.Told, s.Text
	}
	w.said, w.at, w.over = j.moment, now, nil
	answer := accepted
	if high := j.highest[s.Key]; high != w.v {
		w.over = high
		answer = fmt.Sprintf("rejected: %v has been here", high.Token)
	}
	if s.Verb == late {
		w.v.late = answer
	}
	for _, see := range j.watchers {
		see(*w.v)
	}
	return answer
}

// try judges a lock that was in force after another one, with a token not lower, had been heard of.
// If tokens rise (I2), that one was granted later, so there were two valid holders (I1).
func (j *judge) try(v, over *visit) {
	if over == nil || v.condemned {
		return
	}
	v.condemned = true
	if v.entered < over.entered && v.Token < over.Token {
		j.found = append(j.found, fmt.Sprintf("I1: %s: %v came in, and %v was still in force", v.Key, over, v))
	} else {
		j.found = append(j.found, fmt.Sprintf("I2: %s: %v came in after %v, and was in force", v.Key, v, over))
	}
}

// seen returns copies of all visits so far, in the order in which they began.
func (j *judge) seen() []visit {
	j.mu.Lock()
	defer j.mu.Unlock()
	all := make([]visit, len(j.visits))
	for i, v := range j.visits {
		all[i] = *v
	}
	return all
}

// violations returns the breaches of the library's guarantees: the judge's findings, and the
// workers'.
func (j *judge) violations() (found, broken []string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.found), slices.Clone(j.broken)
}

func (v visit) String() string {
	return fmt.Sprintf("%s with %v [%s +%v, %d to %d]", v.Worker, v.Token, v.Entered.Format("05.000"),
		max(0, v.LastAt.Sub(v.Entered)).Round(time.Millisecond), v.entered, v.last)
}

// await shows each visit to see, those there are and then each that changes, until it returns true.
// After the limit the test fails; on a machine that has much else to do it waits longer. It returns
// when that was.
func (j *judge) await(t *testing.T, limit time.Duration, what string, see func(visit) bool) time.Time {
	t.Helper()
	done := make(chan time.Time, 1)
	look := func(v visit) {
		if done != nil && see(v) {
			done <- time.Now()
			done = nil
		}
	}
	seen := done
	j.mu.Lock()
	for _, v := range j.visits {
		look(*v)
	}
	j.watches++
	id := j.watches
	j.watchers[id] = look
	j.mu.Unlock()
	defer func() {
		j.mu.Lock()
		defer j.mu.Unlock()
		delete(j.watchers, id)
	}()
	begun, late := time.Now(), mine.Late()
	for left := limit; left > 0; left = limit + slack(late) - time.Since(begun) {
		select {
		case at := <-seen:
			return at
		case <-time.After(left):
		}
	}
	select {
	case at := <-seen: // both came at once
		return at
	default:
		t.Fatalf("not within %v: %s", limit, what)
		panic("unreachable")
	}
}

// each returns a function for await: true when there has been a visit that counts for each of the
// names, which of extracts from it.
func each(names []string, of func(visit) string, counts func(visit) bool) func(visit) bool {
	missing := make(map[string]bool)
	for _, n := range names {
		missing[n] = true
	}
	return func(v visit) bool {
		if missing[of(v)] && counts(v) {
			delete(missing, of(v))
		}
		return len(missing) == 0
	}
}

func byWorker(v visit) string { return v.Worker }
func byKey(v visit) string    { return v.Key }
