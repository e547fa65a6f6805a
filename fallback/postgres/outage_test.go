package postgres_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/fallback/postgres"
	"github.com/holdfast-go/holdfast/internal/await"
	"github.com/holdfast-go/holdfast/internal/storetest"
	"github.com/holdfast-go/holdfast/internal/takes"
)

// A way leads to a server. When the server has died without a word, nothing answers, and nothing is
// refused.
type way struct {
	lines storetest.Lines
	line  *storetest.Line
	to    storetest.Dialer
	dull  bool // its connections know no deadlines
	mute  bool // the dead server takes connections, and says nothing
	dead  atomic.Bool
	dials atomic.Int32 // of the dead server
}

// dull is a connection as that of an SSH client: it knows no deadlines.
type dull struct{ net.Conn }

func (dull) SetDeadline(time.Time) error      { return errors.New("deadline not supported") }
func (dull) SetReadDeadline(time.Time) error  { return errors.New("deadline not supported") }
func (dull) SetWriteDeadline(time.Time) error { return errors.New("deadline not supported") }

func wayTo(t *testing.T, s *server) *way {
	w := new(way)
	w.line = w.lines.Another(t)
	w.to = func(ctx context.Context, _, _ string) (net.Conn, error) { return s.connect(ctx) }
	return w
}

func (w *way) dial(ctx context.Context, network, address string) (net.Conn, error) {
	if w.dead.Load() {
		w.dials.Add(1)
		if w.mute {
			near, _ := net.Pipe()
			return near, nil
		}
		<-ctx.Done()
		return nil, ctx.Err()
	}
	conn, err := w.line.Through(w.to)(ctx, network, address)
	if w.dull && err == nil {
		conn = dull{conn}
	}
	return conn, err
}

func (w *way) attach(t *testing.T, s *server) fallback.Namespace {
	t.Helper()
	config := s.config("app")
	config.ConnConfig.DialFunc = w.dial
	n, err := postgres.New(config, options()).Attach(t.Context(), settings)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// soon is less than pgconn and pgxpool give a server that has died, which are 15 seconds and 2
// minutes.
const soon = 10 * time.Second

// renew renews as coord does: the call may take as long as d.
func renew(t *testing.T, n fallback.Namespace, d time.Duration) error {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	_, err := n.Renew(ctx, "alice", fallback.Registration{TTL: time.Hour})
	return err
}

// sessionConns is how many connections a process has for sessions.
const sessionConns = 8

// A server dies without a word, and calls that were given up have dialled it. Once another one
// answers at its address, sessions are renewed at once, and not after all of these dials.
func TestPostgres_DialsThatAreGivenUpLeaveRoomForRenewals(t *testing.T) {
	takes.Seconds(t)
	s := startServer(t)
	for name, mute := range map[string]bool{"nothing answers": false, "it takes connections and says nothing": true} {
		t.Run(name, func(t *testing.T) {
			w := wayTo(t, s)
			w.mute = mute
			n := w.attach(t, s)
			defer n.Close()
			if _, err := n.Open(t.Context(), "alice", fallback.Registration{TTL: time.Hour}); err != nil {
				t.Fatal(err)
			}
			w.dead.Store(true)
			s.must(`SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'app'`) // so that each call dials
			var calls sync.WaitGroup
			for range 3 * sessionConns { // each connection is taken, and calls wait for one
				calls.Go(func() {
					if err := renew(t, n, time.Second); err == nil {
						t.Error("a session was renewed without a server")
					}
				})
			}
			calls.Wait()
			if n := w.dials.Load(); n < sessionConns {
				t.Errorf("%d dials of the dead server, want %d at least", n, sessionConns)
			}
			w.dead.Store(false)
			await.Within(t, soon, "the session is renewed", func() bool { return renew(t, n, time.Second) == nil })
		})
	}
}

// Without a connect_timeout a server that takes longer than 2 seconds to greet is never reached:
// the error names the setting.
func TestPostgres_ASlowServerNeedsAConnectTimeout(t *testing.T) {
	takes.Seconds(t)
	for timeout, told := range map[time.Duration]bool{0: true, time.Second: false} {
		config, err := pgxpool.ParseConfig("postgres://app@localhost/postgres?sslmode=disable")
		if err != nil {
			t.Fatal(err)
		}
		config.ConnConfig.ConnectTimeout = timeout
		config.ConnConfig.LookupFunc = func(context.Context, string) ([]string, error) { return []string{"127.0.0.1"}, nil }
		config.ConnConfig.DialFunc = func(context.Context, string, string) (net.Conn, error) {
			near, _ := net.Pipe() // whose other end never greets
			return near, nil
		}
		_, err = postgres.New(config, options()).Attach(t.Context(), settings)
		if !errors.Is(err, context.DeadlineExceeded) || strings.Contains(err.Error(), "connect_timeout") != told {
			t.Errorf("with %v: %v", timeout, err)
		}
	}
}

// The server dies under a call: its connection hangs, and so does the request to cancel. Close
// waits for neither for long.
func TestPostgres_CloseLeavesADeadServerSoon(t *testing.T) {
	takes.Seconds(t)
	s := startServer(t)
	for _, greets := range []bool{false, true} { // whether the machine still takes connections
		for _, dull := range []bool{false, true} {
			w := wayTo(t, s)
			w.dull = dull
			n := w.attach(t, s)
			if _, err := n.Open(t.Context(), "alice", fallback.Registration{TTL: time.Hour}); err != nil {
				t.Fatal(err)
			}
			lock(t, n, alice)
			w.dead.Store(!greets)
			heal := w.line.Cut()
			if err := renew(t, n, 100*time.Millisecond); err == nil {
				t.Error("a session was renewed without a server")
			}
			began := time.Now()
			if err := n.Close(); err != nil {
				t.Error(err)
			}
			if took := time.Since(began); took > soon {
				t.Errorf("Close took %v", took)
			}
			heal()
		}
	}
}

// A config's AfterNetConnect gets the connection that its DialFunc has made, and its result is
// used.
func TestPostgres_ConnectionsOfTheConfig(t *testing.T) {
	type dialled struct{ net.Conn }
	type made struct{ net.Conn }
	s := startServer(t)
	var used atomic.Int32
	config := s.config("app")
	config.ConnConfig.DialFunc = func(ctx context.Context, _, _ string) (net.Conn, error) {
		conn, err := s.connect(ctx)
		return dialled{conn}, err
	}
	config.ConnConfig.AfterNetConnect = func(_ context.Context, _ *pgconn.Config, conn net.Conn) (net.Conn, error) {
		if _, own := conn.(dialled); !own {
			return conn, errors.New("another connection")
		}
		used.Add(1)
		return made{conn}, nil
	}
	lock(t, attach(t, postgres.New(config, options())), alice)
	if used.Load() == 0 {
		t.Error("AfterNetConnect was not called")
	}
}

// The address leads to a standby for a while, as after a failover. Connections that were made
// meanwhile do not stay.
func TestPostgres_AStandbyIsLeft(t *testing.T) {
	takes.Seconds(t)
	s := startServer(t)
	var to atomic.Pointer[server]
	to.Store(s)
	config := s.config("app")
	config.ConnConfig.DialFunc = func(ctx context.Context, _, _ string) (net.Conn, error) { return to.Load().connect(ctx) }
	n := attach(t, postgres.New(config, options()))
	lock(t, n, alice)
	s.save()
	to.Store(s.standby())
	s.must(`SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'app'`)
	if _, err := n.Load(t.Context(), 0); err == nil {
		t.Error("a standby is taken for the primary")
	}
	to.Store(s)
	if _, err := n.Load(t.Context(), 0); err != nil {
		t.Errorf("with the primary at the same address again: %v", err)
	}
}
