package main

import (
	"bytes"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// mainEnv has this binary run the example instead of tests.
const mainEnv = "HOLDFAST_INVENTORY_MAIN"

func TestMain(m *testing.M) {
	// A sale that a test runs in this process starts this binary again for its workers.
	if order := os.Getenv(orderEnv); order != "" {
		os.Exit(workerMain(order))
	}
	if os.Getenv(mainEnv) != "" {
		main()
	}
	goleak.VerifyTestMain(m)
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
	if got := strings.Join(names, " "); !strings.HasPrefix(got, "setnx contender handover ring") {
		t.Errorf("rungs: %s", got)
	}
	// A little for starting and closing on top, and the default run stays below half a minute.
	if total := cfg.duration * time.Duration(len(cfg.rungs)); total > 25*time.Second {
		t.Errorf("the sales take %v", total)
	}
}

func TestFlags(t *testing.T) {
	cfg, err := parseFlags(strings.Fields("-redis [::1]:6379 -duration 100ms -processes 64 -goroutines 1 "+
		"-skus 1000 -stock 1 -rungs handover,setnx -chaos"), nil)
	if err != nil {
		t.Fatal(err)
	}
	if cfg.redis != "[::1]:6379" || cfg.duration != 100*time.Millisecond || cfg.processes != 64 ||
		cfg.goroutines != 1 || cfg.skus != 1000 || cfg.stock != 1 ||
		len(cfg.rungs) != 2 || cfg.rungs[0].name != "handover" || !cfg.chaos {
		t.Errorf("%+v", cfg)
	}
}

func TestBadFlags(t *testing.T) {
	for _, test := range []struct{ args, want string }{
		{"-processes 0", "-processes 0: want 1 to 64"},
		{"-processes 65", "-processes 65: want 1 to 64"},
		{"-processes four", `invalid value "four" for flag -processes`},
		{"-goroutines -1", "-goroutines -1: want 1 to 1024"},
		{"-skus 0", "-skus 0: want 1 to 1000"},
		{"-stock 0", "-stock 0: want 1 to"},
		{"-duration 99ms", "-duration 99ms: want 100ms to 1h"},
		{"-duration 2h", "-duration 2h0m0s: want 100ms to 1h"},
		{"-duration 5", "invalid value"},
		{"-redis localhost", `-redis "localhost": want host:port`},
		{"-redis localhost:", `-redis "localhost:": want host:port`},
		{"-rungs setnx,ladder", `-rungs: no rung "ladder", only setnx,contender,handover,ring`},
		{"-rungs setnx,setnx", "-rungs: setnx is there twice"},
		{"-rungs=", `-rungs: no rung ""`},
		{"-arbiter memory", `-arbiter "memory": want redis, postgres, mysql, sqlite, etcd, zookeeper or quorum`},
		{"-unknown", "flag provided but not defined: -unknown"},
		{"setnx", `unexpected argument "setnx"`},
	} {
		t.Run(test.args, func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			if code := run(t.Context(), strings.Fields(test.args), &stdout, &stderr); code != 2 {
				t.Errorf("exit status %d", code)
			}
			if !strings.HasPrefix(stderr.String(), "inventory: "+test.want) || strings.Count(stderr.String(), "\n") != 1 {
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
	for _, want := range []string{"-redis", "-duration", "-processes", "-goroutines", "-skus", "-stock", "-rungs", "-chaos"} {
		if !strings.Contains(stdout.String(), want) {
			t.Errorf("no %s in %q", want, stdout.String())
		}
	}
	if strings.Contains(stdout.String(), "none") {
		t.Errorf("a hidden rung is shown: %q", stdout.String())
	}
}

func TestNoRedis(t *testing.T) {
	var stdout, stderr bytes.Buffer
	// Port 1 of the loopback interface: nothing listens there.
	if code := run(t.Context(), []string{"-redis", "127.0.0.1:1"}, &stdout, &stderr); code != 1 {
		t.Errorf("exit status %d", code)
	}
	if !strings.Contains(stderr.String(), "FAILED: no Redis at 127.0.0.1:1") {
		t.Errorf("stderr: %q", stderr.String())
	}
}
