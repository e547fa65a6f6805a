package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast/bench/harness"
	"github.com/holdfast-go/holdfast/bench/subjects"
)

func TestMain(m *testing.M) {
	harness.IfWorker() // a measurement that a test makes in this process starts this binary again for its workers
	goleak.VerifyTestMain(m)
}

func TestFlags(t *testing.T) {
	for _, test := range []struct {
		args, only string
		ok         func(cfg config) bool
	}{
		{"", "hot cold held own shared zipf forward idle http latency rows modes", func(cfg config) bool {
			return cfg.sizes == subjects.FullSizes && cfg.Pin && !cfg.report
		}},
		{"-only all", "hot cold held own shared zipf forward idle http latency rows modes growth stalls", func(cfg config) bool { return true }},
		{"-redis [::1]:6379 -only held,hot -quick -report -pin=false -profile p -place near", "held hot", func(cfg config) bool {
			return cfg.Redis == "[::1]:6379" && cfg.sizes == subjects.QuickSizes && cfg.report && !cfg.Pin && cfg.Profile == "p" && cfg.Place == harness.PlaceNear
		}},
	} {
		cfg, err := parseFlags(strings.Fields(test.args), nil)
		if err != nil || strings.Join(cfg.only, " ") != test.only || !test.ok(cfg) {
			t.Errorf("%s: %+v, %v", test.args, cfg, err)
		}
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

// A record is printed again, and its files are written.
func TestFrom(t *testing.T) {
	page := filepath.Join(t.TempDir(), "page.html")
	var stdout, stderr bytes.Buffer
	if code := run(t.Context(), []string{"-from", "../docs/figures.json", "-report", "-html", page}, &stdout, &stderr); code != 0 {
		t.Errorf("exit status %d: %s", code, stderr.String())
	}
	if text, err := os.ReadFile(page); err != nil || !strings.Contains(stdout.String(), "must hold") || len(text) == 0 {
		t.Errorf("%v: %s", err, stdout.String())
	}
	if code := run(t.Context(), []string{"-from", "../docs/figures.json", "-svg", filepath.Dir(page), "-charts", "nothing"}, &stdout, &stderr); code != 1 {
		t.Errorf("exit status %d: %s", code, stderr.String())
	}
}
