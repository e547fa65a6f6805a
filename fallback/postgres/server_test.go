package postgres_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-go/holdfast/internal/await"
	"github.com/holdfast-go/holdfast/internal/dbserver"
)

// A server is a PostgreSQL of the machine, with a socket that stays where it is whichever process
// serves it.
type server struct {
	t     *testing.T
	bin   string
	dir   string // of the socket, and the data directories
	data  string // that the process uses
	stdin io.WriteCloser
	ended chan struct{}
	saved string // a data directory, or empty
	made  int    // data directories
}

// startServer starts a server with its defaults and a role "app" that owns the schema "hf", and
// nothing else.
func startServer(t *testing.T, settings ...string) *server {
	t.Helper()
	bin, err := dbserver.FindPostgres()
	if err != nil {
		t.Skip("PostgreSQL is not installed (apt install postgresql)")
	}
	dir, err := os.MkdirTemp("", "hfpg-")
	if err != nil {
		t.Fatal(err)
	}
	s := &server{t: t, bin: bin, dir: dir}
	t.Cleanup(func() {
		s.end()
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	if _, err := dbserver.As("postgres", dir); err != nil {
		t.Fatal(err)
	}
	s.begin(s.initdb(), settings...)
	s.must(`CREATE ROLE app LOGIN`, `CREATE SCHEMA hf AUTHORIZATION app`)
	return s
}

// as is a command of the server's account.
func (s *server) as(name string, args ...string) *exec.Cmd {
	s.t.Helper()
	cmd := exec.Command(name, args...)
	attr, err := dbserver.As("postgres", s.dir)
	if err != nil {
		s.t.Fatal(err)
	}
	cmd.Dir, cmd.SysProcAttr = s.dir, attr
	return cmd
}

func (s *server) run(name string, args ...string) {
	s.t.Helper()
	if out, err := s.as(name, args...).CombinedOutput(); err != nil {
		s.t.Fatalf("%s: %v\n%s", name, err, out)
	}
}

func (s *server) newDir() string {
	s.made++
	return filepath.Join(s.dir, "data"+strconv.Itoa(s.made))
}

// initdb makes a new data directory, with an identifier of its own.
func (s *server) initdb() string {
	data := s.newDir()
	s.run(filepath.Join(s.bin, "initdb"), "--pgdata", data, "--username", "admin", "--auth", "trust", "--no-sync", "--encoding", "UTF8", "--locale", "C")
	return data
}

// begin starts a process on a data directory. It ends with this one, however that does.
func (s *server) begin(data string, settings ...string) {
	s.t.Helper()
	args := []string{"-D", data, "-k", s.dir, "-c", "listen_addresses="}
	for _, x := range settings {
		args = append(args, "-c", x)
	}
	cmd := s.as("sh", append([]string{"-c", `"$0" "$@" >>log 2>&1 &
read -r _
kill -QUIT $! 2>/dev/null
wait`, filepath.Join(s.bin, "postgres")}, args...)...)
	stdin, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		s.t.Fatal(err)
	}
	s.data, s.stdin, s.ended = data, stdin, make(chan struct{})
	go func() { _ = cmd.Wait(); close(s.ended) }()
	s.answers()
}

// answers waits for the server.
func (s *server) answers() {
	s.t.Helper()
	await.Within(s.t, time.Minute, "the server answers", func() bool {
		conn, err := pgx.Connect(context.Background(), s.dsn("admin"))
		if err == nil {
			err = conn.Close(context.Background())
		}
		return err == nil
	})
}

// end stops the process at once.
func (s *server) end() {
	if s.stdin != nil {
		_ = s.stdin.Close()
		<-s.ended
		s.stdin = nil
	}
}

// kill is kill -9, of all processes of the server.
func (s *server) kill() {
	s.t.Helper()
	text, err := os.ReadFile(filepath.Join(s.data, "postmaster.pid"))
	if err != nil {
		s.t.Fatal(err)
	}
	line, _, _ := strings.Cut(string(text), "\n")
	pid, err := strconv.Atoi(line)
	if err != nil || pid <= 1 {
		s.t.Fatalf("postmaster.pid has %q", line)
	}
	children, _ := exec.Command("pgrep", "-P", line).Output()
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		s.t.Fatal(err)
	}
	for child := range strings.FieldsSeq(string(children)) {
		if n, err := strconv.Atoi(child); err == nil && n > 1 {
			_ = syscall.Kill(n, syscall.SIGKILL)
		}
	}
	s.end()
}

// restart is kill -9, and another process with the same data.
func (s *server) restart() {
	s.t.Helper()
	s.kill()
	s.begin(s.data)
}

// copied copies the files of now. back puts the copy in their place.
func (s *server) copied() (back func()) {
	s.t.Helper()
	s.kill()
	old := s.newDir()
	s.run("cp", "-a", s.data, old)
	s.begin(s.data)
	return func() {
		s.t.Helper()
		s.kill()
		s.begin(old)
	}
}

// save makes a standby that stops following.
func (s *server) save() {
	s.t.Helper()
	s.saved = s.newDir()
	s.run(filepath.Join(s.bin, "pg_basebackup"), "-h", s.dir, "-U", "admin", "-D", s.saved, "-X", "stream", "-c", "fast", "--no-sync", "-R")
}

// receive has a program follow the server as a standby does, until the test ends.
func (s *server) receive() {
	s.t.Helper()
	to := s.newDir()
	s.run("mkdir", to)
	cmd := s.as(filepath.Join(s.bin, "pg_receivewal"), "-h", s.dir, "-U", "admin", "-D", to, "--synchronous")
	if err := cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
}

// crash kills the server, and promotes the standby last saved; or an empty server takes its place.
func (s *server) crash() {
	s.t.Helper()
	s.kill()
	if s.saved == "" {
		s.begin(s.initdb())
		s.must(`CREATE ROLE app LOGIN`, `CREATE SCHEMA hf AUTHORIZATION app`)
		return
	}
	data := s.newDir()
	s.run("cp", "-a", s.saved, data)
	s.begin(data, "primary_conninfo=")
	s.must(`SELECT pg_promote(true, 60)`)
}

// promoted promotes the standby last saved, in a place of its own: the server goes on.
func (s *server) promoted() *server {
	s.t.Helper()
	other := s.standby()
	other.must(`SELECT pg_promote(true, 60)`)
	return other
}

// standby starts the standby last saved, in a place of its own. It follows no server.
func (s *server) standby() *server {
	s.t.Helper()
	dir, err := os.MkdirTemp("", "hfpg-")
	if err != nil {
		s.t.Fatal(err)
	}
	other := &server{t: s.t, bin: s.bin, dir: dir}
	s.t.Cleanup(func() {
		other.end()
		if err := os.RemoveAll(dir); err != nil {
			s.t.Error(err)
		}
	})
	if _, err := dbserver.As("postgres", dir); err != nil {
		s.t.Fatal(err)
	}
	data := other.newDir()
	s.run("cp", "-a", s.saved, data)
	other.begin(data, "primary_conninfo=")
	return other
}

// connect connects to the server.
func (s *server) connect(ctx context.Context) (net.Conn, error) {
	return new(net.Dialer).DialContext(ctx, "unix", filepath.Join(s.dir, ".s.PGSQL.5432"))
}

func (s *server) must(statements ...string) {
	s.t.Helper()
	conn, err := pgx.Connect(context.Background(), s.dsn("admin"))
	if err != nil {
		s.t.Fatal(err)
	}
	defer conn.Close(context.Background())
	for _, x := range statements {
		if _, err := conn.Exec(context.Background(), x); err != nil {
			s.t.Fatalf("%s: %v", x, err)
		}
	}
}

func (s *server) dsn(role string) string {
	return fmt.Sprintf("postgres://%s@/postgres?host=%s", role, url.QueryEscape(s.dir))
}

func (s *server) config(role string) *pgxpool.Config {
	s.t.Helper()
	c, err := pgxpool.ParseConfig(s.dsn(role))
	if err != nil {
		s.t.Fatal(err)
	}
	return c
}
