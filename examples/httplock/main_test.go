package main

import (
	"bytes"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/leak"
)

// mainEnv makes the tests' binary be the example.
const mainEnv = "HOLDFAST_HTTPLOCK_MAIN"

func TestMain(m *testing.M) {
	// A fleet that a test starts in this process is this binary again.
	if order := os.Getenv(orderEnv); order != "" {
		os.Exit(workerMain(order))
	}
	if os.Getenv(mainEnv) != "" {
		main()
	}
	leak.Main(m)
}

// A lockedBuffer may be written to by several goroutines.
type lockedBuffer struct {
	mu  sync.Mutex // guards buf
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

func TestFlagDefaults(t *testing.T) {
	cfg, err := parseFlags(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, r := range cfg.rungs {
		names = append(names, r.name)
		if r.hidden {
			t.Errorf("%s runs by default", r.name)
		}
	}
	if got := strings.Join(names, " "); got != "none setnx serialize cluster route" {
		t.Errorf("rungs: %s", got)
	}
	if cfg.processes != 4 || cfg.clients != 200 || cfg.resources != 10 || cfg.redis != "" {
		t.Errorf("%+v", cfg)
	}
	// Starting, and settling twice, come on top, and the default run stays below half a minute.
	if total := cfg.duration * time.Duration(len(cfg.rungs)); total > 10*time.Second {
		t.Errorf("the rungs take %v", total)
	}
}

func TestFlags(t *testing.T) {
	cfg, err := parseFlags(strings.Fields("-redis [::1]:6379 -duration 100ms -processes 16 -clients 1 "+
		"-resources 1000000 -rungs route,none"), nil)
	if err != nil {
		t.Fatal(err)
	}
	if cfg.redis != "[::1]:6379" || cfg.duration != 100*time.Millisecond || cfg.processes != 16 ||
		cfg.clients != 1 || cfg.resources != 1_000_000 ||
		len(cfg.rungs) != 2 || cfg.rungs[0].name != "route" || cfg.rungs[1].name != "none" {
		t.Errorf("%+v", cfg)
	}
}

func TestBadFlags(t *testing.T) {
	for _, test := range []struct{ args, want string }{
		{"-processes 0", "-processes 0: want 1 to 16"},
		{"-processes 17", "-processes 17: want 1 to 16"},
		{"-processes four", `invalid value "four" for flag -processes`},
		{"-clients 0", "-clients 0: want 1 to 2000"},
		{"-clients -5", "-clients -5: want 1 to 2000"},
		{"-clients 2001", "-clients 2001: want 1 to 2000"},
		{"-resources 0", "-resources 0: want 1 to 1000000"},
		{"-resources 1000001", "-resources 1000001: want 1 to 1000000"},
		{"-duration 99ms", "-duration 99ms: want 100ms to 10m"},
		{"-duration 11m", "-duration 11m0s: want 100ms to 10m"},
		{"-duration 5", "invalid value"},
		{"-redis localhost", `-redis "localhost": want host:port`},
		{"-redis localhost:", `-redis "localhost:": want host:port`},
		{"-rungs setnx,ladder", `-rungs: no rung "ladder", only none,setnx,serialize,cluster,route`},
		{"-rungs setnx,setnx", "-rungs: setnx is there twice"},
		{"-rungs=", `-rungs: no rung ""`},
		{"-unknown", "flag provided but not defined: -unknown"},
		{"setnx", `unexpected argument "setnx"`},
	} {
		t.Run(test.args, func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			if code := run(t.Context(), strings.Fields(test.args), &stdout, &stderr); code != 2 {
				t.Errorf("exit status %d", code)
			}
			if !strings.HasPrefix(stderr.String(), "httplock: "+test.want) || strings.Count(stderr.String(), "\n") != 1 {
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
	for _, want := range []string{"-redis", "-duration", "-processes", "-clients", "-resources", "-rungs"} {
		if !strings.Contains(stdout.String(), want) {
			t.Errorf("no %s in %q", want, stdout.String())
		}
	}
	if strings.Contains(stdout.String(), "leaky") {
		t.Errorf("a hidden rung is shown: %q", stdout.String())
	}
}

func TestNoRedis(t *testing.T) {
	t.Parallel()
	var stdout, stderr bytes.Buffer
	// Port 1 of the loopback interface: nothing listens there.
	if code := run(t.Context(), []string{"-redis", "127.0.0.1:1"}, &stdout, &stderr); code != 1 {
		t.Errorf("exit status %d", code)
	}
	if !strings.Contains(stderr.String(), "FAILED: no Redis at 127.0.0.1:1") {
		t.Errorf("stderr: %q", stderr.String())
	}
}
