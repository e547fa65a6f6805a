package history

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"testing"
	"time"
)

// script is a history in short. Each line is a moment, in seconds, and its events:
//
//	A+  A calls Lock         A=5  it is granted, with token 5    A!  it is refused
//	A?  A sees its lock in force
//	A-  A calls Unlock       A.   it returns nil                 A~  it returns that the lock was lost
//	Ax  A's lock is lost     A#   A is killed                    A|  A stands still since the moment before
//	Ar  A calls RLock        Ad   A calls Downgrade              Ap2/3  A calls Acquire for 2 permits of 3
//
// Each client is a process.
func script(t *testing.T, text string) []Record {
	t.Helper()
	var now time.Duration
	log := NewLog()
	recorders, calls, holds := make(map[string]*Recorder), make(map[string]*Call), make(map[string]*Hold)
	for line := range strings.SplitSeq(strings.TrimSpace(text), "\n") {
		now += time.Second
		for _, word := range strings.Fields(line) {
			who, what := word[:1], word[1:]
			r := recorders[who]
			if r == nil {
				r = &Recorder{Process: who, Now: func() time.Duration { return now }, Put: log.Put}
				recorders[who] = r
			}
			switch what[0] {
			case '+':
				calls[who] = r.Lock(1, "k")
			case '=':
				var fence uint64
				if _, err := fmt.Sscanf(what, "=%d", &fence); err != nil {
					t.Fatal(err)
				}
				holds[who] = calls[who].Granted(fence)
			case 'r':
				calls[who] = r.RLock(1, "k")
			case 'd':
				calls[who] = holds[who].Downgrade()
			case 'p':
				var n, of int
				if _, err := fmt.Sscanf(what, "p%d/%d", &n, &of); err != nil {
					t.Fatal(err)
				}
				calls[who] = r.Acquire(1, "k", n, of)
			case '!', '~':
				calls[who].Refused()
			case '?':
				holds[who].See(func() bool { return true })
			case '-':
				calls[who] = holds[who].Unlock()
			case '.':
				calls[who].Done()
			case 'x':
				holds[who].Lost()
			case '#':
				r.Gone(now, now)
			case '|':
				r.Paused(now-time.Second, now)
			default:
				t.Fatalf("%q?", word)
			}
		}
	}
	return log.Records()
}

func TestModels(t *testing.T) {
	for _, x := range []struct {
		name, text         string
		ownerAware, fenced bool
	}{
		{"one after the other", "A+\nA=1\nA-\nA.\nB+\nB=2\nB-\nB.", true, true},
		{"a waiter gets it when it is unlocked", "A+\nA=1\nB+\nA-\nB=2\nA.\nB-\nB.", true, true},
		{"the order of calls is not that of grants", "A+\nB+\nB=1\nB-\nB.\nA=2\nA-\nA.", true, true},
		{"two holders", "A+\nA=1\nB+\nB=2\nA-\nA.\nB-\nB.", false, false},
		{"two holders, of whom one never unlocks", "A+\nA=1\nB+\nB=2\nB-\nB.", false, false},
		{"two holders, told one by one", "A+\nA=1\nB+\nB=2\nA?\nB?", false, false},
		{"refused", "A+\nA=1\nB+\nB!\nA-\nA.", true, true},
		{"refused for no reason", "A+\nA!\nB+\nB=1", true, true},

		{"lost, and given to somebody else", "A+\nA=1\nB+\nAx\nB=2\nB-\nB.", true, true},
		{"lost, noticed late, and nothing seen since", "A+\nA=1\nB+\nB=2\nAx\nB-\nB.", true, true},
		{"lost too late: it was in force while somebody else had it", "A+\nA=1\nB+\nB=2\nA?\nAx\nB-\nB.", false, false},
		{"in force after it was lost", "A+\nA=1\nAx\nA?", false, false},
		{"unlocked after it was lost", "A+\nA=1\nAx\nA-\nA.", false, false},
		{"unlock says that it was lost", "A+\nA=1\nB+\nB=2\nA-\nA~\nB-\nB.", true, true},
		{"unlock does not say that it was lost", "A+\nA=1\nB+\nB=2\nB-\nB.\nA-\nA.", false, false},
		{"unlocked by the one before", "A+\nA=1\nA-\nA.\nB+\nB=2\nA-\nA.\nC+\nC=3\nB?", false, false},

		{"unlock without an answer", "A+\nA=1\nA-\nB+\nB=2\nB-\nB.", true, true},
		{"unlock without an answer, that was never done", "A+\nA=1\nA-\nB+\nB!", true, true},
		{"unlock without an answer cannot have been done before it was called", "A+\nA=1\nB+\nB=2\nA?\nA-", false, false},
		{"lock without an answer", "A+\nB+\nB=1\nB-\nB.\nC+\nC=3", true, true},

		{"killed", "A+\nA=1\nB+\nA#\nB=2\nB-\nB.", true, true},
		{"killed while unlocking", "A+\nA=1\nA-\nB+\nB=2\nA#\nB-\nB.", true, true},
		{"killed, and somebody else had it while it was in force", "A+\nA=1\nB+\nB=2\nA?\nA#", false, false},
		{"nobody said that it was killed", "A+\nA=1\nB+\nB=2", false, false},

		{"stood still, and was told when it went on", "A+\nA=1\nB+\nA? B=2\nA|\nAx\nB-\nB.", true, true},
		{"stood still, and used the lock when it went on", "A+\nA=1\nA?\nB+ B=2\nA? A|\nB- B.", true, true},
		{"stood still, and unlocked when it went on", "A+\nA=1\nA?\nB+ B=2\nA- A. A|\nB- B.", true, true},
		{"stood still, and kept the lock long after", "A+\nA=1\nA?\nB+ B=2\nA|\nA?\nB- B.", false, false},
		{"stood still, and unlocked long after", "A+\nA=1\nA?\nB+ B=2\nA|\nA-\nA.\nB- B.", false, false},
		{"stood still later", "A+\nA=1\nB+\nB=2\nA?\nB-\nB.\nC+\nA|", false, false},

		{"a token again", "A+\nA=1\nA-\nA.\nB+\nB=1\nB-\nB.", true, false},
		{"a token falls", "A+\nA=2\nA-\nA.\nB+\nB=1\nB-\nB.", true, false},
		{"a token falls after a loss", "A+\nA=2\nAx\nB+\nB=1\nB-\nB.", true, false},
		{"tokens tell which of two came first", "A+ B+\nA=2\nA- B=1\nA. B-\nB.", true, false},
		{"tokens tell which of two at the same time came first", "A+ B+\nB=1\nB- A=2\nB. A-\nA.", true, true},
		{"a token may be left out", "A+\nA=1\nA-\nA.\nB+\nB=9\nB-\nB.", true, true},
	} {
		t.Run(x.name, func(t *testing.T) {
			records := script(t, x.text)
			for _, c := range []struct {
				model Model
				want  bool
			}{{OwnerAware, x.ownerAware}, {Fenced, x.fenced}} {
				err := c.model.Check(records, time.Minute)
				if c.want && err != nil {
					t.Errorf("%s: %v", c.model.Name, err)
				}
				if !c.want && !errors.Is(err, ErrViolated) {
					t.Errorf("%s: %v", c.model.Name, err)
				}
			}
			err := Check(records, time.Minute)
			if x.fenced != (err == nil) {
				t.Errorf("Check: %v", err)
			}
			if err != nil && strings.Contains(err.Error(), OwnerAware.Name) == x.ownerAware {
				t.Errorf("Check: %v, and an owner-aware mutex could: %v", err, x.ownerAware)
			}
		})
	}
}

// Keys have nothing to do with each other.
func TestKeys(t *testing.T) {
	log := NewLog()
	r := &Recorder{Process: "a", Now: func() time.Duration { return 1 }, Put: log.Put}
	r.Lock(1, "x").Granted(7)
	r.TryLock(2, "y").Granted(5)
	if err := Check(log.Records(), time.Minute); err != nil {
		t.Error(err)
	}
	r.Lock(1, "y").Granted(9)
	if err := Check(log.Records(), time.Minute); !errors.Is(err, ErrViolated) || !strings.Contains(err.Error(), `"y"`) {
		t.Error(err)
	}
}

// A search that takes too long is no proof of anything.
func TestTooHard(t *testing.T) {
	var records []Record
	for n := range 40 { // at the same time, and the last one shows that it has all been in vain
		records = append(records, Record{Process: "a", ID: uint64(2*n + 1), Op: Lock, Key: "k", Fence: 1, Return: time.Hour},
			Record{Process: "a", ID: uint64(2*n + 2), Op: Unlock, Key: "k", Hold: uint64(2*n + 1), Return: time.Hour})
	}
	records = append(records, Record{Process: "b", ID: 1, Op: Lock, Key: "k", Call: time.Hour + 1, Return: time.Hour + 2},
		Record{Process: "b", ID: 2, Op: Lock, Key: "k", Call: time.Hour + 3, Return: time.Hour + 4})
	if err := OwnerAware.Check(records, 50*time.Millisecond); !errors.Is(err, ErrTooHard) {
		t.Error(err)
	}
}

func TestJSON(t *testing.T) {
	records := script(t, "A+\nA=1\nB+\nAx\nB=2\nB-\nB.\nC+\nA#\nB|")
	var a, b bytes.Buffer
	for i, r := range records {
		w := &a
		if r.Process == "A" {
			w = &b
		}
		put := WriteTo(w, func(err error) { t.Error(err) })
		if i%2 == 0 {
			unknown := r
			unknown.Unknown = true
			put(unknown)
		}
		put(r)
	}
	b.WriteString(`{"process":"A","id":9`) // it was killed
	got, err := Read(&a, &b)
	if err != nil {
		t.Fatal(err)
	}
	count := func(records []Record) map[Record]int {
		m := make(map[Record]int)
		for _, r := range records {
			m[r]++
		}
		return m
	}
	if !reflect.DeepEqual(count(got), count(records)) {
		t.Errorf("%v, want %v", got, records)
	}
	for _, bad := range []string{"{}x\n", "[]\n"} {
		if _, err := Read(strings.NewReader(bad)); err == nil {
			t.Errorf("%q was read", bad)
		}
	}
}

func TestJSONFails(t *testing.T) {
	r, w := io.Pipe()
	r.Close()
	n := 0
	put := WriteTo(w, func(err error) {
		n++
		if err != io.ErrClosedPipe {
			t.Error(err)
		}
	})
	put(Record{})
	put(Record{})
	if n != 1 {
		t.Errorf("it failed %d times", n)
	}
}

func TestStrangeRecords(t *testing.T) {
	for _, r := range []Record{{Op: "sing"}, {Op: Unlock, Hold: 3}, {Op: Seen}} {
		if err := Check([]Record{r}, time.Minute); err == nil || errors.Is(err, ErrViolated) {
			t.Errorf("%+v: %v", r, err)
		}
	}
}

// A violation is shown where it is.
func TestStory(t *testing.T) {
	err := Check(script(t, "A+\nA=1\nA-\nA.\nB+\nB=2\nC+\nC=3\nB?\nC-\nC."), time.Minute)
	for _, want := range []string{"owner-aware", "A, client 1: hold 1 unlocked", "and then none", "C, client 1: hold 3 granted with 0.3"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not say %q", err, want)
		}
	}
}

// As much as a minute of chaos makes.
func BenchmarkCheck(b *testing.B) {
	log := NewLog()
	now := time.Duration(0)
	r := &Recorder{Process: "a", Now: func() time.Duration { return now }, Put: log.Put}
	const clients = 20
	var waiting []*Call
	for n := range clients {
		waiting = append(waiting, r.Lock(n, "k"))
	}
	for n := range 5000 {
		now++
		next := (n*7 + n/3) % clients // not in order of arrival
		h := waiting[next].Granted(uint64(n + 1))
		now++
		h.See(func() bool { return true })
		waiting[next] = r.Lock(next, "k")
		now++
		h.Unlock().Done()
	}
	for _, m := range []Model{OwnerAware, Fenced} {
		b.Run(m.Name, func(b *testing.B) {
			for b.Loop() {
				if err := m.Check(log.Records(), time.Minute); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
