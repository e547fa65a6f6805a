package rivals

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/go-zookeeper/zk"
)

// zookeeperJar is where Debian has ZooKeeper. The jar names those that it needs.
const zookeeperJar = "/usr/share/java/zookeeper.jar"

var ZookeeperKind = &ServerKind{
	Name:   "ZooKeeper",
	Debian: "zookeeper",
	Find: func() (string, bool) {
		if _, err := os.Stat(zookeeperJar); err != nil {
			return "", false
		}
		return onPath("java")()
	},
	command: func(_ context.Context, s *Server) (*exec.Cmd, error) {
		s.Conn = "127.0.0.1:" + s.port
		text := fmt.Sprintf("tickTime=2000\ndataDir=%s\nclientPortAddress=127.0.0.1\nclientPort=%s\nmaxClientCnxns=0\n"+
			"admin.enableServer=false\n4lw.commands.whitelist=srvr\n", filepath.Join(s.dir, "data"), s.port)
		file := filepath.Join(s.dir, "zoo.cfg")
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			return nil, err
		}
		return exec.Command(s.program, "-cp", zookeeperJar, "org.apache.zookeeper.server.quorum.QuorumPeerMain", file), nil
	},
	version: func(ctx context.Context, conn string) (string, error) {
		ctx, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		var d net.Dialer
		c, err := d.DialContext(ctx, "tcp", conn)
		if err != nil {
			return "", err
		}
		defer c.Close()
		deadline, _ := ctx.Deadline()
		if err := c.SetDeadline(deadline); err != nil {
			return "", err
		}
		if _, err := io.WriteString(c, "srvr"); err != nil {
			return "", err
		}
		line, err := bufio.NewReader(c).ReadString('\n')
		version, ok := strings.CutPrefix(line, "Zookeeper version: ")
		if !ok {
			return "", errors.Join(fmt.Errorf("it answers %q", line), err)
		}
		version, _, _ = strings.Cut(version, "-")
		return "ZooKeeper " + version, nil
	},
	end: syscall.SIGKILL,
}

// zookeeperLock is zk.Lock over one connection per process.
type zookeeperLock struct {
	conn      *zk.Conn
	namespace string
}

// silent is the log of clients that return errors and need not log them.
type silent struct{}

func (silent) Printf(string, ...any) {}
func (silent) Print(...any)          {}

func openZookeeper(e Environment) (Locker, error) {
	conn, err := zookeeperConn(e)
	if err != nil {
		return nil, err
	}
	return &zookeeperLock{conn, e.Namespace}, nil
}

// zookeeperConn returns a connection that has its session.
func zookeeperConn(e Environment) (*zk.Conn, error) {
	conn, events, err := zk.Connect([]string{e.Server}, 10*time.Second, zk.WithLogger(silent{}),
		zk.WithDialer(func(network, addr string, limit time.Duration) (net.Conn, error) {
			ctx, cancel := context.WithTimeout(context.Background(), limit)
			defer cancel()
			return e.Count.Dial(ctx, network, addr)
		}))
	if err != nil {
		return nil, err
	}
	limit := time.After(10 * time.Second)
	for {
		select {
		case event := <-events:
			if event.State == zk.StateHasSession {
				return conn, nil
			}
		case <-limit:
			conn.Close()
			return nil, errors.New("zookeeper: no session")
		}
	}
}

// Section waits for its turn even if ctx ends: zk.Lock knows no other way.
func (z *zookeeperLock) Section(ctx context.Context, key string, inside func(uint64)) error {
	l := zk.NewLock(z.conn, "/"+z.namespace+"/"+strings.ReplaceAll(key, " ", "-"), zk.WorldACL(zk.PermAll))
	if err := l.Lock(); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return errors.Join(ctx.Err(), l.Unlock())
	}
	inside(0)
	return l.Unlock()
}

func (z *zookeeperLock) Close(context.Context) error {
	z.conn.Close()
	return nil
}
