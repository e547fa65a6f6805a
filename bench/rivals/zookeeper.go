package rivals

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/holdfast-go/holdfast/internal/dbserver"
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
	script: dbserver.Script{
		Start: `
cat >zoo.cfg <<END
tickTime=2000
dataDir=$2/data
clientPortAddress=127.0.0.1
clientPort=%[1]s
maxClientCnxns=0
admin.enableServer=false
4lw.commands.whitelist=srvr
END
"$1/java" -cp ` + zookeeperJar + ` org.apache.zookeeper.server.quorum.QuorumPeerMain zoo.cfg >&2 &`,
		End: `kill -KILL $!`,
	},
	conn: "127.0.0.1:%[1]s",
	version: func(ctx context.Context, conn string) (string, error) {
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
}

// silent is the log of a client that returns errors and need not log them.
type silent struct{}

func (silent) Printf(string, ...any) {}

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

// openZookeeper opens zk.Lock over one connection per process. A section waits for its turn even if
// ctx ends: zk.Lock knows no other way.
func openZookeeper(e Environment) (*Locker, error) {
	conn, err := zookeeperConn(e)
	if err != nil {
		return nil, err
	}
	return &Locker{
		Section: func(ctx context.Context, key string, inside func(uint64)) error {
			l := zk.NewLock(conn, "/"+e.Namespace+"/"+strings.ReplaceAll(key, " ", "-"), zk.WorldACL(zk.PermAll))
			if err := l.Lock(); err != nil {
				return err
			}
			if ctx.Err() != nil {
				return errors.Join(ctx.Err(), l.Unlock())
			}
			inside(0)
			return l.Unlock()
		},
		shut: conn.Close,
	}, nil
}

// zookeeperRW is a lock for readers and writers by ZooKeeper's recipe, as Curator has it: each
// caller makes an ephemeral node with the next number. A reader waits for the last writer before
// it, a writer for the last caller before it. Each that waits watches one node.
type zookeeperRW struct {
	conn *zk.Conn
	dir  string
}

// OpenZookeeperRW opens one, with a connection for the process.
func OpenZookeeperRW(e Environment, key string) (*RW, error) {
	conn, err := zookeeperConn(e)
	if err != nil {
		return nil, err
	}
	z := &zookeeperRW{conn, "/" + e.Namespace + "/" + key}
	for _, path := range []string{"/" + e.Namespace, z.dir} {
		if _, err := conn.Create(path, nil, 0, zk.WorldACL(zk.PermAll)); err != nil && !errors.Is(err, zk.ErrNodeExists) {
			conn.Close()
			return nil, err
		}
	}
	return &RW{
		RLock: func(ctx context.Context) (func() error, error) { return z.lock(ctx, "read-", "write-") },
		Lock:  func(ctx context.Context) (func() error, error) { return z.lock(ctx, "write-", "") },
		shut:  conn.Close,
	}, nil
}

// lock waits for nodes of a kind, "" for all.
func (z *zookeeperRW) lock(ctx context.Context, mine, others string) (unlock func() error, err error) {
	path, err := z.conn.CreateProtectedEphemeralSequential(z.dir+"/"+mine, nil, zk.WorldACL(zk.PermAll))
	if err != nil {
		return nil, err
	}
	unlock = func() error { return z.conn.Delete(path, -1) }
	for {
		before, err := z.before(path, others)
		if err == nil && before == "" {
			return unlock, nil
		}
		var gone <-chan zk.Event
		if err == nil {
			_, _, gone, err = z.conn.GetW(z.dir + "/" + before)
		}
		if errors.Is(err, zk.ErrNoNode) {
			continue
		}
		if err == nil {
			select {
			case e := <-gone:
				err = e.Err
			case <-ctx.Done():
				err = ctx.Err()
			}
		}
		if err != nil {
			return nil, errors.Join(err, unlock())
		}
	}
}

// before returns the last node before a path's that is of a kind, "" if there is none.
func (z *zookeeperRW) before(path, kind string) (node string, err error) {
	nodes, _, err := z.conn.Children(z.dir)
	if err != nil {
		return "", err
	}
	nodes = slices.DeleteFunc(nodes, func(n string) bool { return number(n) >= number(path) || !strings.Contains(n, kind) })
	if len(nodes) == 0 {
		return "", nil
	}
	return slices.MaxFunc(nodes, func(a, b string) int { return cmp.Compare(number(a), number(b)) }), nil
}

// number returns the number of a node in sequence, which has ten digits.
func number(node string) string { return node[max(0, len(node)-10):] }
