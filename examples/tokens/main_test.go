package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	// A trial that a test runs in this process starts this binary again for its workers.
	if order := os.Getenv(orderEnv); order != "" {
		os.Exit(workerMain(order))
	}
	goleak.VerifyTestMain(m)
}

// A lockedBuffer may be written to by several goroutines.
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

// climb runs the program, which must succeed, and returns the row of Holdfast's.
func climb(t *testing.T, args string) []string {
	t.Helper()
	var stdout, stderr lockedBuffer
	if code := run(t.Context(), strings.Fields(args), &stdout, &stderr); code != 0 || stderr.String() != "" {
		t.Fatalf("exit status %d\n%s\n%s", code, stdout.String(), stderr.String())
	}
	for line := range strings.Lines(stdout.String()) {
		if f := strings.Fields(line); len(f) > 5 && f[0] == "Holdfast" {
			return f[1:]
		}
	}
	t.Fatalf("no row of Holdfast's in\n%s", stdout.String())
	return nil
}

func TestOneRefreshPerExpiry(t *testing.T) {
	row := climb(t, "-rungs holdfast -processes 3 -goroutines 8 -accounts 4 -expiries 12")
	// Tokens of some accounts expire once more while others are not through with theirs.
	if n, _ := strconv.Atoi(row[0]); n < 12 || strings.Join(row[:9], " ") != fmt.Sprintf("%[1]d %[1]d %[1]d 0 0 0 0 0 0", n) {
		t.Errorf("got %v", row)
	}
}

func TestKilledProcesses(t *testing.T) {
	const inDoubt, replayed, logins = 6, 7, 8
	const args = "-rungs holdfast -processes 3 -goroutines 8 -accounts 4 -expiries 20 -chaos"
	t.Run("and a strict provider", func(t *testing.T) {
		row := climb(t, args)
		if n, _ := strconv.Atoi(row[inDoubt]); n < kills || row[replayed] != "0" || row[logins] != row[inDoubt] {
			t.Errorf("got %v", row)
		}
	})
	t.Run("and one that forgives", func(t *testing.T) {
		row := climb(t, args+" -grace")
		if row[replayed] == "0" {
			t.Errorf("got %v", row)
		}
	})
}

// Without, accounts get lost: or the example shows nothing.
func TestPlainLosesAccounts(t *testing.T) {
	var stderr lockedBuffer
	o, err := parseFlags(strings.Fields("-processes 4 -goroutines 8 -accounts 4 -expiries 16"), nil)
	if err != nil {
		t.Fatal(err)
	}
	x, err := try(t.Context(), o, rungs[0], &stderr)
	if err != nil || x.counts.Revocations == 0 || x.counts.Logins <= o.accounts {
		t.Errorf("%+v, %v\n%s", x, err, stderr.String())
	}
	x.rung.safe = true
	if err := verdict([]outcome{x}); err == nil || !strings.Contains(err.Error(), "revoked") {
		t.Errorf("the verdict: %v", err)
	}
}

func TestTheProviderRevokesOnReuse(t *testing.T) {
	now := time.Now()
	p := newProvider(false, []string{"a", "b"}, 7)
	if p.quota["a"] != 4 || p.quota["b"] != 3 {
		t.Errorf("quotas %v", p.quota)
	}
	first := p.login("a")
	second, _ := p.rotate(first.RefreshToken, now.Add(life))
	if second == nil || !p.valid(second.AccessToken) {
		t.Fatal("a good refresh token is refused")
	}
	if again, _ := p.rotate(first.RefreshToken, now.Add(life)); again != nil || p.valid(second.AccessToken) {
		t.Error("a used refresh token revokes nothing")
	}
	if third, _ := p.rotate(second.RefreshToken, now.Add(2*life)); third != nil {
		t.Error("a revoked refresh token is accepted")
	}
	p = newProvider(true, []string{"a"}, 7)
	first = p.login("a")
	p.rotate(first.RefreshToken, now.Add(life))
	second, _ = p.rotate(first.RefreshToken, now.Add(2*life))
	if second == nil {
		t.Fatal("with grace, a used refresh token is refused")
	}
	if third, _ := p.rotate(first.RefreshToken, now.Add(2*life)); third != nil || p.counts().Revocations != 1 {
		t.Error("a third use is accepted")
	}
	p.login("a")
	fresh := p.login("a")
	next, _ := p.rotate(fresh.RefreshToken, now.Add(life))
	p.rotate(next.RefreshToken, now.Add(life+tooEarly/2))
	if n := p.counts().Early; n != 1 {
		t.Errorf("%d were too early", n)
	}
}

// A trial ends when the outcome of each lost answer is known, be it of an account that has done its
// part.
func TestTheProviderWaitsForLostAnswers(t *testing.T) {
	now := time.Now()
	over := func(p *provider) bool {
		select {
		case <-p.done:
			return true
		default:
			return false
		}
	}
	p := newProvider(true, []string{"a", "b"}, 3)
	a, b := p.login("a").RefreshToken, p.login("b").RefreshToken
	refresh := func(token string) string {
		now = now.Add(life)
		next, _ := p.rotate(token, now)
		return next.RefreshToken
	}
	answered := func(token string) string {
		defer p.answered(token)
		return refresh(token)
	}
	a = answered(answered(a)) // its part
	refresh(a)
	b = answered(b)
	if over(p) {
		t.Error("over, and what a's refresh came to is not known")
	}
	answered(a) // with grace
	if !over(p) {
		t.Error("not over, although a has asked again")
	}
	refresh(b)
	p.login("b") // late: nothing to wait for

	p = newProvider(false, []string{"a"}, 1)
	refresh(p.login("a").RefreshToken)
	if over(p) {
		t.Error("over, and what the only refresh came to is not known")
	}
	p.login("a")
	if !over(p) {
		t.Error("not over, although somebody has logged in")
	}
}

func TestVerdict(t *testing.T) {
	good := outcome{rung: rungs[1], counts: counts{Requests: 5, Refreshes: 5, Reuses: 1, Replays: 1}, result: result{Calls: 1}, killed: 2, accounts: 1, doubts: 1}
	if err := verdict([]outcome{good}); err != nil {
		t.Error(err)
	}
	for want, spoil := range map[string]func(*outcome){
		"revoked":          func(o *outcome) { o.counts.Revocations = 1 },
		"used twice":       func(o *outcome) { o.counts.Reuses = 2 },
		"refreshed twice":  func(o *outcome) { o.counts.Early = 1 },
		"6 requests for 5": func(o *outcome) { o.counts.Requests = 6 },
		"but 0 doubts":     func(o *outcome) { o.doubts = 0 },
		"and 2 doubts":     func(o *outcome) { o.doubts = 2 },
		"with: ouch":       func(o *outcome) { o.result.Failed, o.result.Failure = 1, "ouch" },
		"never called":     func(o *outcome) { o.result.Calls = 0 },
	} {
		bad := good
		spoil(&bad)
		if err := verdict([]outcome{bad}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}

func TestBadFlags(t *testing.T) {
	for args, want := range map[string]string{
		"-processes 0":        "-processes 0: want 1 to 64",
		"-goroutines 2000":    "-goroutines 2000: want 1 to 1024",
		"-expiries 4":         "-expiries 4: want 5 to",
		"-rungs plain,ladder": `-rungs: no rung "ladder", only plain,holdfast`,
		"-rungs plain,plain":  "-rungs: plain is there twice",
		"-unknown":            "flag provided but not defined: -unknown",
		"plain":               `unexpected argument "plain"`,
	} {
		var stdout, stderr bytes.Buffer
		if code := run(t.Context(), strings.Fields(args), &stdout, &stderr); code != 2 || !strings.HasPrefix(stderr.String(), "tokens: "+want) {
			t.Errorf("%s: exit status %d, %q", args, code, stderr.String())
		}
	}
	var stdout, stderr bytes.Buffer
	if code := run(t.Context(), []string{"-h"}, &stdout, &stderr); code != 0 || !strings.Contains(stdout.String(), "-grace") {
		t.Errorf("-h: exit status %d, %q", code, stdout.String())
	}
}

// A process that takes another one's place may come when all is over: that is no failure.
func TestWorkersThatAreReadyWhenAllIsOver(t *testing.T) {
	_, stdin := io.Pipe()
	w := &process{stdin: stdin}
	late := &trial{workers: []*process{w}}
	late.stop()
	late.begin(w, false)
	if w.begun {
		t.Error("a worker whose stdin is closed is said to have begun")
	}

	addr, end, err := startRedis()
	if err != nil {
		t.Fatal(err)
	}
	defer end()
	started := make(chan struct{})
	close(started)
	over, cancel := context.WithCancel(t.Context())
	cancel()
	for range 20 { // which of two that are ready is taken is chance
		var out bytes.Buffer
		if err := work(over, order{Rung: "plain", Redis: addr, Accounts: []string{"a"}, Goroutines: 1}, started, &out); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(out.String(), "result") {
			t.Fatalf("a worker that was told to begin, and to end, tells %q", out.String())
		}
	}
}
