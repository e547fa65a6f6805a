package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	driver "github.com/go-sql-driver/mysql"
	"github.com/go-zookeeper/zk"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/fallback/etcd"
	"github.com/holdfast-go/holdfast/fallback/mysql"
	pgarbiter "github.com/holdfast-go/holdfast/fallback/postgres"
	"github.com/holdfast-go/holdfast/fallback/redisarbiter"
	"github.com/holdfast-go/holdfast/fallback/redisquorum"
	"github.com/holdfast-go/holdfast/fallback/sqlite"
	"github.com/holdfast-go/holdfast/fallback/zookeeper"
	"github.com/holdfast-go/holdfast/internal/dbserver"
)

// An arbiterStore is a value of -arbiter: the store under Holdfast's rungs.
type arbiterStore struct {
	name string

	// start starts a store of the run's own. It returns where it is. nil: the run has it already.
	start func(ctx context.Context) (at []string, stop func() error, err error)

	// open returns a worker's arbiter, and a function that closes its client, or nil. The namespace
	// is new in each run, so there is nothing that a store could have lost.
	open func(client redis.UniversalClient, o order) (fallback.Arbiter, func() error, error)
}

var arbiterStores = []arbiterStore{
	{"redis", nil, func(client redis.UniversalClient, _ order) (fallback.Arbiter, func() error, error) {
		return redisarbiter.New(client, &redisarbiter.Options{ColdStart: true}), nil, nil
	}},
	{"postgres", nil, func(_ redis.UniversalClient, o order) (fallback.Arbiter, func() error, error) {
		config, err := pgxpool.ParseConfig(o.Place.Postgres)
		if err != nil {
			return nil, nil, err
		}
		return pgarbiter.New(config, &pgarbiter.Options{Table: o.Place.Schema + ".holdfast", Conns: arbiterConns - 3, ColdStart: true}), nil, nil
	}},
	{"mysql", startMariaDB, func(_ redis.UniversalClient, o order) (fallback.Arbiter, func() error, error) {
		return mysql.New(mariaDB(o.Store[0], "test"), &mysql.Options{ColdStart: true}), nil, nil
	}},
	{"sqlite", startFile, func(_ redis.UniversalClient, o order) (fallback.Arbiter, func() error, error) {
		return sqlite.New(o.Store[0], &sqlite.Options{ColdStart: true}), nil, nil
	}},
	{"etcd", startEtcd, func(_ redis.UniversalClient, o order) (fallback.Arbiter, func() error, error) {
		client, err := clientv3.New(clientv3.Config{Endpoints: o.Store, Logger: zap.NewNop()})
		if err != nil {
			return nil, nil, err
		}
		return etcd.New(client, &etcd.Options{ColdStart: true}), client.Close, nil
	}},
	{"zookeeper", startZooKeeper, func(_ redis.UniversalClient, o order) (fallback.Arbiter, func() error, error) {
		return zookeeper.New(func() (*zk.Conn, error) { return connectZooKeeper(o.Store) }, &zookeeper.Options{ColdStart: true}), nil, nil
	}},
	{"quorum", startQuorum, func(_ redis.UniversalClient, o order) (fallback.Arbiter, func() error, error) {
		var clients []*redis.Client
		for _, socket := range o.Store {
			clients = append(clients, redis.NewClient(&redis.Options{Network: "unix", Addr: socket}))
		}
		return redisquorum.New(clients, &redisquorum.Options{ColdStart: true}), func() error {
			var errs []error
			for _, c := range clients {
				errs = append(errs, c.Close())
			}
			return errors.Join(errs...)
		}, nil
	}},
}

// moreStores are those of stores_more.go, which a program has with the build tag "stores".
var moreStores = []string{"s3", "kubernetes", "mongodb", "consul"}

// findArbiterStore returns the store with a name.
func findArbiterStore(name string) (arbiterStore, error) {
	i := slices.IndexFunc(arbiterStores, func(s arbiterStore) bool { return s.name == name })
	switch {
	case i < 0 && slices.Contains(moreStores, name):
		return arbiterStore{}, fmt.Errorf("-arbiter %s: is in the build of go run -tags stores ./examples/inventory", name)
	case i < 0:
		return arbiterStore{}, fmt.Errorf("-arbiter %q: want %s", name, arbiterNames())
	}
	return arbiterStores[i], nil
}

func arbiterNames() string {
	var names []string
	for _, s := range arbiterStores {
		names = append(names, s.name)
	}
	last := len(names) - 1
	return strings.Join(names[:last], ", ") + " or " + names[last]
}

// startFile makes a directory for an arbiter in a file.
func startFile(context.Context) ([]string, func() error, error) {
	dir, err := os.MkdirTemp("", "inventory-")
	if err != nil {
		return nil, nil, err
	}
	return []string{filepath.Join(dir, "locks")}, func() error { return os.RemoveAll(dir) }, nil
}

// freeAddress returns one where no program listened a moment ago.
func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	return l.Addr().String(), nil
}

// startServer starts servers, and waits for an answer. program is one of Debian's package.
func startServer(ctx context.Context, s dbserver.Script, program, debian string, ask func(ctx context.Context, dir string) error) (*dbserver.Server, error) {
	path, err := exec.LookPath(program)
	if err != nil {
		return nil, fmt.Errorf("%w (apt install %s)", err, debian)
	}
	server, err := dbserver.Start(s, filepath.Dir(path), "inventory-")
	if err != nil {
		return nil, err
	}
	return server, server.Await(ctx, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
		defer cancel()
		return ask(ctx, server.Dir)
	})
}

// killAll ends a run's own servers: their data end with them.
const killAll = `kill -KILL $all`

func mariaDB(socket, database string) *driver.Config {
	c := driver.NewConfig()
	c.User, c.Net, c.Addr, c.DBName = "root", "unix", socket, database
	return c
}

var mariaDBScript = dbserver.Script{
	Start: `
account=; [ "$(id -u)" != 0 ] || account=--user=root
"$1/mariadb-install-db" --no-defaults $account --auth-root-authentication-method=normal --datadir="$2/data" >&2 || exit 1
server=$(command -v mariadbd || echo /usr/sbin/mariadbd)
"$server" --no-defaults $account --datadir="$2/data" --socket="$2/socket" --pid-file="$2/pid" --skip-networking >&2 &
all=$!`,
	End: killAll,
}

// startMariaDB starts a MariaDB with its defaults and a database "test".
func startMariaDB(ctx context.Context) ([]string, func() error, error) {
	server, err := startServer(ctx, mariaDBScript, "mariadb-install-db", "mariadb-server", func(ctx context.Context, dir string) error {
		c, err := driver.NewConnector(mariaDB(filepath.Join(dir, "socket"), ""))
		if err != nil {
			return err
		}
		db := sql.OpenDB(c)
		_, err = db.ExecContext(ctx, `CREATE DATABASE IF NOT EXISTS test`)
		return errors.Join(err, db.Close())
	})
	if err != nil {
		return nil, nil, err
	}
	return []string{filepath.Join(server.Dir, "socket")}, server.Stop, nil
}

// startEtcd starts an etcd of one member.
func startEtcd(ctx context.Context) ([]string, func() error, error) {
	client, err := freeAddress()
	if err != nil {
		return nil, nil, err
	}
	peer, err := freeAddress()
	if err != nil {
		return nil, nil, err
	}
	url, peers := "http://"+client, "http://"+peer
	script := dbserver.Script{Start: fmt.Sprintf(`
"$1/etcd" --name one --data-dir data --listen-client-urls %[1]s --advertise-client-urls %[1]s --log-level error \
  --listen-peer-urls %[2]s --initial-advertise-peer-urls %[2]s --initial-cluster one=%[2]s >&2 &
all=$!`, url, peers), End: killAll}
	server, err := startServer(ctx, script, "etcd", "etcd-server", func(ctx context.Context, _ string) error {
		c, err := clientv3.New(clientv3.Config{Endpoints: []string{url}, Logger: zap.NewNop()})
		if err != nil {
			return err
		}
		_, err = c.Get(ctx, "none")
		return errors.Join(err, c.Close())
	})
	if err != nil {
		return nil, nil, err
	}
	return []string{url}, server.Stop, nil
}

// zookeeperJar is where Debian has it. It names those that it needs.
const zookeeperJar = "/usr/share/java/zookeeper.jar"

// startZooKeeper starts a ZooKeeper of one server.
func startZooKeeper(ctx context.Context) ([]string, func() error, error) {
	if _, err := os.Stat(zookeeperJar); err != nil {
		return nil, nil, fmt.Errorf("%w (apt install libzookeeper-java)", err)
	}
	addr, err := freeAddress()
	if err != nil {
		return nil, nil, err
	}
	_, port, _ := net.SplitHostPort(addr)
	script := dbserver.Script{Start: fmt.Sprintf(`
printf 'tickTime=2000\ndataDir=%%s/data\nclientPortAddress=127.0.0.1\nclientPort=%s\nmaxClientCnxns=0\nadmin.enableServer=false\n' "$2" >zoo.cfg
"$1/java" -Xmx256m -XX:-UsePerfData -cp %s org.apache.zookeeper.server.quorum.QuorumPeerMain zoo.cfg >&2 &
all=$!`, port, zookeeperJar), End: killAll}
	server, err := startServer(ctx, script, "java", "default-jre-headless", func(context.Context, string) error {
		conn, err := connectZooKeeper([]string{addr})
		if err != nil {
			return err
		}
		defer conn.Close()
		_, _, err = conn.Exists("/")
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	return []string{addr}, server.Stop, nil
}

type silent struct{}

func (silent) Printf(string, ...any) {}

func connectZooKeeper(addrs []string) (*zk.Conn, error) {
	conn, events, err := zk.Connect(addrs, 5*time.Second, zk.WithLogger(silent{}), zk.WithLogInfo(false))
	if err != nil {
		return nil, err
	}
	go func() { // ends with the connection
		for range events {
		}
	}()
	return conn, nil
}

var quorumScript = dbserver.Script{
	Start: `
all=
for i in 1 2 3; do
  mkdir $i && "$1/redis-server" --port 0 --unixsocket "$2/$i/socket" --dir "$2/$i" --save '' --appendonly yes --appendfsync always >&2 &
  all="$all $!"
done`,
	End: killAll,
}

// startQuorum starts three Redis servers that know nothing of each other.
func startQuorum(ctx context.Context) ([]string, func() error, error) {
	var sockets []string
	server, err := startServer(ctx, quorumScript, "redis-server", "redis-server", func(ctx context.Context, dir string) error {
		sockets = nil
		for _, i := range []string{"1", "2", "3"} {
			sockets = append(sockets, filepath.Join(dir, i, "socket"))
			client := redis.NewClient(&redis.Options{Network: "unix", Addr: sockets[len(sockets)-1]})
			if err := errors.Join(client.Ping(ctx).Err(), client.Close()); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, nil, err
	}
	return sockets, server.Stop, nil
}
