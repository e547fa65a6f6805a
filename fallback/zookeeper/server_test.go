//go:build unix

package zookeeper

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/fallback/arbitertest"
	"github.com/holdfast-go/holdfast/internal/await"
	"github.com/holdfast-go/holdfast/internal/loopback"
	"github.com/holdfast-go/holdfast/internal/storetest"
)

// Debian's package has the jar here, which names those that it needs.
const jar = "/usr/share/java/zookeeper.jar"

// An ensemble is one of real servers, each with a directory of its own.
type ensemble struct {
	t       *testing.T
	members []*storetest.Process
	dirs    []string
	addrs   []string // of clients
	conns   sync.WaitGroup
}

// startEnsemble starts servers with their defaults, but for a shorter tick.
func startEnsemble(t *testing.T, members int) *ensemble {
	t.Helper()
	java, err := exec.LookPath("java")
	if err == nil {
		_, err = os.Stat(jar)
	}
	if err != nil {
		t.Skipf("ZooKeeper is not installed (apt install libzookeeper-java default-jre-headless): %v", err)
	}
	dir, err := os.MkdirTemp("", "hfzookeeper-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	e := &ensemble{t: t}
	quorum := ""
	for i := range members {
		e.dirs = append(e.dirs, filepath.Join(dir, fmt.Sprint("m", i)))
		e.addrs = append(e.addrs, loopback.Address(t))
		if members > 1 {
			peers := loopback.Address(t)
			host, port, _ := net.SplitHostPort(peers)
			_, elect, _ := net.SplitHostPort(loopback.Address(t))
			for elect == port {
				_, elect, _ = net.SplitHostPort(loopback.Address(t))
			}
			quorum += fmt.Sprintf("server.%d=%s:%s:%s\n", i+1, host, port, elect)
		}
	}
	for i, dir := range e.dirs {
		host, port, err := net.SplitHostPort(e.addrs[i])
		if err != nil {
			t.Fatal(err)
		}
		config := fmt.Sprintf(`tickTime=500
initLimit=20
syncLimit=10
dataDir=%s/data
clientPortAddress=%s
clientPort=%s
maxClientCnxns=0
admin.enableServer=false
4lw.commands.whitelist=srvr
%s`, dir, host, port, quorum)
		for _, err := range []error{
			os.MkdirAll(filepath.Join(dir, "data"), 0o700),
			os.WriteFile(filepath.Join(dir, "data", "myid"), []byte(fmt.Sprint(i+1)), 0o600),
			os.WriteFile(filepath.Join(dir, "zoo.cfg"), []byte(config), 0o600),
		} {
			if err != nil {
				t.Fatal(err)
			}
		}
		e.members = append(e.members, storetest.Start(t, dir, nil, java, "-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
			"-XX:-UsePerfData", "-cp", jar, "org.apache.zookeeper.server.quorum.QuorumPeerMain", "zoo.cfg"))
	}
	t.Cleanup(func() {
		ended := make(chan struct{})
		go func() { e.conns.Wait(); close(ended) }()
		select {
		case <-ended:
		case <-time.After(time.Minute):
			t.Error("a connection was not closed")
		}
	})
	e.leader(-1)
	return e
}

type silent struct{}

func (silent) Printf(string, ...any) {}

// dial connects to some members, or to all if none is named.
func (e *ensemble) dial(timeout time.Duration, dialer zk.Dialer, members ...int) (*zk.Conn, error) {
	addrs := e.addrs
	if len(members) > 0 {
		addrs = nil
		for _, i := range members {
			addrs = append(addrs, e.addrs[i])
		}
	}
	conn, events, err := zk.Connect(addrs, timeout, zk.WithLogger(silent{}), zk.WithLogInfo(false), zk.WithDialer(dialer))
	if err != nil {
		return nil, err
	}
	e.conns.Go(func() {
		for range events { // until the connection has ended
		}
	})
	return conn, nil
}

func (e *ensemble) connect(members ...int) func() (*zk.Conn, error) {
	return func() (*zk.Conn, error) { return e.dial(5*time.Second, net.DialTimeout, members...) }
}

// arbiterBy is one by a line.
func (e *ensemble) arbiterBy(line *storetest.Line, opts *Options) fallback.Arbiter {
	dial := line.Through(new(net.Dialer).DialContext)
	return New(func() (*zk.Conn, error) {
		return e.dial(5*time.Second, func(network, address string, timeout time.Duration) (net.Conn, error) {
			ctx, cancel := context.WithTimeout(context.Background(), timeout)
			defer cancel()
			return dial(ctx, network, address)
		})
	}, opts)
}

// unmark takes the mark away.
func (e *ensemble) unmark() {
	e.t.Helper()
	conn, err := e.connect()()
	if err != nil {
		e.t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Set("/holdfast", nil, -1); err != nil {
		e.t.Fatal(err)
	}
}

// mode returns the mode in a server's answer to srvr, empty if there is none.
func (e *ensemble) mode(i int) string {
	conn, err := net.DialTimeout("tcp", e.addrs[i], time.Second)
	if err != nil {
		return ""
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(3 * time.Second)); err != nil {
		return ""
	}
	_, _ = conn.Write([]byte("srvr"))
	text, _ := io.ReadAll(conn)
	_, mode, _ := strings.Cut(string(text), "Mode: ")
	mode, _, _ = strings.Cut(mode, "\n")
	return mode
}

// leader waits for a leader which not is not.
func (e *ensemble) leader(not int) (leader int) {
	e.t.Helper()
	await.Within(e.t, 2*time.Minute, "a leader", func() bool {
		for i := range e.addrs {
			if i == not {
				continue
			}
			if mode := e.mode(i); mode == "leader" || mode == "standalone" {
				leader = i
				return true
			}
		}
		return false
	})
	return leader
}

// killLeader is kill -9 of the leader, which comes back as a follower when another member leads.
func (e *ensemble) killLeader() {
	e.t.Helper()
	if len(e.members) == 1 {
		e.restart()
		return
	}
	i := e.leader(-1)
	e.members[i].Kill()
	e.leader(i)
	e.members[i].Begin()
}

// restart is kill -9 of all members at once.
func (e *ensemble) restart() {
	e.t.Helper()
	for _, m := range e.members {
		m.Kill()
	}
	for _, m := range e.members {
		m.Begin()
	}
	e.leader(-1)
}

// old makes the leader stand still until another member leads, and returns an arbiter that asks it
// only.
func (e *ensemble) old() (fallback.Arbiter, func()) {
	e.t.Helper()
	i := e.leader(-1)
	goOn := e.members[i].Stop()
	e.leader(i)
	return New(e.connect(i), isNew), goOn
}

// stopFollower makes a member stand still that does not lead.
func (e *ensemble) stopFollower() (heal func()) {
	e.t.Helper()
	return e.members[(e.leader(-1)+1)%len(e.members)].Stop()
}

// isNew says that namespaces are new.
var isNew = &Options{ColdStart: true}

func (e *ensemble) injuries() arbitertest.Cluster {
	x := arbitertest.Cluster{
		New:     func(*testing.T) fallback.Arbiter { return New(e.connect(), isNew) },
		Kill:    func(*testing.T) { e.killLeader() },
		Restart: func(*testing.T) { e.restart() },
		Careful: func(*testing.T) fallback.Arbiter { return New(e.connect(), nil) },
		Empty:   func(t *testing.T) { e.clear(t, "") },
		Delete:  func(t *testing.T, key string) { e.clear(t, url.PathEscape(key)) },
	}
	if len(e.members) > 1 {
		x.Old = func(*testing.T) (fallback.Arbiter, func()) { return e.old() }
		x.Cut = func(*testing.T) func() { return e.stopFollower() }
	}
	return x
}

// clear deletes the records of a name. Empty: all.
func (e *ensemble) clear(t *testing.T, name string) {
	t.Helper()
	conn, err := e.connect()()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	deleted := 0
	var walk func(path string)
	walk = func(path string) {
		children, _, err := conn.Children(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, x := range children {
			walk(path + "/" + x)
		}
		if name != "" && !strings.HasSuffix(path, "/"+name) {
			return
		}
		if err := conn.Delete(path, -1); err != nil {
			t.Fatal(err)
		}
		deleted++
	}
	if walk("/holdfast"); deleted == 0 {
		t.Fatalf("there is no record %q", name)
	}
}

// copied stops a server that is alone, copies its data, and starts it again. back puts the copy in
// their place.
func (e *ensemble) copied() (back func()) {
	e.t.Helper()
	data := filepath.Join(e.dirs[0], "data")
	run := func(args ...string) {
		e.t.Helper()
		if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
			e.t.Fatalf("%s: %v", out, err)
		}
	}
	e.members[0].Kill()
	run("cp", "-a", data, data+".old")
	e.members[0].Begin()
	e.leader(-1)
	return func() {
		e.members[0].Kill()
		run("rm", "-rf", data)
		run("cp", "-a", data+".old", data)
		e.members[0].Begin()
		e.leader(-1)
	}
}
