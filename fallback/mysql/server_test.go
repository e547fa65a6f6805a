//go:build unix

package mysql

import (
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	driver "github.com/go-sql-driver/mysql"
	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast/internal/await"
	"github.com/holdfast-go/holdfast/internal/loopback"
	"github.com/holdfast-go/holdfast/internal/storetest"
)

var (
	program = flag.String("mysql.program", "", "MySQL's mysqld; without, it is MariaDB's of the machine")
)

func TestMain(m *testing.M) {
	flag.Parse()
	status := m.Run()
	if template.dir != "" {
		_ = os.RemoveAll(template.dir)
	}
	if err := goleak.Find(); err != nil && status == 0 {
		fmt.Fprintln(os.Stderr, err)
		status = 1
	}
	os.Exit(status)
}

func asRoot() []string {
	if os.Getuid() == 0 {
		return []string{"--user=root"}
	}
	return nil
}

// template is a data directory that no server has used.
var template struct {
	once sync.Once
	dir  string
	err  error
}

var errNotInstalled = errors.New("MariaDB is not installed (apt install mariadb-server)")

func newTemplate() error {
	var args []string
	if *program != "" {
		args = []string{*program, "--initialize-insecure"}
	} else {
		path, err := exec.LookPath("mariadb-install-db")
		if err != nil {
			return errNotInstalled
		}
		args = []string{path, "--no-defaults", "--auth-root-authentication-method=normal", "--skip-test-db", "--innodb-log-file-size=8M"}
	}
	dir, err := os.MkdirTemp("", "hfmy-")
	if err != nil {
		return err
	}
	template.dir = dir
	args = append(append(args, asRoot()...), "--datadir="+filepath.Join(dir, "data"))
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env = append(os.Environ(), "TMPDIR="+dir) // in /tmp, a server that starts removes other ones' tables
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	if err := os.Remove(filepath.Join(dir, "data", "auto.cnf")); err != nil && *program != "" {
		return err // each server has its own
	}
	return nil
}

// A member is one server, with a directory of its own.
type member struct {
	dir     string
	addr    string // for other members
	process *storetest.Process
}

func (m *member) socket() string { return filepath.Join(m.dir, "socket") }

func (m *member) connect(ctx context.Context) (net.Conn, error) {
	return new(net.Dialer).DialContext(ctx, "unix", m.socket())
}

// A server is where clients are led to: one member at a time.
type server struct {
	t        *testing.T
	dir      string
	settings []string
	made     int
	now      atomic.Pointer[member]
	saved    string // the directory of a member that has stopped following, or empty
}

// startServer starts a server with its defaults and a user "app" that may use the database "hf",
// and nothing else.
func startServer(t *testing.T, settings ...string) *server {
	t.Helper()
	template.once.Do(func() { template.err = newTemplate() })
	if errors.Is(template.err, errNotInstalled) {
		t.Skip(template.err)
	}
	if template.err != nil {
		t.Fatal(template.err)
	}
	dir, err := os.MkdirTemp("", "hfmy-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	s := &server{t: t, dir: dir, settings: settings}
	s.now.Store(s.member(template.dir))
	s.furnish()
	return s
}

func (s *server) furnish() {
	s.t.Helper()
	s.must(`CREATE DATABASE hf`, `CREATE USER app IDENTIFIED BY 'secret'`, `GRANT SELECT, INSERT, UPDATE, CREATE ON hf.* TO app`)
}

// member starts one with a copy of the data of another one that does not run.
func (s *server) member(from string, settings ...string) *member {
	s.t.Helper()
	s.made++
	m := &member{dir: filepath.Join(s.dir, "m"+strconv.Itoa(s.made)), addr: loopback.Address(s.t)}
	if err := os.Mkdir(m.dir, 0o700); err != nil {
		s.t.Fatal(err)
	}
	s.run("cp", "-a", filepath.Join(from, "data"), m.dir)
	if err := os.Remove(filepath.Join(m.dir, "data", "auto.cnf")); err != nil && !errors.Is(err, os.ErrNotExist) {
		s.t.Fatal(err)
	}
	host, port, err := net.SplitHostPort(m.addr)
	if err != nil {
		s.t.Fatal(err)
	}
	args := []string{"--datadir=" + filepath.Join(m.dir, "data"), "--socket=" + m.socket(), "--pid-file=" + filepath.Join(m.dir, "pid"),
		"--bind-address=" + host, "--port=" + port, "--server-id=" + strconv.Itoa(s.made), "--log-bin=binlog", "--sync-binlog=1",
		"--innodb-buffer-pool-size=16M", "--performance-schema=OFF", "--skip-name-resolve"}
	if *program != "" {
		args = append([]string{*program}, append(args, "--mysqlx=OFF",
			"--secure-file-priv=", "--innodb-redo-log-capacity=8M", "--skip-replica-start")...)
	} else {
		path, err := exec.LookPath("mariadbd")
		if err != nil {
			path = "/usr/sbin/mariadbd"
		}
		args = append([]string{path, "--no-defaults"}, append(args, "--log-slave-updates", "--innodb-log-file-size=8M", "--skip-slave-start")...)
	}
	args = append(append(append(args, asRoot()...), s.settings...), settings...)
	m.process = storetest.Start(s.t, m.dir, nil, args...)
	s.answers(m)
	return m
}

func (s *server) run(name string, args ...string) {
	s.t.Helper()
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		s.t.Fatalf("%s: %v\n%s", name, err, out)
	}
}

func (s *server) answers(m *member) {
	s.t.Helper()
	db := s.open(m)
	defer db.Close()
	await.Within(s.t, 2*time.Minute, "the server answers", func() bool { return db.Ping() == nil })
}

// kill is kill -9, and begin starts it again with the same data.
func (s *server) kill()  { s.now.Load().process.Kill() }
func (s *server) begin() { s.t.Helper(); s.now.Load().process.Begin(); s.answers(s.now.Load()) }

func (s *server) restart() {
	s.t.Helper()
	s.kill()
	s.begin()
}

// copied copies the files of now. back puts the copy in their place.
func (s *server) copied() (back func()) {
	s.t.Helper()
	dir := s.now.Load().dir
	s.kill()
	s.run("cp", "-a", dir+"/data", dir+"/old")
	s.begin()
	return func() {
		s.t.Helper()
		s.kill()
		s.run("rm", "-rf", dir+"/data")
		s.run("mv", dir+"/old", dir+"/data")
		s.begin()
	}
}

// unmark deletes the mark.
func (s *server) unmark() {
	s.t.Helper()
	s.must("DELETE FROM hf.holdfast WHERE name = '" + markName + "'")
}

// follow starts a replica, with the server's present data.
func (s *server) follow() (replica *member) {
	s.t.Helper()
	replica = s.member(template.dir, "--read-only=1")
	host, port, _ := net.SplitHostPort(s.now.Load().addr)
	status, wait := `SHOW MASTER STATUS`, `MASTER_POS_WAIT`
	change := `CHANGE MASTER TO MASTER_HOST = '%s', MASTER_PORT = %s, MASTER_USER = 'follower', MASTER_PASSWORD = 'secret',
		MASTER_LOG_FILE = 'binlog.000001', MASTER_LOG_POS = 4`
	if *program != "" {
		status, wait = `SHOW BINARY LOG STATUS`, `SOURCE_POS_WAIT`
		change = strings.Replace(change, "CHANGE MASTER", "CHANGE REPLICATION SOURCE", 1)
		change = strings.ReplaceAll(change, "MASTER_", "SOURCE_") + `, GET_SOURCE_PUBLIC_KEY = 1`
	}
	s.must(`CREATE USER IF NOT EXISTS follower IDENTIFIED BY 'secret'`, `GRANT REPLICATION SLAVE ON *.* TO follower`)
	s.on(replica, fmt.Sprintf(change, host, port), `START REPLICA`)
	var file string
	var at int64
	db := s.open(s.now.Load())
	defer db.Close()
	rows, err := db.Query(status)
	if err != nil {
		s.t.Fatal(err)
	}
	columns, err := rows.Columns()
	if err != nil || !rows.Next() {
		s.t.Fatalf("%s: %v, %v", status, columns, err)
	}
	into := []any{&file, &at}
	for range columns[2:] {
		into = append(into, new(sql.RawBytes))
	}
	if err := rows.Scan(into...); err != nil {
		s.t.Fatal(err)
	}
	rows.Close()
	follower := s.open(replica)
	defer follower.Close()
	var n sql.NullInt64
	if err := follower.QueryRow(`SELECT `+wait+`(?, ?, 120)`, file, at).Scan(&n); err != nil || !n.Valid || n.Int64 < 0 {
		s.t.Fatalf("the replica follows to %s %d: %v, %v", file, at, n, err)
	}
	return replica
}

// save has a replica that follows the server until now, and then ends.
func (s *server) save() {
	s.t.Helper()
	replica := s.follow()
	s.on(replica, `STOP REPLICA`)
	replica.process.Kill()
	s.saved = replica.dir
}

// crash kills the server, and promotes the replica last saved; or an empty server takes its place.
func (s *server) crash() {
	s.t.Helper()
	s.kill()
	if s.saved == "" {
		s.now.Store(s.member(template.dir))
		s.furnish()
		return
	}
	s.promote()
}

// promote promotes the replica last saved, whatever becomes of the server.
func (s *server) promote() {
	s.t.Helper()
	m := s.member(s.saved)
	s.on(m, `RESET REPLICA ALL`)
	s.now.Store(m)
}

// killClients ends the connections of "app", one at least.
func (s *server) killClients() {
	s.t.Helper()
	db := s.open(s.now.Load())
	defer db.Close()
	rows, err := db.Query(`SELECT id FROM information_schema.processlist WHERE user = 'app'`)
	if err != nil {
		s.t.Fatal(err)
	}
	var ids []int64
	for rows.Next() {
		var id int64
		if err := rows.Scan(&id); err != nil {
			s.t.Fatal(err)
		}
		ids = append(ids, id)
	}
	if err := rows.Err(); err != nil || len(ids) == 0 {
		s.t.Fatal(ids, err)
	}
	for _, id := range ids {
		if _, err := db.Exec(fmt.Sprint("KILL ", id)); err != nil && numberOf(err) != 1094 { // it has left by itself
			s.t.Fatal(err)
		}
	}
}

func (s *server) must(statements ...string) {
	s.t.Helper()
	s.on(s.now.Load(), statements...)
}

func (s *server) on(m *member, statements ...string) {
	s.t.Helper()
	db := s.open(m)
	defer db.Close()
	for _, x := range statements {
		if _, err := db.Exec(x); err != nil {
			s.t.Fatalf("%s: %v", x, err)
		}
	}
}

func (s *server) open(m *member) *sql.DB {
	c, err := driver.NewConnector(configOf("root", "", m.socket))
	if err != nil {
		s.t.Fatal(err)
	}
	return sql.OpenDB(c)
}

func configOf(user, password string, socket func() string) *driver.Config {
	c := driver.NewConfig()
	c.User, c.Passwd, c.Net, c.Addr, c.Logger = user, password, "unix", "the server", silent{}
	c.DialFunc = func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", socket())
	}
	return c
}

// config leads to the member that is the server, whichever that is.
func (s *server) config(user string) *driver.Config {
	password := "secret"
	if user == "root" {
		password = ""
	}
	c := configOf(user, password, func() string { return s.now.Load().socket() })
	c.DBName = "hf"
	return c
}
