package postgres_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-go/holdfast/internal/await"
)

// A pooler is a pgbouncer in front of a server. Its socket stays where it is, whichever process
// serves it.
type pooler struct {
	s     *server
	path  string // of the program
	dir   string
	stdin io.WriteCloser // nil: it does not run
	ended chan struct{}
}

// startPooler starts a pgbouncer. Each setting is a line of its file. It ends with this process,
// however that does.
func startPooler(t *testing.T, s *server, settings ...string) *pooler {
	t.Helper()
	path, err := exec.LookPath("pgbouncer")
	if err != nil {
		if path = "/usr/sbin/pgbouncer"; !exists(path) {
			t.Skip("pgbouncer is not installed (apt install pgbouncer)")
		}
	}
	p := &pooler{s: s, path: path, dir: filepath.Join(s.dir, "pooler")}
	s.run("mkdir", "-p", p.dir)
	p.write("users", `"app" ""`, `"admin" ""`)
	p.configure(s, settings...)
	p.begin()
	t.Cleanup(func() {
		p.end()
		if t.Failed() {
			text, _ := os.ReadFile(filepath.Join(p.dir, "log"))
			t.Logf("the end of pgbouncer's log:\n%s", text[max(0, len(text)-3000):])
		}
	})
	return p
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func (p *pooler) write(name string, lines ...string) {
	p.s.t.Helper()
	if err := os.WriteFile(filepath.Join(p.dir, name), []byte(strings.Join(lines, "\n")+"\n"), 0o644); err != nil {
		p.s.t.Fatal(err)
	}
}

// configure writes its file, with a server that it leads to. It counts from the next begin or
// RELOAD.
func (p *pooler) configure(to *server, settings ...string) {
	p.s.t.Helper()
	p.write("ini", append([]string{"[databases]", "postgres = host=" + to.dir,
		"[pgbouncer]", "listen_addr =", "unix_socket_dir = " + p.dir, "auth_type = trust", "auth_file = " + filepath.Join(p.dir, "users"),
		"admin_users = admin", "max_client_conn = 500"}, settings...)...)
}

func (p *pooler) begin() {
	p.s.t.Helper()
	cmd := p.s.as("sh", "-c", `"$0" "$@" >>pooler/log 2>&1 &
read -r _
kill -KILL $! 2>/dev/null
wait`, p.path, filepath.Join(p.dir, "ini"))
	stdin, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		p.s.t.Fatal(err)
	}
	ended := make(chan struct{})
	p.stdin, p.ended = stdin, ended
	go func() { _ = cmd.Wait(); close(ended) }()
	await.Within(p.s.t, time.Minute, "the pooler answers", func() bool {
		conn, err := pgx.ConnectConfig(context.Background(), p.console())
		if err == nil {
			err = conn.Close(context.Background())
		}
		return err == nil
	})
}

// end stops it at once.
func (p *pooler) end() {
	if p.stdin != nil {
		_ = p.stdin.Close()
		<-p.ended
		p.stdin = nil
	}
}

// dsn is the pooler's address.
func (p *pooler) dsn(role, database string) string {
	return fmt.Sprintf("postgres://%s@/%s?host=%s&port=6432", role, database, p.dir)
}

func (p *pooler) config(role string) *pgxpool.Config {
	p.s.t.Helper()
	c, err := pgxpool.ParseConfig(p.dsn(role, "postgres"))
	if err != nil {
		p.s.t.Fatal(err)
	}
	return c
}

func (p *pooler) console() *pgx.ConnConfig {
	c, err := pgx.ParseConfig(p.dsn("admin", "pgbouncer"))
	if err != nil {
		p.s.t.Fatal(err)
	}
	c.DefaultQueryExecMode = pgx.QueryExecModeSimpleProtocol
	return c
}

// must executes commands of its console, such as RELOAD.
func (p *pooler) must(commands ...string) {
	p.s.t.Helper()
	conn, err := pgx.ConnectConfig(context.Background(), p.console())
	if err != nil {
		p.s.t.Fatal(err)
	}
	defer conn.Close(context.Background())
	for _, x := range commands {
		if _, err := conn.Exec(context.Background(), x); err != nil {
			p.s.t.Fatalf("%s: %v", x, err)
		}
	}
}

// dial connects to the pooler, whatever address is named.
func (p *pooler) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	return new(net.Dialer).DialContext(ctx, "unix", filepath.Join(p.dir, ".s.PGSQL.6432"))
}
