package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/internal/await"
)

// The environment and the end of a command. The numbers are those of consul's issues about "consul
// lock".
func TestLock_TheCommandAndItsEnd(t *testing.T) {
	n := newNamespace(t)
	n.open(&coord.Options{Name: "app"})
	for _, c := range []struct {
		name   string
		args   []string
		in     string
		status int
		out    string
		err    string
	}{
		{"its status is kept (947)", []string{"lock", "k", "--", "sh", "-c", "exit 7"}, "", 7, "", ""},
		{"success", []string{"lock", "k", "--", "true"}, "", 0, "", ""},
		{"as if the lock were lost", []string{"lock", "k", "--", "sh", "-c", "exit 124"}, "", 124, "", ""},
		{"as if the lock were another's", []string{"lock", "k", "--", "sh", "-c", "exit 75"}, "", 75, "", ""},
		{"a signal ends it", []string{"lock", "k", "--", "sh", "-c", "kill -9 $$"}, "", 128 + 9, "", ""},
		{"its arguments are its own (776, 1063)", []string{"lock", "k", "--", "printf", "%s,", "-v", "--try", "--json", "a b"}, "", 0, "-v,--try,--json,a b,", ""},
		{"flags come before the dashes", []string{"lock", "k", "--wait", "5s", "--", "printf", "%s", "--json"}, "", 0, "--json", ""},
		{"without the dashes", []string{"lock", "k", "printf", "x"}, "", 125, "", "two dashes"},
		{"its input", []string{"lock", "k", "--", "cat"}, "hello", 0, "hello", ""},
		{"its environment", []string{"lock", "a key", "--", "sh", "-c", `echo "$HOLDFAST_KEY"`}, "", 0, "a key\n", ""},
		{"there is no such command", []string{"lock", "k", "--", "/no/such/command"}, "", 127, "", "/no/such/command"},
		{"nor in the path", []string{"lock", "k", "--", "no-such-command"}, "", 127, "", "no-such-command"},
		{"it cannot be run", []string{"lock", "k", "--", "/"}, "", 126, "", "is a directory"},
		{"no command", []string{"lock", "k", "--"}, "", 125, "", "two dashes"},
		{"no URL", []string{"lock", "--url", "http://x", "k", "--", "true"}, "", 125, "", "redis+cluster://"},
		{"a secret stays one", []string{"lock", "--timeout", "300ms", "--url", "redis://:secret@127.0.0.1:1", "k", "--", "true"}, "", 125, "", "127.0.0.1:1"},
		{"nor one in the query", []string{"lock", "--timeout", "300ms", "--url", "redis+sentinel://127.0.0.1:1?master_name=m&password=secret", "k", "--", "true"}, "", 125, "", "127.0.0.1:1"},
		{"elected", []string{"elect", "e", "--", "sh", "-c", "echo $HOLDFAST_KEY; exit 3"}, "", 3, "election/e\n", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := &namespace{t: t, server: n.server, client: n.client}
			x := n.start(c.args...)
			if _, err := x.in.Write([]byte(c.in)); err != nil {
				t.Log(err)
			}
			_ = x.in.Close()
			if out := x.want(c.status); out != c.out || !strings.Contains(x.err.String(), c.err) || strings.Contains(x.err.String(), "secret") {
				t.Errorf("output %q, want %q; errors %q, want %q", out, c.out, x.err.String(), c.err)
			}
		})
	}
}

// Of commands that want a key one runs at a time, with rising tokens. --try and --wait do not wait
// for ever.
func TestLock_OneAtATime(t *testing.T) {
	n := newNamespace(t)
	n.open(&coord.Options{Name: "app"})
	first := n.start("lock", "k", "--", "sh", "-c", "echo $HOLDFAST_FENCE; cat >/dev/null")
	first.says("")
	second := n.start("lock", "k", "--", "sh", "-c", "echo $HOLDFAST_FENCE")
	n.start("lock", "--try", "k", "--", "echo", "no").want(statusNotObtained)
	if out := n.start("lock", "--wait", "300ms", "k", "--", "echo", "no").want(statusNotObtained); out != "" {
		t.Errorf("it ran: %q", out)
	}
	x := n.start("lock", "--wait", "-1s", "k", "--", "echo", "no")
	if out := x.want(statusFailed); out != "" || !strings.Contains(x.err.String(), "--wait is negative") {
		t.Errorf("%q, %s", out, x.err.String())
	}
	_ = first.in.Close()
	first.want(0)
	if fence, err := strconv.ParseUint(strings.TrimSpace(second.want(0)), 10, 64); err != nil || fence == 0 {
		t.Errorf("%v", err)
	}
}

// A signal ends the wait for a lock, and the command never runs (800, 4439). The signals that a
// shell's user sends go to the command and to its children (797, 1210, 2489, 3754, 4643).
func TestLock_Signals(t *testing.T) {
	n := newNamespace(t)
	app := n.open(&coord.Options{Name: "app"})
	l, err := app.Lock(t.Context(), "k")
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT} {
		waits := n.start("lock", "k", "--", "echo", "it runs")
		await.Until(t, "it waits", func() bool {
			info, err := app.Inspect(t.Context(), "k")
			return err == nil && len(info.Waiters) > 0
		})
		if err := waits.cmd.Process.Signal(s); err != nil {
			t.Fatal(err)
		}
		if out := waits.want(128 + int(s)); out != "" {
			t.Errorf("%v: the command ran: %q", s, out)
		}
		await.Until(t, "it waits no more", func() bool {
			info, err := app.Inspect(t.Context(), "k")
			return err == nil && len(info.Waiters) == 0
		})

		name := strings.TrimPrefix(map[syscall.Signal]string{syscall.SIGINT: "SIGINT", syscall.SIGTERM: "SIGTERM", syscall.SIGHUP: "SIGHUP",
			syscall.SIGQUIT: "SIGQUIT"}[s], "SIG")
		runs := n.start("lock", "other", "--", "sh", "-c", fmt.Sprintf("trap 'echo got %s; exit 9' %s; echo ready; while :; do sleep 1; done", name, name))
		runs.says("ready")
		if err := runs.cmd.Process.Signal(s); err != nil {
			t.Fatal(err)
		}
		runs.says("got " + name)
		runs.want(9) // the output ends with the last of the group
	}
	if err := l.Unlock(); err != nil {
		t.Error(err)
	}
}

// A signal that holdfast was started to ignore, as by nohup, ends neither the wait nor the command,
// which ignores it, too.
func TestLock_IgnoredSignals(t *testing.T) {
	n := newNamespace(t)
	app := n.open(&coord.Options{Name: "app"})
	// The last is the case of "&".
	for name, s := range map[string]syscall.Signal{"HUP": syscall.SIGHUP, "INT": syscall.SIGINT, "INT QUIT": syscall.SIGQUIT} {
		l, err := app.Lock(t.Context(), "k")
		if err != nil {
			t.Fatal(err)
		}
		x := n.script(`trap "" ` + name + `; exec "$HOLDFAST" lock k -- sh -c 'trap "echo hears" USR1; echo ready; while :; do sleep 0.1; done'`)
		await.Until(t, "it waits", func() bool {
			info, err := app.Inspect(t.Context(), "k")
			return err == nil && len(info.Waiters) > 0
		})
		kill := func(s syscall.Signal) {
			t.Helper()
			if err := x.cmd.Process.Signal(s); err != nil {
				t.Fatal(err)
			}
		}
		kill(s)
		if err := l.Unlock(); err != nil {
			t.Fatal(err)
		}
		x.says("ready")
		kill(s)
		kill(syscall.SIGUSR1) // is delivered after it
		x.says("hears")
		kill(syscall.SIGTERM)
		x.want(128 + int(syscall.SIGTERM))
	}
}

// A command is not run under a lock that was lost before, such as while Ctrl-Z had stopped
// holdfast.
func TestExecution_LostBeforeItRuns(t *testing.T) {
	x := &execution{waits: t.Context()}
	x.heed()
	defer func() { x.takeOver() }()
	file := filepath.Join(t.TempDir(), "it ran")
	over, end := context.WithCancelCause(t.Context())
	end(coord.ErrLost)
	lost, err := x.run(until{over}, nil, []string{"touch", file})
	failed, ok := errors.AsType[*statusError](err)
	if !lost || !ok || failed.status != statusLost {
		t.Errorf("lost: %v, %v", lost, err)
	}
	if _, err := os.Stat(file); err == nil {
		t.Error("the command ran")
	}
}

// until is a lock that is lost when a context ends.
type until struct{ ctx context.Context }

func (u until) Context() context.Context { return u.ctx }

// A lock that is lost ends the command and its children (2022, 9788), also one that is stopped or
// heeds no SIGTERM.
func TestLock_ALostLockEndsTheCommand(t *testing.T) {
	n := newNamespace(t)
	n.open(&coord.Options{Name: "app"})
	for name, script := range map[string]string{
		"with a child": "sleep 100 & echo ready; wait", "deaf": "trap '' TERM; sleep 100 & echo ready; while :; do wait; done", "stopped": "echo ready; kill -STOP $$",
	} {
		x := n.start("lock", name, "--", "sh", "-c", script)
		x.says("ready")
		n.remove(name)
		x.want(statusLost)
		if !strings.Contains(x.err.String(), "lost") {
			t.Errorf("%s: %s", name, x.err.String())
		}
	}
}

// When the arbiter is away for long, the command is ended before another one can run.
func TestLock_TheArbiterGoes(t *testing.T) {
	n := newNamespace(t)
	n.open(&coord.Options{Name: "app"})
	x := n.start("lock", "k", "--", "sh", "-c", "echo ready; sleep 100")
	x.says("ready")
	n.server.Kill()
	x.want(statusLost)
}

// A holdfast that is killed takes its command with it. Its lock is free when its session has
// expired, and not before.
func TestLock_KilledWithItsCommand(t *testing.T) {
	n := newNamespace(t)
	n.open(&coord.Options{Name: "app"})
	x := n.start("lock", "k", "--", "sh", "-c", "echo ready; exec sleep 100")
	x.says("ready")
	if err := x.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	x.want(-1) // the output has ended, so the command has
	if out := n.start("lock", "--wait", "20s", "k", "--", "echo", "free").want(0); out != "free\n" {
		t.Errorf("%q", out)
	}
}

// A holdfast that stands still has its lock taken. When it goes on, it ends the command at once.
func TestLock_Stopped(t *testing.T) {
	n := newNamespace(t)
	n.open(&coord.Options{Name: "app"})
	x := n.start("lock", "k", "--", "sh", "-c", "echo $HOLDFAST_FENCE >&2; echo ready; sleep 100")
	x.says("ready")
	if err := x.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	later := strings.TrimSpace(n.start("lock", "--wait", "20s", "k", "--", "sh", "-c", "echo $HOLDFAST_FENCE").want(0))
	if err := x.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	x.want(statusLost)
	if took := time.Since(begun); took > 10*time.Second {
		t.Errorf("it took %v", took)
	}
	earlier, _, _ := strings.Cut(x.err.String(), "\n")
	a, err := strconv.ParseUint(earlier, 10, 64)
	b, other := strconv.ParseUint(later, 10, 64)
	if err != nil || other != nil || a >= b {
		t.Errorf("tokens %q and %q", earlier, later)
	}
}

// A leader that ends hands over, and one that has lost its term campaigns again.
func TestElect_HandsOver(t *testing.T) {
	n := newNamespace(t)
	n.open(&coord.Options{Name: "app"})
	first := n.start("elect", "e", "--", "sh", "-c", "echo leads; cat >/dev/null")
	first.says("leads")
	second := n.start("elect", "e", "--", "sh", "-c", "echo leads; sleep 100")
	_ = first.in.Close()
	first.want(0)
	second.says("leads")
	if err := second.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	second.want(128 + int(syscall.SIGTERM))
}

// A command that ends with the status of a lost lock has ended by itself: so has the term, and the
// next candidate leads.
func TestElect_ACommandEndsLikeALostLock(t *testing.T) {
	n := newNamespace(t)
	n.open(&coord.Options{Name: "app"})
	first := n.start("elect", "e", "--", "sh", "-c", fmt.Sprintf("echo leads; cat >/dev/null; exit %d", statusLost))
	first.says("leads")
	second := n.start("elect", "e", "--", "sh", "-c", "echo leads")
	_ = first.in.Close()
	if out := first.want(statusLost); strings.Contains(out, "leads") || first.err.Len() > 0 {
		t.Errorf("output %q, errors %q", out, first.err.String())
	}
	second.says("leads")
	second.want(0)
}

// A signal while a command runs is the command's: a leader that has lived through one campaigns
// again when it loses its term.
func TestElect_ASignalIsTheCommands(t *testing.T) {
	n := newNamespace(t)
	n.open(&coord.Options{Name: "app"})
	x := n.start("elect", "e", "--", "sh", "-c", "trap 'echo hears' HUP; echo leads; while :; do sleep 0.1; done")
	x.says("leads")
	if err := x.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	x.says("hears")
	n.remove("election/e")
	x.says("leads")
	if err := x.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	x.want(128 + int(syscall.SIGTERM))
}

// A signal that asks the command to end is not lost with the term: nothing is run anew after it.
func TestElect_ASignalToEndOutlivesTheTerm(t *testing.T) {
	n := newNamespace(t)
	n.open(&coord.Options{Name: "app"})
	for _, s := range []syscall.Signal{syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM} {
		x := n.start("elect", "e", "--", "sh", "-c",
			fmt.Sprintf("trap 'echo hears' %d; echo leads; while :; do sleep 0.1; done", s))
		x.says("leads")
		if err := x.cmd.Process.Signal(s); err != nil {
			t.Fatal(err)
		}
		x.says("hears")
		n.remove("election/e")
		if out := x.want(128 + int(s)); strings.Contains(out, "leads") || !strings.Contains(x.err.String(), "lost") {
			t.Errorf("%v: output %q, errors %q", s, out, x.err.String())
		}
	}
}

// A signal that came as the command ended counts, too. HUP does not: commands live through it.
func TestElect_ASignalAtTheCommandsEnd(t *testing.T) {
	for want, came := range map[syscall.Signal][]os.Signal{
		0: {syscall.SIGHUP, syscall.SIGCONT}, syscall.SIGTERM: {syscall.SIGHUP, syscall.SIGTERM, syscall.SIGINT},
	} {
		x := &execution{signals: make(chan os.Signal, len(came))}
		for _, s := range came {
			x.signals <- s
		}
		x.handBack()
		x.takeOver()
		if got := x.asked; got != want || len(x.signals) > 0 {
			t.Errorf("%v: got %d, want %d; %d are left for the next command", came, got, want, len(x.signals))
		}
	}
}

// remove removes the rows of a key, as when data are lost: its lock is superseded.
func (n *namespace) remove(key string) {
	n.t.Helper()
	parts, err := n.client.Keys(n.t.Context(), "{holdfast:p*}").Result()
	if err != nil {
		n.t.Fatal(err)
	}
	for _, p := range parts {
		if err := n.client.HDel(n.t.Context(), p, "r:"+key).Err(); err != nil {
			n.t.Fatal(err)
		}
	}
}

// A command excludes the callers of a cluster, whose nodes own the key's partition, and they it.
func TestLock_BesideACluster(t *testing.T) {
	n := newNamespace(t)
	anna, berta := n.node("anna"), n.node("berta")
	settled(t, anna, berta)
	key := keyOf(t, anna)
	l, err := berta.Lock(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	n.start("lock", "--wait", "1s", key, "--", "echo", "no").want(statusNotObtained)
	waits := n.start("lock", key, "--", "sh", "-c", "echo $HOLDFAST_FENCE; cat >/dev/null")
	await.Until(t, "it waits", func() bool {
		info, err := anna.Inspect(t.Context(), key)
		return err == nil && len(info.Waiters) > 0
	})
	if err := l.Unlock(); err != nil {
		t.Fatal(err)
	}
	fence, err := strconv.ParseUint(waits.line(), 10, 64)
	if err != nil || fence <= uint64(l.Fence()) {
		t.Errorf("token %d after %v, %v", fence, l.Fence(), err)
	}
	for _, c := range []*coord.Coordinator{anna, berta} {
		if _, err := c.TryLock(t.Context(), key); !errors.Is(err, coord.ErrLocked) && !errors.Is(err, coord.ErrUnavailable) {
			t.Errorf("a node got the key as well: %v", err)
		}
	}
	_ = waits.in.Close()
	waits.want(0)
	again, err := anna.Lock(t.Context(), key)
	if err != nil || uint64(again.Fence()) <= fence {
		t.Fatalf("token %v after %d, %v", again.Fence(), fence, err)
	}
	if err := again.Unlock(); err != nil {
		t.Error(err)
	}
}

// Of a semaphore's commands n run at a time, and readers run beside each other, but not beside a
// command with the lock.
func TestLock_PermitsAndReaders(t *testing.T) {
	n := newNamespace(t)
	n.open(&coord.Options{Name: "app"})
	const script = "echo $HOLDFAST_KEY; cat >/dev/null"
	for _, flags := range [][]string{{"-n", "2"}, {"--read"}} {
		var both []*command
		for range 2 {
			x := n.start(append(append([]string{"lock", "k"}, flags...), "--", "sh", "-c", script)...)
			x.says("k")
			both = append(both, x)
		}
		third := append(append([]string{"lock", "k", "--try"}, flags...), "--", "echo", "third")
		if flags[0] == "--read" {
			n.start("lock", "k", "--try", "--", "echo", "no").want(statusNotObtained)
			if out := n.start(third...).want(0); out != "third\n" {
				t.Errorf("a third reader: %q", out)
			}
		} else {
			n.start(third...).want(statusNotObtained)
			if out := n.start("lock", "k", "--", "echo", "a lock is another thing").want(0); out == "" {
				t.Error("no output")
			}
		}
		_ = both[0].in.Close()
		both[0].want(0)
		if flags[0] == "-n" {
			if out := n.start(append([]string{"lock", "k", "--wait", "20s"}, third[3:]...)...).want(0); out != "third\n" {
				t.Errorf("a permit that was released: %q", out)
			}
		}
		_ = both[1].in.Close()
		both[1].want(0)
	}
	n.start("lock", "k", "-n", "2", "--read", "--", "true").want(1)
	n.start("lock", "k", "-n", "-2", "--", "true").want(statusFailed)
}
