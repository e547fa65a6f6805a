package main

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	// A measurement that a test makes in this process starts this binary again for its workers.
	if text := os.Getenv(orderEnv); text != "" {
		os.Exit(workerMain(text))
	}
	// A program with the race detector sleeps for a second before it ends, so that others may report races. Ours are all awaited.
	os.Setenv("GORACE", os.Getenv("GORACE")+" atexit_sleep_ms=0")
	// They wait more than they compute, also where there are few cores.
	flag.Parse()
	if f := flag.Lookup("test.parallel"); f.Value.String() == strconv.Itoa(runtime.GOMAXPROCS(0)) {
		_ = f.Value.Set("4")
	}
	lasting.all = &servers{running: make(map[string]*server), absent: make(map[string]error)}
	goleak.VerifyTestMain(lastingServers{m})
}

// lastingServers stops what the tests have shared.
type lastingServers struct{ *testing.M }

func (m lastingServers) Run() int {
	code := m.M.Run()
	all := lasting.all
	lasting.all = nil
	if err := all.stop(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	return code
}

// lockedBuffer may be written to by several goroutines.
type lockedBuffer struct {
	mu  sync.Mutex // protects buf
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// tiny is enough to go through all of the code.
var tiny = sizes{
	debounce: 200 * time.Millisecond,

	hot:  hotSizes{processes: 2, goroutines: 3, rounds: 2, round: 150 * time.Millisecond},
	cold: coldSizes{blocks: 2, calls: 10},
	held: heldSizes{locks: 300, periods: 1, partitions: 31, sessionTTL: 5 * time.Second},

	own:     ownSizes{blocks: 2, pairs: 2000, handOvers: 640, calls: 5},
	shared:  sharedSizes{processes: 2, goroutines: 3, keys: 1, rounds: 1, round: 150 * time.Millisecond},
	zipf:    sharedSizes{processes: 2, goroutines: 3, keys: 20, rounds: 1, round: 150 * time.Millisecond},
	forward: forwardSizes{blocks: 2, calls: 10, callers: 4, round: 50 * time.Millisecond},
	idle:    idleSizes{processes: 3, periods: 1},
	http:    httpSizes{blocks: 2, calls: 100, posts: 10},
	latency: latencySizes{blocks: 2, calls: 20},
	growth: growthSizes{
		blocks: 1, keys: 1000, pairs: 2000, waiters: 16, handOvers: 640, rows: 100, calls: 10, rowBlocks: 1,
		processes: 2, goroutines: 4, rounds: 1, round: 150 * time.Millisecond, window: 100 * time.Millisecond,
	},
	stalls: stallSizes{
		rounds: 1, processes: 2, rate: 50, keys: 20, hold: time.Millisecond, limit: 12 * time.Second,
		calm: 200 * time.Millisecond, every: 300 * time.Millisecond, outage: 300 * time.Millisecond, after: 600 * time.Millisecond,
		sessionTTL: 6 * time.Second, // of less, on a busy machine, sessions expire
	},
	rows:  rowsSizes{processes: 2, goroutines: 3, stock: 30, rows: 20, rounds: 1, round: 200 * time.Millisecond},
	modes: modesSizes{blocks: 1, block: 50 * time.Millisecond},
}

// needRedis skips the test where there is no redis-server, as redistest.Start does.
func needRedis(t *testing.T) {
	t.Helper()
	if _, err := exec.LookPath("redis-server"); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal("redis-server is not installed")
		}
		t.Skip("redis-server is not installed")
	}
}

// tinyBench starts a server for a test.
func tinyBench(t *testing.T) *bench {
	t.Helper()
	needRedis(t)
	var out lockedBuffer
	b, err := newBench(t.Context(), config{sizes: tiny, pin: true}, &out, &out)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.close(t.Context()); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Log(out.String())
		}
	})
	return b
}

func TestFlagDefaults(t *testing.T) {
	cfg, err := parseFlags(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(cfg.only, " "); got != "hot cold held own shared zipf forward idle http latency rows modes" || cfg.sizes != fullSizes || !cfg.pin || cfg.report {
		t.Errorf("%+v", cfg)
	}
	// Starting, warming up and locking come on top, and the whole stays below two minutes.
	h, b := cfg.sizes.hot, bench{config: cfg}
	if total := time.Duration(h.rounds) * h.round * time.Duration(len(b.chosen("hot"))); total > time.Minute {
		t.Errorf("the rounds of hot take %v", total)
	}
	for name, s := range map[string]sharedSizes{"shared": cfg.sizes.shared, "zipf": cfg.sizes.zipf} {
		if total := time.Duration(s.rounds) * s.round * time.Duration(len(b.chosen(name))+1); total > 90*time.Second {
			t.Errorf("the rounds of %s take %v", name, total)
		}
	}
}

func TestAllSubjects(t *testing.T) {
	cfg, err := parseFlags([]string{"-only", "all"}, nil)
	if err != nil || len(cfg.only) != len(subjects) || !slices.Contains(cfg.only, "growth") || !slices.Contains(cfg.only, "stalls") {
		t.Errorf("%v, %v", cfg.only, err)
	}
}

func TestFlags(t *testing.T) {
	cfg, err := parseFlags(strings.Fields("-redis [::1]:6379 -only held,hot -quick -report -pin=false -profile p -place near"), nil)
	if err != nil {
		t.Fatal(err)
	}
	if cfg.redis != "[::1]:6379" || strings.Join(cfg.only, " ") != "held hot" || cfg.sizes != quickSizes ||
		!cfg.report || cfg.pin || cfg.profile != "p" || cfg.place != placeNear {
		t.Errorf("%+v", cfg)
	}
}

func TestBadFlags(t *testing.T) {
	for _, test := range []struct{ args, want string }{
		{"-redis localhost", `-redis "localhost": want host:port`},
		{"-redis localhost:", `-redis "localhost:": want host:port`},
		{"-only hot,warm", `-only: no subject "warm", only hot,cold,held`},
		{"-only hot,hot", "-only: hot is there twice"},
		{"-only=", `-only: no subject ""`},
		{"-rivals some", `-rivals "some": want fast or all`},
		{"-quick=maybe", "invalid boolean value"},
		{"-unknown", "flag provided but not defined: -unknown"},
		{"hot", `unexpected argument "hot"`},
	} {
		t.Run(test.args, func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			if code := run(t.Context(), strings.Fields(test.args), &stdout, &stderr); code != 2 {
				t.Errorf("exit status %d", code)
			}
			if !strings.HasPrefix(stderr.String(), "bench: "+test.want) || strings.Count(stderr.String(), "\n") != 1 {
				t.Errorf("stderr: %q, want one line with %q", stderr.String(), test.want)
			}
			if stdout.Len() > 0 {
				t.Errorf("stdout: %q", stdout.String())
			}
		})
	}
}

func TestHelp(t *testing.T) {
	var stdout, stderr bytes.Buffer
	if code := run(t.Context(), []string{"-h"}, &stdout, &stderr); code != 0 || stderr.Len() > 0 {
		t.Errorf("exit status %d, stderr %q", code, stderr.String())
	}
	for _, want := range []string{"-redis", "-only", "-quick", "-report", "-pin", "-profile"} {
		if !strings.Contains(stdout.String(), want) {
			t.Errorf("no %s in %q", want, stdout.String())
		}
	}
}

func TestNoRedis(t *testing.T) {
	t.Parallel()
	var stdout, stderr bytes.Buffer
	// Port 1 of the loopback interface: nothing listens there.
	if code := run(t.Context(), []string{"-redis", "127.0.0.1:1"}, &stdout, &stderr); code != 1 {
		t.Errorf("exit status %d", code)
	}
	if !strings.HasPrefix(stderr.String(), "bench: FAILED: no Redis at 127.0.0.1:1") {
		t.Errorf("stderr: %q", stderr.String())
	}
}
