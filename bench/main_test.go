package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast/bench/harness"
	"github.com/holdfast-go/holdfast/bench/report"
	"github.com/holdfast-go/holdfast/bench/subjects"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/reexec"
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
		{"", "hot cold held own shared zipf forward idle http latency modes", func(cfg config) bool {
			return cfg.sizes == subjects.FullSizes && cfg.Pin && !cfg.report
		}},
		{"-only all", "hot cold held own shared zipf forward idle http latency modes stalls", func(cfg config) bool { return true }},
		{"-redis [::1]:6379 -only held,hot -quick -report -pin=false -place near", "held hot", func(cfg config) bool {
			return cfg.Redis == "[::1]:6379" && cfg.sizes == subjects.QuickSizes && cfg.report && !cfg.Pin && cfg.Place == harness.PlaceNear
		}},
	} {
		cfg, err := parseFlags(strings.Fields(test.args), nil)
		if err != nil || strings.Join(cfg.only, " ") != test.only || !test.ok(cfg) {
			t.Errorf("%s: %+v, %v", test.args, cfg, err)
		}
	}
}

// An error in the command line is one line on stderr.
func TestBadFlags(t *testing.T) {
	for _, test := range []struct {
		args, want string
		code       int
	}{
		{"-redis localhost", `-redis "localhost": want host:port`, 2},
		{"-redis localhost:", `-redis "localhost:": want host:port`, 2},
		{"-only hot,warm", `-only: no subject "warm", only hot,cold,held`, 2},
		{"-only hot,hot", "-only: hot is there twice", 2},
		{"-only=", `-only: no subject ""`, 2},
		{"-rivals some", `-rivals "some": want fast or all`, 2},
		{"-quick=maybe", "invalid boolean value", 2},
		{"-unknown", "flag provided but not defined: -unknown", 2},
		{"hot", `unexpected argument "hot"`, 2},
		{"-redis 127.0.0.1:1", "FAILED: no Redis at 127.0.0.1:1", 1}, // nothing listens there
	} {
		t.Run(test.args, func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			if code := run(t.Context(), strings.Fields(test.args), &stdout, &stderr); code != test.code {
				t.Errorf("exit status %d", code)
			}
			if !strings.HasPrefix(stderr.String(), "bench: "+test.want) || test.code == 2 && strings.Count(stderr.String(), "\n") != 1 {
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
	if code := run(t.Context(), []string{"-h"}, &stdout, &stderr); code != 0 || stderr.Len() > 0 || !strings.Contains(stdout.String(), "-quick") {
		t.Errorf("exit status %d, stderr %q, stdout %q", code, stderr.String(), stdout.String())
	}
}

// A record is printed again, and its files are written.
func TestFrom(t *testing.T) {
	dir := t.TempDir()
	var stdout, stderr bytes.Buffer
	args := []string{"-from", "../docs/figures.json", "-report", "-svg", dir}
	if code := run(t.Context(), args, &stdout, &stderr); code != 0 || !strings.Contains(stdout.String(), "must hold") {
		t.Errorf("exit status %d: %s%s", code, stdout.String(), stderr.String())
	}
	for _, name := range []string{"ladder", "zipf-rates"} {
		if _, err := os.Stat(filepath.Join(dir, name+".svg")); err != nil {
			t.Error(err)
		}
	}
	if code := run(t.Context(), append(args, "-charts", "nothing"), &stdout, &stderr); code != 1 {
		t.Errorf("exit status %d: %s", code, stderr.String())
	}
}

// The whole command, on a server that was there before. Nothing must remain on it.
func TestWholeRun(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	var stdout, stderr reexec.Buffer
	cfg := config{
		Settings: harness.Settings{Redis: server.Addr, Debounce: 200 * time.Millisecond}, report: true, only: []string{"hot", "held", "cold"},
		sizes: subjects.Sizes{
			Hot:  subjects.Crowd{Processes: 2, Goroutines: 3, Rounds: 2, Round: 150 * time.Millisecond},
			Cold: subjects.ColdSizes{Blocks: 2, Calls: 10},
			Held: subjects.HeldSizes{Locks: 300, Periods: 1, Partitions: 31, SessionTTL: 5 * time.Second},
		},
	}
	if code := measure(t.Context(), cfg, &stdout, &stderr); code != 0 || stderr.String() != "" {
		t.Errorf("exit status %d, stderr %q", code, stderr.String())
	}
	out := stdout.String()
	at := 0
	for _, want := range []string{"redis-server ", "HOT:", "must hold", "COLD:", "nothing is pinned", "HELD:", "must hold"} {
		i := strings.Index(out[at:], want)
		if i < 0 {
			t.Fatalf("no %q, or not in this order:\n%s", want, out)
		}
		at += i
	}
	if !strings.Contains(out, "Everything holds.") && !strings.Contains(out, "Does not hold:") {
		t.Errorf("no verdict:\n%s", out)
	}
	keys, err := server.Client(t).Keys(t.Context(), "*").Result()
	if err != nil || len(keys) > 0 {
		t.Errorf("left %q, %v", keys, err)
	}
}

// fake measures subjects that find a value, which is to be at most 2, or nothing.
func fake(t *testing.T, cfg config, found map[string]float64) (code int, stdout, stderr string) {
	saved := everySubject
	defer func() { everySubject = saved }()
	everySubject = nil
	for _, name := range cfg.only {
		everySubject = append(everySubject, subjects.Subject{Name: name, Measure: func(context.Context, *subjects.Run) (report.Result, error) {
			got, ok := found[name]
			if !ok {
				return report.Result{}, errors.New("it failed")
			}
			return report.Result{Title: name, Table: [][]string{{"a"}}, Claims: []report.Claim{report.AtMost(2, got, "a fake")}}, nil
		}})
	}
	cfg.Redis = redistest.Start(t).Addr
	var out, errs reexec.Buffer
	code = measure(t.Context(), cfg, &out, &errs)
	return code, out.String(), errs.String()
}

// A claim that does not hold makes the command fail, unless it is only to report, or to measure
// little.
func TestExitStatus(t *testing.T) {
	for _, test := range []struct {
		got    float64
		report bool
		quick  bool
		code   int
		text   string
	}{
		{1, false, false, 0, "Everything holds."},
		{3, false, false, 1, "Does not hold:\n  fake: a fake"},
		{3, true, false, 0, "Does not hold:\n  fake: a fake"},
		{3, false, true, 0, "Does not hold:\n  fake: a fake"},
	} {
		code, stdout, stderr := fake(t, config{only: []string{"fake"}, report: test.report, quick: test.quick}, map[string]float64{"fake": test.got})
		if code != test.code || !strings.Contains(stdout, test.text) {
			t.Errorf("%+v: exit status %d:\n%s%s", test, code, stdout, stderr)
		}
	}
}

// If a subject fails, the earlier results are kept, and the other subjects are measured.
func TestRecordOfAFailedRun(t *testing.T) {
	file := filepath.Join(t.TempDir(), "r.json")
	code, _, stderr := fake(t, config{only: []string{"good", "bad", "late"}, Outputs: report.Outputs{JSON: file}}, map[string]float64{"good": 1, "late": 1})
	if code != 1 || !strings.Contains(stderr, "bad: it failed") {
		t.Errorf("exit status %d, stderr %q", code, stderr)
	}
	r, err := report.ReadRecord(file)
	if err != nil || len(r.Subjects) != 2 || r.Subjects[0].Name != "good" || r.Subjects[1].Name != "late" || r.Machine.Cores < 1 || r.Machine.Go == "" ||
		len(r.Machine.Servers) != 1 || r.Date.IsZero() {
		t.Errorf("%+v, %v", r, err)
	}
}
