//go:build linux

package lab

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/internal/lab/agent"
	"github.com/holdfast-go/holdfast/internal/netns"
)

// A node is README's program on a host.
type node struct {
	t     *testing.T
	name  string
	cmd   *exec.Cmd
	in    io.WriteCloser
	out   *bufio.Scanner
	log   string // file
	ended bool
}

// start starts README's program. With cluster it has these options in the place of the zero value.
func (w *world) start(t *testing.T, h *netns.Host, cluster *agent.Addresses) *node {
	t.Helper()
	program := w.program
	if cluster != nil {
		program = w.variable
		text, err := json.Marshal(cluster)
		if err != nil {
			t.Fatal(err)
		}
		t.Setenv(agent.ClusterVariable, string(text))
	}
	n := w.launch(t, h, program)
	w.started++
	return n
}

// launch starts a program, which agent.Serve is part of, with SQLite's file as its first argument.
func (w *world) launch(t *testing.T, h *netns.Host, program string, more ...string) *node {
	t.Helper()
	args := append(append(h.In(), program, w.stock), more...)
	n := &node{t: t, name: h.Name, cmd: exec.Command(args[0], args[1:]...)}
	log, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	n.log = log.Name()
	n.cmd.Stderr = log
	// With the thread that starts it, which for a test's goroutine may end early: it is killed
	// below as well.
	n.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if n.in, err = n.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := n.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	n.out = bufio.NewScanner(out)
	n.out.Buffer(nil, 16<<20)
	if err := n.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if !n.ended {
			_ = n.cmd.Process.Kill()
			_ = n.cmd.Wait()
		}
		if t.Failed() {
			t.Logf("%s:\n%s", n.name, n.logged())
		}
	})
	return n
}

func (n *node) logged() string {
	text, err := os.ReadFile(n.log)
	if err != nil {
		n.t.Fatal(err)
	}
	return string(text)
}

// records returns the lines of the log that have a text.
func (n *node) records(text string) (lines []string) {
	for line := range strings.Lines(n.logged()) {
		if strings.Contains(line, text) {
			lines = append(lines, line)
		}
	}
	return lines
}

// ask makes the node do something. The answer can be had later.
func (n *node) ask(c agent.Command) (answer func() agent.Answer) {
	n.t.Helper()
	if c.Limit == 0 {
		c.Limit = time.Minute
	}
	text, err := json.Marshal(c)
	if err != nil {
		n.t.Fatal(err)
	}
	if _, err := n.in.Write(append(text, '\n')); err != nil {
		n.t.Fatalf("%s: %v: %s", n.name, err, n.logged())
	}
	return func() (a agent.Answer) {
		n.t.Helper()
		if !n.out.Scan() {
			n.t.Fatalf("%s has ended: %v: %s", n.name, n.out.Err(), n.logged())
		}
		if err := json.Unmarshal(n.out.Bytes(), &a); err != nil {
			n.t.Fatal(err)
		}
		return a
	}
}

// all makes nodes do something at the same time.
func all(nodes []*node, c agent.Command) (answers []agent.Answer) {
	var pending []func() agent.Answer
	for _, n := range nodes {
		n.t.Helper()
		pending = append(pending, n.ask(c))
	}
	for _, answer := range pending {
		answers = append(answers, answer())
	}
	return answers
}

// leave lets README's deferred Close run.
func (n *node) leave() {
	n.t.Helper()
	_ = n.in.Close()
	n.ended = true
	if err := n.cmd.Wait(); err != nil {
		n.t.Errorf("%s: %v: %s", n.name, err, n.logged())
	}
}

// kill ends the node as a crash does.
func (n *node) kill() {
	_ = n.cmd.Process.Kill()
	_ = n.cmd.Wait()
	n.ended = true
}

// settle waits until all nodes are settled.
func settle(t *testing.T, nodes []*node) {
	t.Helper()
	const limit = 20 * time.Second
	for i, a := range all(nodes, agent.Command{Op: "settled", Nodes: len(nodes), Limit: limit}) {
		if a.Err != "" {
			t.Fatalf("%s: %s", nodes[i].name, a.Err)
		}
		a.Nodes = slices.DeleteFunc(a.Nodes, func(o coord.NodeInfo) bool { return o.State == "dead" }) // the gossip is slower than the arbiter
		if len(a.Nodes) != len(nodes) {
			t.Errorf("%s sees %+v", nodes[i].name, a.Nodes)
		}
		for _, o := range a.Nodes {
			if !o.Self && !o.Linked {
				t.Errorf("%s has no stream to %+v", nodes[i].name, o)
			}
		}
		t.Logf("%s settled after %v, owns %d partitions", nodes[i].name, a.Took.Round(time.Millisecond), a.Owned)
	}
}

// keys are so many that each node owns some of them.
var keys = func() (all []string) {
	for i := range 24 {
		all = append(all, fmt.Sprint("key", i))
	}
	return all
}()

// work makes all nodes lock the same keys, and judges. It returns the longest wait for a lock.
func work(t *testing.T, nodes []*node, d time.Duration) (longest time.Duration, answers []agent.Answer) {
	t.Helper()
	answers = all(nodes, agent.Command{Op: "work", Keys: keys, Limit: d})
	return judge(t, nodes, answers), answers
}

// judge fails the test if two holders were in at once, tokens do not rise, or a node got nothing.
func judge(t *testing.T, nodes []*node, answers []agent.Answer) (longest time.Duration) {
	t.Helper()
	type held struct {
		agent.Hold
		node string
	}
	byKey := make(map[string][]held)
	for i, a := range answers {
		if a.Err != "" {
			t.Errorf("%s: %s", nodes[i].name, a.Err)
		}
		if len(a.Holds) == 0 {
			t.Errorf("%s got no lock", nodes[i].name)
		}
		for _, h := range a.Holds {
			byKey[h.Key] = append(byKey[h.Key], held{h, nodes[i].name})
		}
		longest = max(longest, a.Took)
	}
	for key, holds := range byKey {
		slices.SortFunc(holds, func(a, b held) int { return int(a.From - b.From) })
		for i := 1; i < len(holds); i++ {
			if a, b := holds[i-1], holds[i]; b.From < a.To || b.Fence <= a.Fence {
				t.Errorf("key %s: %+v, then %+v", key, a, b)
			}
		}
	}
	return longest
}

// inMemory fails the test if locks were granted by the arbiter since the answers before, which are
// of nodes in the same order.
func inMemory(t *testing.T, nodes []*node, before, after []agent.Answer) {
	t.Helper()
	for i := range nodes {
		if n := after[i].Paths["arbiter"] - before[i].Paths["arbiter"]; n > 0 {
			t.Errorf("%s got %d locks from the arbiter", nodes[i].name, n)
		}
		if after[i].Paths["forwarded"] == before[i].Paths["forwarded"] {
			t.Errorf("%s got no lock from another node: %v", nodes[i].name, fmt.Sprint(after[i].Paths))
		}
	}
}
