package rivals

import (
	"context"
	"errors"
	"net"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	recipe "go.etcd.io/etcd/client/v3/experimental/recipes"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/holdfast-go/holdfast/bench/harness"
	"github.com/holdfast-go/holdfast/internal/dbserver"
)

var EtcdKind = &ServerKind{
	Name:   "etcd",
	Debian: "etcd-server",
	Find:   onPath("etcd"),
	script: dbserver.Script{
		Start: `
"$1/etcd" --name bench --data-dir data --logger zap --log-level error \
  --listen-client-urls http://127.0.0.1:%[1]s --advertise-client-urls http://127.0.0.1:%[1]s --listen-peer-urls http://127.0.0.1:%[2]s \
  --initial-advertise-peer-urls http://127.0.0.1:%[2]s --initial-cluster bench=http://127.0.0.1:%[2]s >&2 &`,
		End: `kill -KILL $!`,
	},
	conn: "127.0.0.1:%[1]s",
	version: func(ctx context.Context, conn string) (string, error) {
		c, err := etcdClient(conn, new(harness.Counter))
		if err != nil {
			return "", err
		}
		defer c.Close()
		status, err := c.Status(ctx, conn)
		if err != nil {
			return "", err
		}
		if status.Leader == 0 {
			return "", errors.New("no leader yet")
		}
		return "etcd " + status.Version, nil
	},
}

func etcdClient(addr string, count *harness.Counter) (*clientv3.Client, error) {
	return clientv3.New(clientv3.Config{
		Endpoints: []string{addr}, DialTimeout: 5 * time.Second, Logger: zap.NewNop(),
		DialOptions: []grpc.DialOption{grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) {
			return count.Dial(ctx, "tcp", addr)
		})},
	})
}

// etcdSessions opens sessions of one client. shut leaves their leases to a server that ends soon.
func etcdSessions(e Environment, n int) (all []*concurrency.Session, shut func(), err error) {
	client, err := etcdClient(e.Server, e.Count)
	if err != nil {
		return nil, nil, err
	}
	for range n {
		s, err := concurrency.NewSession(client)
		if err != nil {
			return nil, nil, errors.Join(err, client.Close())
		}
		all = append(all, s)
	}
	return all, func() {
		for _, s := range all {
			s.Orphan()
		}
		_ = client.Close()
	}, nil
}

// openEtcd opens concurrency.Mutex over one client per process, as its documentation says. A mutex
// belongs to a session: goroutines that shared one would share the lock. So each that locks takes a
// session of its own.
func openEtcd(e Environment) (*Locker, error) {
	all, shut, err := etcdSessions(e, e.Goroutines)
	if err != nil {
		return nil, err
	}
	free := make(chan *concurrency.Session, len(all))
	for _, s := range all {
		free <- s
	}
	return &Locker{
		Section: func(ctx context.Context, key string, inside func(uint64)) error {
			s := <-free // there is one for each goroutine
			defer func() { free <- s }()
			m := concurrency.NewMutex(s, "/"+e.Namespace+"/"+key)
			if err := m.Lock(ctx); err != nil {
				return err
			}
			inside(0)
			return m.Unlock(context.WithoutCancel(ctx))
		},
		shut: shut,
	}, nil
}

// OpenEtcdRW opens RWMutex of etcd's experimental/recipes, in order of arrival. Each lock has a key
// of its own, so all may share a session. The recipe has no context.
func OpenEtcdRW(e Environment, key string) (*RW, error) {
	all, shut, err := etcdSessions(e, 1)
	if err != nil {
		return nil, err
	}
	prefix := "/" + e.Namespace + "/" + key
	return &RW{
		RLock: func(context.Context) (func() error, error) {
			m := recipe.NewRWMutex(all[0], prefix)
			return m.RUnlock, m.RLock()
		},
		Lock: func(context.Context) (func() error, error) {
			m := recipe.NewRWMutex(all[0], prefix)
			return m.Unlock, m.Lock()
		},
		shut: shut,
	}, nil
}
