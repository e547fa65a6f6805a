package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback/redisarbiter"
	"github.com/holdfast-go/holdfast/gossip"
	"github.com/holdfast-go/holdfast/internal/await"
)

// asNode makes this program a node of the cluster, in a process of its own: its name, at
// HOLDFAST_URL.
const asNode = "HOLDFAST_TEST_NODE"

// nodeTakeover is the Takeover of such a node, and nodeUnwatched is set if others do not see its end.
const (
	nodeTakeover  = "HOLDFAST_TEST_TAKEOVER"
	nodeUnwatched = "HOLDFAST_TEST_UNWATCHED"
)

// serveNode is such a node. It locks a key that it owns, says so, and ends with its input.
func serveNode(name string) error {
	client := redis.NewClient(&redis.Options{Addr: os.Getenv("HOLDFAST_URL"), ContextTimeoutEnabled: true})
	defer client.Close()
	redis.SetLogger(quiet{})
	takeover, err := time.ParseDuration(os.Getenv(nodeTakeover))
	if err != nil {
		return err
	}
	c, err := coord.New(context.Background(), redisarbiter.New(client, &redisarbiter.Options{ColdStart: true}), &coord.Options{
		Name: name, SessionTTL: 30 * time.Second, Grace: 40 * time.Second, Partitions: 31, Cluster: &coord.Cluster{
			Membership: gossip.Start, Gossip: "127.0.0.1:0", Debounce: 200 * time.Millisecond, Keepalive: 500 * time.Millisecond, Takeover: takeover,
			Unwatched: os.Getenv(nodeUnwatched) != "",
		},
	})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := c.Settled(ctx, 3); err != nil {
		return err
	}
	key := name
	for i := 0; ; i++ {
		key = fmt.Sprint(name, i)
		if owner, ok := c.Owner(key); ok && owner.Self {
			break
		}
	}
	if _, err := c.Lock(coord.WithLabel(ctx, "label of "+name), key); err != nil {
		return err
	}
	fmt.Println("ready")
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

// processes starts such nodes, with more in their environment, and waits until they are ready.
func (n *namespace) processes(takeover time.Duration, environment string, names ...string) map[string]*command {
	n.t.Helper()
	nodes := make(map[string]*command)
	for _, name := range names {
		x := &command{t: n.t, cmd: exec.Command(os.Args[0])}
		x.cmd.Env = append(os.Environ(), asNode+"="+name, nodeTakeover+"="+takeover.String(), "HOLDFAST_URL="+n.server.Addr, environment)
		x.launch()
		nodes[name] = x
	}
	for _, x := range nodes {
		x.says("ready")
	}
	return nodes
}

// Real processes, which do not see each other end: one stands still, and one is killed. The command
// names each, and tells of the others.
func TestCommands_NodesThatStandStillOrAreKilled(t *testing.T) {
	n := newNamespace(t)
	nodes := n.processes(25*time.Second, nodeUnwatched+"=1", "anna", "berta", "clara")
	list := decode[coord.KeyList](n, "locks")
	if len(list.Keys) != 3 || len(list.Unanswered) > 0 {
		t.Errorf("%+v", list)
	}
	key := ""
	for _, k := range list.Keys {
		if k.Label == "label of berta" {
			key = k.Key
		}
	}
	n.diagnosis(0, "ok", "node berta", "", "")
	if err := nodes["berta"].cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	x := n.start("doctor")
	if out := x.want(1); !strings.Contains(out, "FAIL  node berta") || !strings.Contains(out, "it may stand still") || strings.Contains(out, "FAIL  node anna") {
		t.Errorf("doctor: %s", out)
	}
	top := n.start("top").want(0)
	for _, part := range []string{"label of anna", "label of clara", "NOT ASKED: berta"} {
		if !strings.Contains(top, part) {
			t.Errorf("top lacks %q: %s", part, top)
		}
	}
	info := decode[coord.KeyInfo](n, "inspect", key)
	if out := n.start("inspect", key).want(0); !info.Unknown || strings.Contains(out, "free\n") || !strings.Contains(out, "not known whether it is held") {
		t.Errorf("inspect of a key that is held, and whose owner stands still: %+v\n%s", info, out)
	}
	x = n.start("break", key, "--fence", "1", "--reason", "ticket 8123")
	if x.want(1); !strings.Contains(x.err.String(), "berta") || !strings.Contains(x.err.String(), "does not answer") {
		t.Errorf("break: %s", x.err.String())
	}
	if out := n.start("doctor").want(1); !strings.Contains(out, "WARN  locks: 1 process could not be asked") || strings.Contains(out, "OK    locks") {
		t.Errorf("doctor of locks that a node that stands still knows: %s", out)
	}
	if err := nodes["berta"].cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if err := nodes["clara"].cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	out := n.start("doctor").want(1)
	killed := fmt.Sprintf("FAIL  node clara: it (%s:%d) has a session and does not answer", hostOf(t), nodes["clara"].cmd.Process.Pid)
	for _, part := range []string{
		killed, "no process listens at its port", "-> it may have been killed, or have ended: then it is found dead (Cluster.Takeover, 25s)",
		"to clara, which does not answer: if it has ended or stands still, ",
	} {
		if !strings.Contains(out, part) {
			t.Errorf("doctor lacks %q: %s", part, out)
		}
	}
	if strings.Contains(out, "have a living owner") || strings.Count(out, "refused") > 1 {
		t.Errorf("doctor of a killed node: %s", out)
	}
}

func hostOf(t *testing.T) string {
	t.Helper()
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	return host
}

// A killed node that has been found dead is no node any more. Doctor tells of it as long as the
// others remember. Another one is drained by what nodes prints of it.
func TestDoctor_ANodeThatWasDeclaredDead(t *testing.T) {
	n := newNamespace(t)
	nodes := n.processes(5*time.Second, nodeUnwatched+"=", "anna", "berta", "clara")
	if err := nodes["clara"].cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	dead := fmt.Sprintf("WARN  node clara (%s:%d): it was declared dead ", hostOf(t), nodes["clara"].cmd.Process.Pid)
	out := ""
	t.Cleanup(func() {
		if t.Failed() {
			t.Log("doctor at last: ", out)
		}
	})
	await.Within(t, time.Minute, "doctor says that clara was declared dead", func() bool {
		_, out = n.start("doctor").ends()
		return strings.Contains(out, dead) && strings.Contains(out, "; its process had ended") && strings.Contains(out, "if you did not end it: look why it has") &&
			!strings.Contains(out, "FAIL  node clara")
	})
	anna := fmt.Sprintf("%s:%d", hostOf(t), nodes["anna"].cmd.Process.Pid)
	if out = n.start("drain", anna).want(0); out != "anna ("+anna+") owns nothing any more\n" {
		t.Errorf("drain of HOST:PID: %q", out)
	}
}
