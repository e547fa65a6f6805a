package rivals

import (
	"context"
	"errors"
	"net"
	"os/exec"
	"syscall"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	recipe "go.etcd.io/etcd/client/v3/experimental/recipes"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/holdfast-go/holdfast/bench/harness"
)

var EtcdKind = &ServerKind{
	Name:   "etcd",
	Debian: "etcd-server",
	Find:   onPath("etcd"),
	command: func(_ context.Context, s *Server) (*exec.Cmd, error) {
		peers, err := freePort()
		if err != nil {
			return nil, err
		}
		s.Conn = "127.0.0.1:" + s.port
		client, peer := "http://"+s.Conn, "http://127.0.0.1:"+peers
		return exec.Command(s.program, "--name", "bench", "--data-dir", s.dir+"/data", "--logger", "zap", "--log-level", "error",
			"--listen-client-urls", client, "--advertise-client-urls", client,
			"--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", "bench="+peer), nil
	},
	version: func(ctx context.Context, conn string) (string, error) {
		c, err := etcdClient(conn, new(harness.Counter))
		if err != nil {
			return "", err
		}
		defer c.Close()
		ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
		status, err := c.Status(ctx, conn)
		if err != nil {
			return "", err
		}
		if status.Leader == 0 {
			return "", errors.New("no leader yet")
		}
		return "etcd " + status.Version, nil
	},
	end: syscall.SIGKILL,
}

func etcdClient(addr string, count *harness.Counter) (*clientv3.Client, error) {
	return clientv3.New(clientv3.Config{
		Endpoints: []string{addr}, DialTimeout: 5 * time.Second, Logger: zap.NewNop(),
		DialOptions: []grpc.DialOption{grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) {
			return count.Dial(ctx, "tcp", addr)
		})},
	})
}

// etcdLock is concurrency.Mutex over one client per process, as its documentation says. A mutex
// belongs to a session: goroutines that shared one would share the lock. So each that locks takes a
// session of its own.
type etcdLock struct {
	client    *clientv3.Client
	namespace string
	free      chan *concurrency.Session
}

func openEtcd(e Environment) (Locker, error) {
	client, err := etcdClient(e.Server, e.Count)
	if err != nil {
		return nil, err
	}
	l := &etcdLock{client, e.Namespace, make(chan *concurrency.Session, e.Goroutines)}
	for range e.Goroutines {
		s, err := concurrency.NewSession(client)
		if err != nil {
			return nil, errors.Join(err, client.Close())
		}
		l.free <- s
	}
	return l, nil
}

func (l *etcdLock) Section(ctx context.Context, key string, inside func(uint64)) error {
	s := <-l.free // there is one for each goroutine
	defer func() { l.free <- s }()
	m := concurrency.NewMutex(s, "/"+l.namespace+"/"+key)
	if err := m.Lock(ctx); err != nil {
		return err
	}
	inside(0)
	return m.Unlock(context.WithoutCancel(ctx))
}

// Close leaves the leases to a server that ends soon.
func (l *etcdLock) Close(context.Context) error {
	for range cap(l.free) {
		(<-l.free).Orphan()
	}
	return l.client.Close()
}

// EtcdRW is RWMutex of etcd's experimental/recipes, in order of arrival. Each lock has a key of its own, so all may share a session.
type EtcdRW struct {
	client  *clientv3.Client
	session *concurrency.Session
	prefix  string
}

// OpenEtcdRW opens one.
func OpenEtcdRW(e Environment, key string) (*EtcdRW, error) {
	client, err := etcdClient(e.Server, e.Count)
	if err != nil {
		return nil, err
	}
	s, err := concurrency.NewSession(client)
	if err != nil {
		return nil, errors.Join(err, client.Close())
	}
	return &EtcdRW{client, s, "/" + e.Namespace + "/" + key}, nil
}

// RLock waits for the lock for reading, and returns what unlocks it. The recipe has no context.
func (l *EtcdRW) RLock(context.Context) (unlock func() error, err error) {
	m := recipe.NewRWMutex(l.session, l.prefix)
	return m.RUnlock, m.RLock()
}

// Lock waits for the lock for writing, and returns what unlocks it.
func (l *EtcdRW) Lock(context.Context) (unlock func() error, err error) {
	m := recipe.NewRWMutex(l.session, l.prefix)
	return m.Unlock, m.Lock()
}

// Close leaves the lease to a server that ends soon.
func (l *EtcdRW) Close() error {
	l.session.Orphan()
	return l.client.Close()
}
