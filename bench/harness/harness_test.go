package harness

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/reexec"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestReferee(t *testing.T) {
	path := filepath.Join(t.TempDir(), "referees")
	one, unmapOne, err := OpenReferees(path, 2)
	if err != nil {
		t.Fatal(err)
	}
	defer unmapOne()
	other, unmapOther, err := OpenReferees(path, 2) // as another process would
	if err != nil {
		t.Fatal(err)
	}
	defer unmapOther()
	a, b := &one[1], &other[1]
	a.Enter(1, 5)
	a.Leave(1)
	b.Enter(2, 6)
	b.Leave(2)
	if a.Two.Load() != 0 || a.Stale.Load() != 0 || a.Sections.Load() != 2 {
		t.Errorf("two %d, stale %d, sections %d", a.Two.Load(), a.Stale.Load(), a.Sections.Load())
	}
	b.Enter(2, 6) // the same token again
	b.Leave(2)
	b.Enter(2, 3)
	b.Leave(2)
	b.Enter(2, 0) // no token
	if got := a.Stale.Load(); got != 2 {
		t.Errorf("stale %d", got)
	}
	a.Enter(1, 7) // while the other one is inside
	b.Leave(2)
	a.Leave(1)
	if got := a.Two.Load(); got != 3 {
		t.Errorf("two %d", got)
	}
	if one[0].Sections.Load() != 0 {
		t.Error("referees share memory")
	}
}

func TestCounter(t *testing.T) {
	server := redistest.Start(t)
	client, n := NewClient(server.Addr, 1)
	defer client.Close()
	client.Set(t.Context(), "a", 1, 0)
	client.Get(t.Context(), "missing")
	pipe := client.Pipeline()
	for range 5 {
		pipe.Incr(t.Context(), "a")
	}
	if _, err := pipe.Exec(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n.Commands.Load() != 7 || n.Trips.Load() != 3 {
		t.Errorf("%d commands, %d round trips", n.Commands.Load(), n.Trips.Load())
	}
	before, err := CommandStats(t.Context(), client, "eval")
	if err != nil {
		t.Fatal(err)
	}
	client.Eval(t.Context(), "redis.call('INCR', KEYS[1])", []string{"a"})
	after, err := CommandStats(t.Context(), client, "eval")
	if err != nil || after.Since(before).Calls != 1 {
		t.Errorf("%+v, %v", after.Since(before), err)
	}
}

// The meter sees allocations, bytes sent, and CPU time.
func TestMeter(t *testing.T) {
	count := new(Counter)
	m := NewMeter(count, nil)
	count.Commands.Add(3)
	count.Trips.Add(2)
	count.Sent.Add(100)
	count.Received.Add(11)
	var kept [][]byte
	for cpu := SelfCPU(); SelfCPU()-cpu < 5*time.Millisecond; {
		kept = append(kept, make([]byte, 100))
	}
	e := m.Read(7)
	if e.Sections != 7 || e.Commands != 3 || e.Trips != 2 || e.Bytes() != 111 || e.Allocs < uint64(len(kept)) || e.CPU < 5*time.Millisecond {
		t.Errorf("%+v, %d allocations", e, len(kept))
	}
}

func TestProgress(t *testing.T) {
	var out reexec.Buffer
	p := &progress{w: &out, width: 60}
	p.Begin("hot", 1, 9)
	p.Step("redsync with a name that is much too long for this terminal", 1, 2)
	p.Step("redsync", 2, 4)
	p.Clear()
	lines := strings.Split(out.String(), "\r\x1b[K")
	if len(lines) != 5 || lines[1] != "1/9 hot: under way" || !strings.HasPrefix(lines[3], "1/9 hot: redsync, 3/4, about 0s left") || lines[4] != "" {
		t.Errorf("%q", lines)
	}
	for _, l := range lines {
		if len(l) > 59 {
			t.Errorf("%q is too long", l)
		}
	}
	silent := newProgress(&out) // a buffer is no terminal
	silent.Begin("hot", 1, 9)
	silent.Clear()
	if got := strings.Split(out.String(), "\r\x1b[K"); len(got) != len(lines) {
		t.Errorf("%q", got)
	}
}

func TestStore(t *testing.T) {
	var h Host
	addr, err := serveStore(t.Context(), &h, struct{}{})
	if err != nil {
		t.Fatal(err)
	}
	defer h.close()
	s := NewStore(addr)
	defer s.Close()
	var work sync.WaitGroup
	var mu sync.Mutex // the lock
	token := uint64(0)
	for range 4 {
		work.Go(func() {
			for range 50 {
				mu.Lock()
				token++
				if err := s.Increment(2, 7, token); err != nil {
					t.Error(err)
				}
				mu.Unlock()
			}
		})
	}
	work.Wait()
	if wrong, stale, err := s.Counts(2); wrong != 0 || stale != 0 || err != nil {
		t.Errorf("wrong %d, stale %d, %v", wrong, stale, err)
	}
	do := func(kind byte, variant, key int, number, token uint64) (n uint64, err error) {
		err = s.with(func(c *storeConn) error { n, err = c.do(kind, variant, key, number, token); return err })
		return n, err
	}
	if n, err := do(storeRead, 2, 7, 0, 0); n != 200 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	do(storeWrite, 2, 7, 200, 0)   // another worker has written meanwhile
	do(storeWrite, 2, 7, 201, 200) // the same token again
	do(storeWrite, 2, 8, 1, 1)     // another key
	if wrong, stale, err := s.Counts(2); wrong != 1 || stale != 1 || err != nil {
		t.Errorf("wrong %d, stale %d, %v", wrong, stale, err)
	}
	if wrong, stale, _ := s.Counts(1); wrong != 0 || stale != 0 {
		t.Errorf("variants share numbers")
	}
	if _, err := do(storeRead, storeVariants, 0, 0, 0); err == nil {
		t.Error("there is no such variant")
	}
}

func TestTicks(t *testing.T) {
	read := func(line string) ticks {
		file := filepath.Join(t.TempDir(), "stat")
		if err := os.WriteFile(file, []byte(line+"\ncpu0 1 2 3\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := readTicks(file)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	a, b := read("cpu  100 0 50 800 50 0 0 0 70 0"), read("cpu  110 0 65 850 75 0 0 0 99 0")
	if a != (ticks{all: 1000, idle: 850}) || b.busyness(a) != 0.25 {
		t.Errorf("%+v, %+v, busy %v", a, b, b.busyness(a))
	}
	if _, err := readTicks(filepath.Join(t.TempDir(), "none")); err == nil {
		t.Error("a file that is not there")
	}
}
