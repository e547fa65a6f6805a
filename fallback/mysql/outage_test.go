//go:build unix

package mysql

import (
	"bytes"
	"context"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/await"
	"github.com/holdfast-go/holdfast/internal/storetest"
	"github.com/holdfast-go/holdfast/internal/takes"
)

// A server dies without a word, and calls that were given up have left dials of it to database/sql.
// Once another one answers at its address, sessions are renewed.
func TestMySQL_DialsThatAreGivenUpLeaveRoomForRenewals(t *testing.T) {
	takes.Seconds(t)
	s := startServer(t)
	for name, dead := range map[string]func(context.Context) (net.Conn, error){
		"nothing answers": func(ctx context.Context) (net.Conn, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		},
		"it takes connections and says nothing": func(context.Context) (net.Conn, error) {
			near, far := net.Pipe()
			t.Cleanup(func() { _ = far.Close() })
			return near, nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			var died atomic.Bool
			c := s.config("app")
			to := c.DialFunc
			c.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
				if died.Load() {
					return dead(ctx)
				}
				return to(ctx, network, address)
			}
			n := storetest.Attach(t, New(c, options()))
			renew := func() error {
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				_, err := n.Renew(ctx, "alice", fallback.Registration{TTL: time.Hour})
				return err
			}
			if _, err := n.Open(t.Context(), "alice", fallback.Registration{TTL: time.Hour}); err != nil {
				t.Fatal(err)
			}
			died.Store(true)
			s.killClients()
			var calls sync.WaitGroup
			for range 3 * pulseConns { // each connection is taken, and calls wait for one
				calls.Go(func() {
					if err := renew(); err == nil {
						t.Error("a session was renewed without a server")
					}
				})
			}
			calls.Wait()
			died.Store(false)
			await.Until(t, "the session is renewed", func() bool { return renew() == nil })
		})
	}
}

// A gone is the connection of a process that vanishes once it has sent a statement: its server
// never hears of it again.
type gone struct {
	net.Conn
	armed *atomic.Bool
	over  <-chan struct{} // closed when the test ends
	sent  chan struct{}   // closed when the statement is
	once  *sync.Once
}

func (c gone) vanished() bool {
	select {
	case <-c.sent:
		return true
	default:
		return false
	}
}

func (c gone) Write(b []byte) (int, error) {
	if c.vanished() {
		return len(b), nil
	}
	n, err := c.Conn.Write(b)
	if c.armed.Load() && bytes.Contains(b, []byte("UPDATE `holdfast`")) {
		c.once.Do(func() { close(c.sent) })
	}
	return n, err
}

func (c gone) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if c.vanished() {
		<-c.over
	}
	return n, err
}

func (c gone) Close() error {
	if c.vanished() {
		return nil
	}
	return c.Conn.Close()
}

// A process vanishes in the middle of an Unlock of several partitions. It leaves none of them
// locked.
func TestMySQL_AProcessThatVanishesLocksNoRecords(t *testing.T) {
	takes.Seconds(t)
	s := startServer(t)
	over := make(chan struct{})
	var armed atomic.Bool
	var once sync.Once
	sent := make(chan struct{})
	c := s.config("app")
	to := c.DialFunc
	c.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := to(ctx, network, address)
		if err != nil {
			return nil, err
		}
		t.Cleanup(func() { _ = conn.Close() })
		return gone{conn, &armed, over, sent, &once}, nil
	}
	n, err := New(c, options()).Attach(t.Context(), storetest.Settings)
	if err != nil {
		t.Fatal(err)
	}
	var all []fallback.Release
	for p := range uint32(2) {
		a, err := n.Lock(t.Context(), fallback.LockRequest{Partition: p, Key: "k", Me: storetest.Alice, Block: 1})
		if err != nil || a.Verdict != fallback.Granted {
			t.Fatal(a, err)
		}
		all = append(all, fallback.Release{Partition: p, Key: "k", Identity: storetest.Alice})
	}
	armed.Store(true)
	ctx, cancel := context.WithCancel(t.Context())
	var unlock sync.WaitGroup
	unlock.Go(func() { n.Unlock(ctx, all) })
	defer func() {
		cancel()
		close(over)
		unlock.Wait()
		_ = n.Close()
	}()
	<-sent
	other := storetest.Attach(t, New(s.config("app"), options()))
	for p := range uint32(2) {
		await.Until(t, "another process uses the partition", func() bool {
			within, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			_, err := other.Lock(within, fallback.LockRequest{Partition: p, Key: "another", Me: storetest.Bob, Block: 1})
			return err == nil
		})
	}
}

// Galera's statements are those of MariaDB.
func TestMySQL_RefusesGaleraOfMySQL(t *testing.T) {
	takes.Seconds(t)
	if *program != "" {
		t.Skip("the server is MySQL's: MariaDB's can pretend to be one with Galera")
	}
	s := startServer(t, "--version=8.0.36-28.1", "--wsrep-on=ON", "--binlog-format=ROW")
	refused(t, New(s.config("app"), options()), "MariaDB only")
}
