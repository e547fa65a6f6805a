package postgres_test

import (
	"context"
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/fallback/postgres"
	"github.com/holdfast-go/holdfast/internal/await"
)

// first and second are partitions of the records p10 and p2: in this order by their keys, and in
// the other one in the table, which is filled by number.
const first, second = 10, 2

// A write of several records locks them in the order of their keys, in whatever order the caller
// names them, and the server finds them: no two of them each wait for the other.
func TestPostgres_RecordsAreLockedInTheOrderOfTheirKeys(t *testing.T) {
	s := startServer(t)
	n, turns := attachCounted(t, s)
	for _, plan := range []string{"any", "nestloop", "hashjoin", "mergejoin"} {
		for _, x := range []string{"nestloop", "hashjoin", "mergejoin"} {
			s.must(fmt.Sprintf(`ALTER ROLE app SET enable_%s = %t`, x, plan == "any" || plan == x))
		}
		s.must(`SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'app'`)
		unlocksInOrder(t, s, n, plan, first, second)
		unlocksInOrder(t, s, n, plan, second, first)
	}
	unlock := func() (took int64) {
		releases := lockAll(t, n, first, second)
		before := turns.Load()
		noErrors(t, n.Unlock(t.Context(), releases))
		return turns.Load() - before
	}
	unlock() // prepares the statement
	if took := unlock(); took != 2 {
		t.Errorf("an Unlock of two records took %d round trips, want a Load and a Swap", took)
	}
}

// attachCounted attaches with enough partitions, and counts round trips.
func attachCounted(t *testing.T, s *server) (fallback.Namespace, *atomic.Int64) {
	t.Helper()
	turns := new(atomic.Int64)
	config := s.config("app")
	config.ConnConfig.DialFunc = func(ctx context.Context, _, _ string) (net.Conn, error) {
		conn, err := s.connect(ctx)
		return &turning{Conn: conn, turns: turns}, err
	}
	own := settings
	own.Partitions = 11
	n, err := postgres.New(config, options()).Attach(t.Context(), own)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = n.Close() })
	s.must(`ANALYZE hf.locks`)
	return n, turns
}

// lockAll locks a key in each partition.
func lockAll(t *testing.T, n fallback.Namespace, partitions ...uint32) (releases []fallback.Release) {
	t.Helper()
	for _, p := range partitions {
		a := again(t, func() (fallback.LockAnswer, error) {
			return n.Lock(t.Context(), fallback.LockRequest{Partition: p, Key: "k", Me: alice, Block: 1})
		})
		if a.Verdict != fallback.Granted {
			t.Fatalf("%+v", a)
		}
		releases = append(releases, fallback.Release{Partition: p, Key: "k", Identity: alice})
	}
	return releases
}

func noErrors(t *testing.T, all []error) {
	t.Helper()
	for _, err := range all {
		if err != nil {
			t.Error(err)
		}
	}
}

// unlocksInOrder has an Unlock wait for the first record, and looks whether the second one is free.
func unlocksInOrder(t *testing.T, s *server, n fallback.Namespace, plan string, partitions ...uint32) {
	t.Helper()
	releases := lockAll(t, n, partitions...)
	conn, err := pgx.Connect(t.Context(), s.dsn("admin"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	tx, err := conn.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	const record = `SELECT FROM hf.locks WHERE key = $1 FOR UPDATE`
	key := func(p int) string { return fmt.Sprintf("%s/p%d", settings.Namespace, p) }
	if _, err := tx.Exec(t.Context(), record, key(first)); err != nil {
		t.Fatal(err)
	}
	done := make(chan []error, 1)
	go func() { done <- n.Unlock(t.Context(), releases) }()
	await.Within(t, time.Minute, "the write waits", func() bool {
		var waits bool
		err := tx.QueryRow(t.Context(), `SELECT pg_stat_clear_snapshot()::text, EXISTS (
			SELECT FROM pg_stat_activity WHERE usename = 'app' AND wait_event_type = 'Lock')`).Scan(nil, &waits)
		return err == nil && waits
	})
	if _, err := tx.Exec(t.Context(), record+` NOWAIT`, key(second)); err != nil {
		t.Errorf("with the plan %s, a write of %v that waits for %s has locked the other one: %v", plan, partitions, key(first), err)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	noErrors(t, <-done)
}

// turning counts how often a connection writes after it has read.
type turning struct {
	net.Conn
	turns *atomic.Int64
	wrote atomic.Bool
}

func (c *turning) Write(b []byte) (int, error) {
	if !c.wrote.Swap(true) {
		c.turns.Add(1)
	}
	return c.Conn.Write(b)
}

func (c *turning) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 {
		c.wrote.Store(false)
	}
	return n, err
}
