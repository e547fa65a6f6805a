package postgres_test

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/fallback/arbitertest"
	"github.com/holdfast-go/holdfast/fallback/postgres"
	"github.com/holdfast-go/holdfast/internal/await"
	"github.com/holdfast-go/holdfast/internal/storetest"
	"github.com/holdfast-go/holdfast/internal/takes"
)

// In transaction mode a pooler gives each transaction to any of its connections. The config is as
// pgx makes it.
func TestPgbouncerConforms(t *testing.T) {
	s := startServer(t)
	p := startPooler(t, s, "pool_mode = transaction", "default_pool_size = 3")
	arbitertest.Run(t, arbitertest.Fixture{New: func(*testing.T) fallback.Arbiter {
		return postgres.New(p.config("app"), &postgres.Options{Table: "hf.locks", ColdStart: true, Listen: s.config("app").ConnConfig})
	}})
}

func TestPgbouncer_(t *testing.T) {
	s := startServer(t)
	for _, x := range []struct {
		name string
		test func(*testing.T, *server)
	}{
		{"LendsConnections", lendsConnections},
		{"LendsConnectionsUnseen", lendsConnectionsUnseen},
		{"KeepsConnections", keepsConnections},
		{"SearchPathOfAnotherClient", searchPathOfAnotherClient},
		{"SynchronousCommitOfAnotherClient", synchronousCommitOfAnotherClient},
		{"Refuses", refuses},
		{"ComesLater", comesLater},
	} {
		t.Run(x.name, func(t *testing.T) { x.test(t, s) })
	}
}

// mute are options for a pooler that loses messages.
func mute(table string) *postgres.Options {
	return &postgres.Options{Table: table, ColdStart: true, Mute: true}
}

// other is another client of the pooler.
func other(t *testing.T, p *pooler) *pgx.Conn {
	t.Helper()
	c := p.config("app").ConnConfig
	c.DefaultQueryExecMode = pgx.QueryExecModeSimpleProtocol
	conn, err := pgx.ConnectConfig(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

func execute(t *testing.T, c *pgx.Conn, sql string) {
	t.Helper()
	if _, err := c.Exec(t.Context(), sql); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

func ask[T any](t *testing.T, c *pgx.Conn, sql string) (x T) {
	t.Helper()
	if err := c.QueryRow(t.Context(), sql).Scan(&x); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return x
}

// Where connections are lent for a transaction or a statement, locks work in each mode of pgx.
// LISTEN is refused before it has effect, and leaves nothing to other clients.
func lendsConnections(t *testing.T, s *server) {
	for _, lends := range []string{"transaction", "statement"} {
		p := startPooler(t, s, "pool_mode = "+lends, "default_pool_size = 1")
		for mode := pgx.QueryExecModeCacheStatement; mode <= pgx.QueryExecModeSimpleProtocol; mode++ {
			config := p.config("app")
			config.ConnConfig.DefaultQueryExecMode = mode
			for _, me := range []fallback.Identity{alice, bob} { // two processes
				n := attach(t, postgres.New(config, mute("hf.locks")))
				if a := lock(t, n, me); a.Verdict == fallback.Held != (me == bob) {
					t.Errorf("%v, %v: %+v", lends, mode, a)
				}
				noErrors(t, n.Unlock(t.Context(), []fallback.Release{{Key: "k", Identity: bob}}))
				if me == bob {
					noErrors(t, n.Unlock(t.Context(), []fallback.Release{{Key: "k", Identity: alice}}))
				}
			}
		}
		_, err := coord.New(t.Context(), postgres.New(p.config("app"), options()), &coord.Options{Namespace: "loud"})
		if !errors.Is(err, fallback.ErrRefused) || !strings.Contains(err.Error(), "Options.Listen") {
			t.Errorf("New with messages through the pooler: %v", err)
		}
		if left := ask[int](t, other(t, p), `SELECT count(*) FROM pg_listening_channels()`); left > 0 {
			t.Errorf("%d channels are listened to by a connection of other clients", left)
		}
		both := attach(t, postgres.New(p.config("app"), &postgres.Options{Table: "hf.locks", Listen: s.config("app").ConnConfig}))
		hears(t, both)
		p.end()
	}
}

// A pooler that tells the number of the server's own process does not show. With default options of
// coord the probe of LISTEN refuses it nonetheless, and leaves nothing to other clients.
func lendsConnectionsUnseen(t *testing.T, s *server) {
	takes.Seconds(t)
	p := startPooler(t, s, "pool_mode = transaction", "default_pool_size = 1")
	client := other(t, p)
	pid := ask[int](t, client, `SELECT pg_backend_pid()`)
	config := p.config("app")
	config.ConnConfig.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := p.dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return &renumbered{Conn: conn, pid: uint32(pid)}, nil
	}
	_, err := coord.New(t.Context(), postgres.New(config, options()), &coord.Options{Namespace: "unseen"})
	if !errors.Is(err, fallback.ErrRefused) || !strings.Contains(err.Error(), "Options.Listen") {
		t.Errorf("New with messages through the pooler: %v", err)
	}
	if now := ask[int](t, client, `SELECT pg_backend_pid()`); now != pid {
		t.Fatalf("the pooler has process %d of the server now, had %d", now, pid)
	}
	if left := ask[int](t, client, `SELECT count(*) FROM pg_listening_channels()`); left > 0 {
		t.Errorf("%d channels are listened to by a connection of other clients", left)
	}
}

// renumbered is a client's connection to a pooler. Its greeting tells another process.
type renumbered struct {
	net.Conn
	pid     uint32
	greeted bool
	read    []byte // and not yet given to the client
}

func (c *renumbered) Read(b []byte) (int, error) {
	for !c.greeted && len(c.read) == 0 {
		head := make([]byte, 5) // the message's type and length
		if _, err := io.ReadFull(c.Conn, head); err != nil {
			return 0, err
		}
		body := make([]byte, binary.BigEndian.Uint32(head[1:])-4)
		if _, err := io.ReadFull(c.Conn, body); err != nil {
			return 0, err
		}
		switch head[0] {
		case 'K': // BackendKeyData
			binary.BigEndian.PutUint32(body, c.pid)
		case 'Z': // ReadyForQuery
			c.greeted = true
		}
		c.read = slices.Concat(head, body)
	}
	if len(c.read) > 0 {
		n := copy(b, c.read)
		c.read = c.read[n:]
		return n, nil
	}
	return c.Conn.Read(b)
}

// hears checks that messages come.
func hears(t *testing.T, n fallback.Namespace) {
	t.Helper()
	heard := make(chan fallback.Message, 10)
	stop, err := n.Listen(t.Context(), "alice", func(m fallback.Message) { heard <- m })
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	lock(t, n, alice)
	lock(t, n, bob)
	if m := <-heard; m.Kind != fallback.Ask {
		t.Errorf("heard %+v", m)
	}
	noErrors(t, n.Unlock(t.Context(), []fallback.Release{{Key: "k", Identity: bob}, {Key: "k", Identity: alice}}))
}

// Where a client has its connection for itself, all is as without a pooler. When that ends, it is
// told.
func keepsConnections(t *testing.T, s *server) {
	p := startPooler(t, s, "pool_mode = session", "default_pool_size = 20")
	n := attach(t, postgres.New(p.config("app"), options()))
	hears(t, n)
	stop, err := n.Listen(t.Context(), "alice", func(fallback.Message) {})
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	p.end()
	p.configure(s, "pool_mode = transaction")
	p.begin()
	await.Until(t, "advice about messages", func() bool {
		all, err := n.(fallback.Adviser).Advise(t.Context())
		return err == nil && len(all) == 1 && strings.Contains(all[0], "Options.Listen")
	})
	lock(t, n, alice) // the connections of before prepared statements
	noErrors(t, n.Unlock(t.Context(), []fallback.Release{{Key: "k", Identity: alice}}))
}

// A search_path that another client has set leads no process to another table.
func searchPathOfAnotherClient(t *testing.T, s *server) {
	s.must(`CREATE SCHEMA tenant AUTHORIZATION app`, `GRANT CREATE ON SCHEMA public TO app`)
	p := startPooler(t, s, "pool_mode = transaction", "default_pool_size = 1")
	n := attach(t, postgres.New(p.config("app"), mute("")))
	lock(t, n, alice)
	c := other(t, p)
	execute(t, c, `SET search_path = tenant`)
	if a := lock(t, n, bob); a.Verdict != fallback.Held || a.Record.Grace != 0 {
		t.Errorf("another one gets the key: %+v", a)
	}
	storetest.Refused(t, postgres.New(p.config("app"), mute("")), "Options.Table")
	whole := attach(t, postgres.New(p.config("app"), mute("public.holdfast")))
	if a := lock(t, whole, bob); a.Verdict != fallback.Held {
		t.Errorf("with the schema's name: %+v", a)
	}
	// A pooler that does not show, and a server that is no pooler.
	config := s.config("app")
	set := func(ctx context.Context, c *pgconn.PgConn) error {
		_, err := c.Exec(ctx, `SET search_path = tenant`).ReadAll()
		return err
	}
	config.ConnConfig.ValidateConnect = set
	storetest.Refused(t, postgres.New(config, mute("")), "Options.Table")
	config.ConnConfig.ValidateConnect, config.ConnConfig.AfterConnect = nil, set
	if a := lock(t, attach(t, postgres.New(config, mute(""))), bob); a.Verdict != fallback.Granted {
		t.Errorf("with a search_path of the config's: %+v", a)
	}
	each, before := s.config("app"), s.config("app")
	each.PrepareConn = func(ctx context.Context, c *pgx.Conn) (bool, error) { return true, set(ctx, c.PgConn()) }
	before.BeforeAcquire = func(ctx context.Context, c *pgx.Conn) bool { return set(ctx, c.PgConn()) == nil } //nolint:staticcheck // configs have it yet
	for _, hooked := range []*pgxpool.Config{each, before} {
		if a := lock(t, attach(t, postgres.New(hooked, mute(""))), alice); a.Verdict != fallback.Held || a.Holder.Identity != bob {
			t.Errorf("with a search_path that is set before each use: %+v", a)
		}
	}
	s.must(`DROP TABLE tenant.holdfast`)
	execute(t, c, `RESET search_path`)
	if a := lock(t, attach(t, postgres.New(p.config("app"), mute(""))), bob); a.Verdict != fallback.Held {
		t.Errorf("without another search_path: %+v", a)
	}
	if tables := ask[int](t, c, `SELECT count(*) FROM pg_tables WHERE tablename = 'holdfast'`); tables != 1 {
		t.Errorf("%d tables", tables)
	}
}

// A commit waits for the disk whatever synchronous_commit another client has set.
func synchronousCommitOfAnotherClient(t *testing.T, s *server) {
	p := startPooler(t, s, "pool_mode = transaction", "default_pool_size = 1")
	n := attach(t, postgres.New(p.config("app"), mute("hf.locks")))
	s.must(`CREATE TABLE hf.commits (mode text)`, `GRANT ALL ON hf.commits TO app`,
		`CREATE FUNCTION hf.note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO hf.commits VALUES (current_setting('synchronous_commit')); RETURN NULL; END $$`,
		`CREATE CONSTRAINT TRIGGER note AFTER INSERT OR UPDATE ON hf.locks DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION hf.note()`)
	defer s.must(`DROP TRIGGER note ON hf.locks`)
	c := other(t, p)
	for _, x := range []struct{ set, want string }{{"off", "on"}, {"local", "on"}, {"remote_apply", "remote_apply"}} {
		execute(t, c, `TRUNCATE hf.commits; SET synchronous_commit = `+x.set)
		attach(t, postgres.New(p.config("app"), mute("hf.locks")))
		lock(t, n, alice)
		noErrors(t, n.Unlock(t.Context(), []fallback.Release{{Key: "k", Identity: alice}}))
		if got := ask[string](t, c, `SELECT string_agg(DISTINCT mode, ' ') FROM hf.commits`); got != x.want {
			t.Errorf("synchronous_commit = %s: commits with %s", x.set, got)
		}
		if now := ask[string](t, c, `SHOW synchronous_commit`); now != x.set {
			t.Errorf("the other client has %s, and has set %s", now, x.set)
		}
	}
}

// A missing feature of the pooler is told at once, with the remedy.
func refuses(t *testing.T, s *server) {
	p := startPooler(t, s, "pool_mode = transaction", "ignore_startup_parameters = search_path")
	for query, why := range map[string]string{"&statement_timeout=5000": "ALTER ROLE", "&search_path=hf": "leaves out", "database": "the database", "role": "the role"} {
		dsn := p.dsn("app", "postgres") + query
		switch query {
		case "database":
			dsn = p.dsn("app", "nowhere")
		case "role":
			dsn = p.dsn("stranger", "postgres")
		}
		config, err := pgxpool.ParseConfig(dsn)
		if err != nil {
			t.Fatal(err)
		}
		storetest.Refused(t, postgres.New(config, mute("")), why)
	}
}

// The address leads to a pooler from one day on, which nothing tells but statements that are
// prepared elsewhere.
func comesLater(t *testing.T, s *server) {
	p := startPooler(t, s, "pool_mode = transaction", "default_pool_size = 1")
	var pooled atomic.Bool
	config := s.config("app")
	config.ConnConfig.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		if pooled.Load() {
			return p.dial(ctx, network, address)
		}
		return s.connect(ctx)
	}
	var all []fallback.Namespace
	for range 2 {
		all = append(all, attach(t, postgres.New(config, mute("hf.locks"))))
	}
	pooled.Store(true)
	s.must(`SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'app'`)
	admin, err := pgx.Connect(t.Context(), s.dsn("admin"))
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close(context.Background())
	await.Until(t, "the connections of before have ended", func() bool {
		return ask[int](t, admin, `SELECT count(*) FROM pg_stat_activity WHERE usename = 'app'`) == 0
	})
	for range 3 {
		for _, n := range all {
			a, err := n.Lock(t.Context(), fallback.LockRequest{Key: "k", Me: alice, Block: 1})
			if err != nil || a.Verdict != fallback.Granted {
				t.Errorf("%+v, %v", a, err)
			}
			noErrors(t, n.Unlock(t.Context(), []fallback.Release{{Key: "k", Identity: alice}}))
		}
	}
}

// Another process of the pooler, and another server behind it: the first loses nothing, and the
// second one, which lacks commits, begins Grace.
func TestPgbouncer_RestartAndFailover(t *testing.T) {
	takes.Seconds(t)
	s := startServer(t)
	p := startPooler(t, s, "pool_mode = transaction")
	n := attach(t, postgres.New(p.config("app"), mute("hf.locks")))
	s.save()
	held := lock(t, n, alice)
	restarts := map[string]func(){
		"RECONNECT": func() { p.must("RECONNECT") },
		"RELOAD":    func() { p.must("RELOAD") },
		"a pause":   func() { p.must("PAUSE", "RESUME") },
		"kill -9":   func() { p.end(); p.begin() },
	}
	for name, restart := range restarts {
		restart()
		a := lock(t, n, bob)
		if a.Verdict != fallback.Held || a.Holder.Identity != alice || a.Holder.Token != held.Token || a.Record.Grace != 0 {
			t.Errorf("after %s: %+v", name, a)
		}
	}
	p.configure(s.promoted(), "pool_mode = transaction")
	p.must("RELOAD")
	var r fallback.Record
	await.Until(t, "Grace", func() bool {
		var err error
		r, err = n.Load(t.Context(), 0)
		return err == nil && r.Grace > 0
	})
	if a := lock(t, n, bob); a.Verdict == fallback.Granted {
		t.Errorf("a server that lacks commits: %+v", a)
	}
}

// Coordinators lock keys through a pooler that is killed, and led to servers that lack commits,
// while another client changes settings.
func TestPgbouncer_NoTwoHolders(t *testing.T) {
	storetest.Minutes(t)
	s := startServer(t)
	p := startPooler(t, s, "pool_mode = transaction", "default_pool_size = 5")
	start := func() fallback.Arbiter { return postgres.New(p.config("app"), mute("hf.locks")) }
	leave := func() {
		c := p.config("app").ConnConfig
		c.DefaultQueryExecMode = pgx.QueryExecModeSimpleProtocol
		for range 5 {
			if conn, err := pgx.ConnectConfig(context.Background(), c); err == nil {
				_, _ = conn.Exec(context.Background(), `SET search_path = nowhere; SET synchronous_commit = off; SET default_transaction_isolation = serializable`)
				_ = conn.Close(context.Background())
			}
		}
	}
	var injuries []func()
	for range 4 {
		injuries = append(injuries, leave, func() { p.end(); p.begin() }, leave, func() { p.must("RECONNECT") }, s.restart, s.save, leave, s.crash)
	}
	storetest.NoTwoHolders(t, start, injuries...)
}
