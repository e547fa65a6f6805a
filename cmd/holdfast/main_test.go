package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback/redisarbiter"
	"github.com/holdfast-go/holdfast/gossip"
	"github.com/holdfast-go/holdfast/internal/redistest"
)

// asCommand makes this program the command, in a process of its own.
const asCommand = "HOLDFAST_TEST_COMMAND"

func TestMain(m *testing.M) {
	if os.Getenv(asCommand) != "" {
		os.Exit(run(os.Args[1:]))
	}
	if name := os.Getenv(asNode); name != "" {
		if err := serveNode(name); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	for _, s := range []os.Signal{syscall.SIGHUP, syscall.SIGINT} {
		if signal.Ignored(s) { // so that the programs that tests start do not ignore it
			signal.Notify(make(chan os.Signal, 1), s)
		}
	}
	redis.SetLogger(quiet{})
	goleak.VerifyTestMain(m)
}

// namespace is one at a real Redis server.
type namespace struct {
	t      *testing.T
	server *redistest.Server
	client *redis.Client
}

func newNamespace(t *testing.T) *namespace {
	t.Helper()
	n := &namespace{t: t, server: redistest.Start(t)}
	n.client = redis.NewClient(&redis.Options{Addr: n.server.Addr, ContextTimeoutEnabled: true})
	t.Cleanup(func() { _ = n.client.Close() })
	return n
}

// open starts a process of the application in this one. Its options are filled in.
func (n *namespace) open(o *coord.Options) *coord.Coordinator {
	n.t.Helper()
	o.SessionTTL, o.Grace, o.Partitions = 3*time.Second, 4*time.Second, 31
	c, err := coord.New(n.t.Context(), redisarbiter.New(n.client, &redisarbiter.Options{ColdStart: true}), o)
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
		defer cancel()
		_ = c.Close(ctx)
	})
	return c
}

// node is open with a cluster.
func (n *namespace) node(name string) *coord.Coordinator {
	n.t.Helper()
	return n.open(&coord.Options{Name: name, Cluster: &coord.Cluster{
		Membership: gossip.Start, Gossip: "127.0.0.1:0", Debounce: 200 * time.Millisecond, Keepalive: 400 * time.Millisecond, // a busy machine
	}})
}

// settled waits until nodes share the partitions.
func settled(t *testing.T, nodes ...*coord.Coordinator) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute) // a busy machine
	defer cancel()
	for _, c := range nodes {
		if err := c.Settled(ctx, len(nodes)); err != nil {
			t.Fatal(err)
		}
	}
}

// command is a running command.
type command struct {
	t   *testing.T
	cmd *exec.Cmd
	in  io.WriteCloser
	out io.ReadCloser // ends when the last process has that holds it
	err output
}

// output is the text that a process has written so far.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(b)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

func (o *output) Len() int { return len(o.String()) }

func (n *namespace) start(args ...string) *command {
	n.t.Helper()
	return n.program(os.Args[0], args...)
}

// script runs a script, in which $HOLDFAST is the command.
func (n *namespace) script(text string) *command {
	n.t.Helper()
	return n.program("sh", "-c", text)
}

func (n *namespace) program(name string, args ...string) *command {
	n.t.Helper()
	x := &command{t: n.t, cmd: exec.Command(name, args...)}
	x.cmd.Env = append(os.Environ(), asCommand+"=1", "HOLDFAST_URL=redis://"+n.server.Addr, "HOLDFAST_NAME=op", "GORACE=exitcode=66",
		"HOLDFAST="+os.Args[0])
	x.launch()
	return x
}

// launch starts the process. It is killed when the test ends.
func (x *command) launch() {
	x.t.Helper()
	x.cmd.Stderr = &x.err
	var err error
	if x.in, err = x.cmd.StdinPipe(); err == nil {
		// Not StdoutPipe, which Wait closes.
		var w *os.File
		var r *os.File
		if r, w, err = os.Pipe(); err == nil {
			x.out, x.cmd.Stdout = r, w
			err = x.cmd.Start()
			_ = w.Close()
		}
	}
	if err != nil {
		x.t.Fatal(err)
	}
	x.t.Cleanup(func() {
		_ = x.cmd.Process.Kill()
		_ = x.cmd.Wait()
		_ = x.out.Close()
	})
}

// says waits for a line of the command's output.
func (x *command) says(line string) {
	x.t.Helper()
	var got []byte
	b := make([]byte, 1)
	_ = x.out.(*os.File).SetReadDeadline(time.Now().Add(time.Minute))
	for !strings.Contains(string(got), line+"\n") {
		if _, err := x.out.Read(b); err != nil {
			x.t.Fatalf("it says %q, then %v, want %q; %s", got, err, line, x.err.String())
		}
		got = append(got, b...)
	}
}

// ends waits for the end of the command, and returns its status and the rest of its output.
func (x *command) ends() (status int, out string) {
	x.t.Helper()
	_ = x.out.(*os.File).SetReadDeadline(time.Now().Add(time.Minute))
	text, err := io.ReadAll(x.out)
	if err != nil {
		x.t.Fatalf("its output does not end: %v, after %q; %s", err, text, x.err.String())
	}
	err = x.cmd.Wait()
	if _, ok := errors.AsType[*exec.ExitError](err); err != nil && !ok {
		x.t.Fatal(err)
	}
	return x.cmd.ProcessState.ExitCode(), string(text)
}

// want checks the end of the command, and returns its output.
func (x *command) want(status int) string {
	x.t.Helper()
	got, out := x.ends()
	if got != status {
		x.t.Errorf("%v: status %d, want %d; %s", x.cmd.Args[1:], got, status, x.err.String())
	}
	return out
}

// decode runs a command with --json.
func decode[T any](n *namespace, args ...string) (v T) {
	n.t.Helper()
	out := n.start(append(args, "--json")...).want(0)
	if err := json.Unmarshal([]byte(out), &v); err != nil {
		n.t.Errorf("%v: %v: %s", args, err, out)
	}
	return v
}

// line returns the next line of the command's output.
func (x *command) line() string {
	x.t.Helper()
	var got []byte
	b := make([]byte, 1)
	_ = x.out.(*os.File).SetReadDeadline(time.Now().Add(time.Minute))
	for {
		if _, err := x.out.Read(b); err != nil {
			x.t.Fatalf("it says %q, then %v; %s", got, err, x.err.String())
		}
		if b[0] == '\n' {
			return string(got)
		}
		got = append(got, b[0])
	}
}

// Help does not print values of the environment: they may be passwords.
func TestHelp_KeepsSecrets(t *testing.T) {
	t.Setenv("HOLDFAST_URL", "redis://:secret@redis:6379")
	root := newRoot()
	var out strings.Builder
	root.SetOut(&out)
	root.SetArgs([]string{"top", "--help"})
	if err := root.Execute(); err != nil || !strings.Contains(out.String(), defaultURL) || strings.Contains(out.String(), "secret") {
		t.Errorf("%v\n%s", err, out.String())
	}
}
