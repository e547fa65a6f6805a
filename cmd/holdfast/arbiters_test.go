package main

import (
	"context"
	"encoding/json"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	driver "github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/fallback/mysql"
	"github.com/holdfast-go/holdfast/fallback/postgres"
	"github.com/holdfast-go/holdfast/fallback/redisarbiter"
	"github.com/holdfast-go/holdfast/fallback/sqlite"
	"github.com/holdfast-go/holdfast/gossip"
	"github.com/holdfast-go/holdfast/internal/await"
	"github.com/holdfast-go/holdfast/internal/dbserver"
	"github.com/holdfast-go/holdfast/internal/redistest"
)

// The command works with each arbiter that a URL can name: it asks nodes, frees keys, and locks.
func TestArbiters(t *testing.T) {
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		file := filepath.Join(t.TempDir(), "locks.db")
		x := &application{t: t, url: "sqlite://" + file, place: "shop/p", arbiter: sqlite.New(file, &sqlite.Options{ColdStart: true})}
		if status, text := x.run("doctor"); status != 1 || !strings.Contains(text, "the application's file") {
			t.Errorf("without a file: status %d, %s", status, text)
		}
		x.works()
	})
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		dsn := startPostgres(t)
		config, err := pgxpool.ParseConfig(dsn)
		if err != nil {
			t.Fatal(err)
		}
		x := &application{
			t: t, url: dsn + "&table=locks", place: "shop/p", arbiter: postgres.New(config, &postgres.Options{Table: "locks", ColdStart: true}),
		}
		x.works()
		// As behind a pooler.
		x.url += "&mute=true"
		if status, text := x.run("doctor"); !strings.Contains(text, "this arbiter sends no messages") {
			t.Errorf("doctor with mute=true: status %d, %s", status, text)
		}
		if status, text := x.run("lock", "third", "--", "echo", "under"); status != 0 || text != "under\n" {
			t.Errorf("lock with mute=true: status %d, %s", status, text)
		}
	})
	t.Run("mysql", func(t *testing.T) {
		t.Parallel()
		socket := startMariaDB(t)
		config := driver.NewConfig()
		config.User, config.Net, config.Addr, config.DBName = "root", "unix", socket, "mysql"
		x := &application{
			t: t, url: "mysql://root@/mysql?table=locks&timeout=10s&socket=" + url.QueryEscape(socket), place: "shop/p",
			arbiter: mysql.New(config, &mysql.Options{Table: "locks", ColdStart: true}),
		}
		x.works()
		// An application with Durable: a command without it is refused, and changes nothing.
		x.url, x.arbiter = strings.Replace(x.url, "table=locks", "table=durable", 1), mysql.New(config, &mysql.Options{Table: "durable", ColdStart: true, Durable: true})
		n, err := x.arbiter.Attach(t.Context(), fallback.Settings{Namespace: "shop", Partitions: 31, Grace: 12 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		defer n.Close()
		for _, args := range [][]string{{"doctor"}, {"nodes"}, {"lock", "other", "--", "true"}} {
			if _, text := x.run(args...); !strings.Contains(text, "durable=true in the URL") {
				t.Errorf("%v without durable=true: %s", args, text)
			}
		}
		x.url += "&durable=true"
		if _, text := x.run("doctor"); !strings.Contains(text, "OK    namespace:") || !strings.Contains(text, "no process has a session") || strings.Count(text, "FAIL") != 1 {
			t.Errorf("doctor with durable=true, and no process: %s", text)
		}
		if status, text := x.run("lock", "--try", "other", "--", "echo", "under"); status != 0 || text != "under\n" {
			t.Errorf("lock with durable=true: status %d, %s", status, text)
		}
	})
	t.Run("sentinel", func(t *testing.T) {
		t.Parallel()
		sentinel := redistest.StartSentinel(t, redistest.Start(t), "shop")
		c := redis.NewFailoverClient(&redis.FailoverOptions{MasterName: "shop", SentinelAddrs: []string{sentinel}, ContextTimeoutEnabled: true})
		t.Cleanup(func() { _ = c.Close() })
		x := &application{
			t: t, url: "redis+sentinel://" + sentinel + "?master_name=shop", place: "{shop:p",
			arbiter: redisarbiter.New(c, &redisarbiter.Options{ColdStart: true}),
		}
		x.works()
		x.url = "redis+sentinel://" + sentinel + "?master_name=other"
		if status, text := x.run("doctor", "--timeout", "1s"); status != 1 || !strings.Contains(text, "FAIL  arbiter") {
			t.Errorf("another name: status %d, %s", status, text)
		}
	})
	t.Run("cluster", func(t *testing.T) {
		t.Parallel()
		var addrs []string
		for _, s := range redistest.StartCluster(t, 3) {
			addrs = append(addrs, s.Addr)
		}
		c := redis.NewClusterClient(&redis.ClusterOptions{Addrs: addrs, ContextTimeoutEnabled: true})
		t.Cleanup(func() { _ = c.Close() })
		x := &application{
			t: t, url: "redis+cluster://" + addrs[0] + "?addr=" + addrs[1] + "&addr=" + addrs[2], place: "{shop:p",
			arbiter: redisarbiter.New(c, &redisarbiter.Options{ColdStart: true}),
		}
		x.works()
		one := redis.NewClient(&redis.Options{Addr: addrs[2]})
		defer one.Close()
		if err := one.ConfigSet(t.Context(), "maxmemory", "100kb").Err(); err != nil {
			t.Fatal(err)
		}
		status, text := x.run("doctor")
		for _, want := range []string{"FAIL  memory of " + addrs[2] + ": ", "OK    memory of " + addrs[0] + ": ", "OK    memory of " + addrs[1] + ": "} {
			if status != 1 || !strings.Contains(text, want) {
				t.Errorf("one master is full: status %d, no %q: %s", status, want, text)
			}
		}
	})
}

// The driver gets parameters as it wants them: it unescapes all but charsets and durations.
func TestParseMySQL(t *testing.T) {
	for _, query := range []string{
		"charset=utf8mb4,utf8&connectionAttributes=team:shop,stage:a%26b%252C&durable=1&loc=Europe/Berlin&readTimeout=1500µs&sql_mode=%27ANSI,TRADITIONAL%27",
		"charset=utf8mb4%2Cutf8&connectionAttributes=team%3Ashop%2Cstage%3Aa%26b%252C&loc=Europe%2FBerlin&readTimeout=1500%C2%B5s&sql_mode=%27ANSI%2CTRADITIONAL%27",
	} {
		u, err := url.Parse("mysql://op@h/shop?table=locks&" + query)
		if err != nil {
			t.Fatal(err)
		}
		c, o, err := parseMySQL(*u)
		if err != nil {
			t.Fatal(err)
		}
		// The charsets are in no field.
		if dsn := c.FormatDSN(); !strings.Contains(dsn, "charset=utf8mb4,utf8&") || c.ConnectionAttributes != "team:shop,stage:a&b%2C" ||
			c.Loc.String() != "Europe/Berlin" || c.ReadTimeout != 1500*time.Microsecond || c.Params["sql_mode"] != "'ANSI,TRADITIONAL'" || o.Table != "locks" || o.Durable != strings.Contains(query, "durable=1") {
			t.Errorf("%s: %s, table %s", query, dsn, o.Table)
		}
	}
}

// application is a node at an arbiter.
type application struct {
	t       *testing.T
	url     string
	place   string // of a partition at the arbiter, without its number
	arbiter fallback.Arbiter
}

// run runs the command in a process of its own.
func (x *application) run(args ...string) (status int, text string) {
	x.t.Helper()
	cmd := exec.CommandContext(x.t.Context(), os.Args[0], args...)
	cmd.Env = append(os.Environ(), asCommand+"=1", "HOLDFAST_URL="+x.url, "HOLDFAST_NAMESPACE=shop", "HOLDFAST_NAME=op", "GORACE=exitcode=66")
	out, err := cmd.CombinedOutput()
	if err != nil && cmd.ProcessState == nil {
		x.t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), string(out)
}

func (x *application) works() {
	t := x.t
	t.Helper()
	c, err := coord.New(t.Context(), x.arbiter, &coord.Options{
		Namespace: "shop", Name: "anna", Partitions: 31,
		Cluster: &coord.Cluster{Membership: gossip.Start, Gossip: "127.0.0.1:0", Debounce: 200 * time.Millisecond},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close(context.Background()) }()
	settled(t, c)
	l, err := c.Lock(coord.WithLabel(t.Context(), "checkout 8123"), "k")
	if err != nil {
		t.Fatal(err)
	}
	for _, look := range []struct {
		args []string
		has  []string
	}{
		{[]string{"doctor"}, []string{"OK    node anna", "OK    settings", "OK    locks"}},
		{[]string{"top"}, []string{"checkout 8123"}},
		{[]string{"inspect", "k"}, []string{"anna", "checkout 8123", l.Fence().String()}},
		{[]string{"nodes"}, []string{"anna"}},
		{[]string{"partitions"}, []string{"anna", "100.0%"}},
		{[]string{"locks"}, []string{"anna", "checkout 8123"}},
		{[]string{"key", "k"}, []string{x.place}},
	} {
		// A machine may be too busy for a stream within a CallTimeout.
		await.Until(t, strings.Join(look.args, " "), func() bool {
			status, text := x.run(look.args...)
			lacks := slices.ContainsFunc(look.has, func(want string) bool { return !strings.Contains(text, want) })
			if status != 0 || lacks {
				t.Logf("%v: status %d, want 0 and %q:\n%s", look.args, status, look.has, text)
				return false
			}
			return true
		})
		var v any
		word := look.has[0][strings.LastIndex(look.has[0], " ")+1:]
		status, text := x.run(append(look.args, "--json")...)
		if status != 0 || json.Unmarshal([]byte(text), &v) != nil || !strings.Contains(text, word) {
			t.Errorf("%v --json: status %d: %s", look.args, status, text)
		}
	}
	await.Until(t, "break", func() bool {
		status, text := x.run("break", "k", "--fence", l.Fence().String(), "--reason", "ticket", "--json")
		t.Log(text)
		return status == 0 && strings.Contains(text, `"broken": true`)
	})
	if err := l.Unlock(); err == nil {
		t.Error("the lock was not broken")
	}
	if status, text := x.run("lock", "other", "--", "sh", "-c", "echo under $HOLDFAST_KEY"); status != 0 || text != "under other\n" {
		t.Errorf("lock: status %d, %s", status, text)
	}
	status, text := x.run("elect", "leader", "--", "sh", "-c", "echo leads by $HOLDFAST_FENCE")
	if status != 0 || !strings.HasPrefix(text, "leads by ") {
		t.Errorf("elect: status %d, %s", status, text)
	}
}

// startMariaDB starts a server that ends with this process. The test is skipped without one.
func startMariaDB(t *testing.T) (socket string) {
	t.Helper()
	path, err := exec.LookPath("mariadb-install-db")
	if err != nil {
		t.Skip(err)
	}
	s, err := dbserver.Start(dbserver.Script{
		Start: `
"$1/mariadb-install-db" --no-defaults --datadir="$2/data" --auth-root-authentication-method=normal --skip-test-db >&2 || exit 1
"$(command -v mariadbd || echo /usr/sbin/mariadbd)" --no-defaults --datadir="$2/data" --socket="$2/socket" --pid-file="$2/pid" \
  --skip-networking >&2 &`,
		End: `kill -KILL $!`, Account: "mysql",
	}, filepath.Dir(path), "holdfast-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Stop() })
	socket = filepath.Join(s.Dir, "socket")
	if err := s.Await(t.Context(), func(ctx context.Context) error {
		var d net.Dialer
		c, err := d.DialContext(ctx, "unix", socket)
		if err != nil {
			return err
		}
		return c.Close()
	}); err != nil {
		t.Fatal(err)
	}
	return socket
}

// startPostgres starts a server that ends with this process. The test is skipped without one.
func startPostgres(t *testing.T) (dsn string) {
	t.Helper()
	bin, err := dbserver.FindPostgres()
	if err != nil {
		t.Skip(err)
	}
	s, err := dbserver.Start(dbserver.Script{
		Start: `
"$1/initdb" --pgdata data --username op --auth trust --no-sync >&2 || exit 1
"$1/postgres" -D data -k "$2" -c listen_addresses= >&2 &`,
		End: `kill -QUIT $!`, Account: "postgres",
	}, bin, "holdfast-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Stop() })
	dsn = "postgres://op@/postgres?connect_timeout=30&host=" + url.QueryEscape(s.Dir) // as the machine may be busy
	if err := s.Await(t.Context(), func(ctx context.Context) error {
		c, err := pgx.Connect(ctx, dsn)
		if err != nil {
			return err
		}
		return c.Close(ctx)
	}); err != nil {
		t.Fatal(err)
	}
	return dsn
}
