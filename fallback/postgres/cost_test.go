package postgres_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback/postgres"
)

// What processes cost at rest, each of which holds a lock. README.md has the figures.
func TestPostgres_WhatItCostsAtRest(t *testing.T) {
	if !*long {
		t.Skip("takes a minute: make arbiters")
	}
	for _, nodes := range []int{1, 10} {
		s := startServer(t)
		for i := range nodes {
			c, err := coord.New(t.Context(), postgres.New(s.config("app"), options()), &coord.Options{Namespace: "rest"})
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
				defer cancel()
				if err := c.Close(ctx); err != nil {
					t.Error(err)
				}
			}()
			l, err := c.Lock(t.Context(), fmt.Sprint("key ", i))
			if err != nil {
				t.Fatal(err)
			}
			defer l.Unlock()
		}
		conn, err := pgx.Connect(t.Context(), s.dsn("admin"))
		if err != nil {
			t.Fatal(err)
		}
		type figures struct{ transactions, wal, updates, hot, connections, bytes int64 }
		look := func() (f figures) {
			t.Helper()
			if err := conn.QueryRow(t.Context(), `SELECT pg_stat_clear_snapshot()::text, (SELECT xact_commit FROM pg_stat_database WHERE datname = 'postgres'),
				pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::bigint, n_tup_upd, n_tup_hot_upd,
				(SELECT count(*) FROM pg_stat_activity WHERE usename = 'app'), pg_total_relation_size('hf.locks')
				FROM pg_stat_user_tables WHERE relname = 'locks'`).
				Scan(nil, &f.transactions, &f.wal, &f.updates, &f.hot, &f.connections, &f.bytes); err != nil {
				t.Fatal(err)
			}
			return f
		}
		const while = 25 * time.Second
		time.Sleep(5 * time.Second) // what the start costs is not at rest
		from := look()
		time.Sleep(while)
		to := look()
		hour := func(n int64) int64 { return n * int64(time.Hour/while) / int64(nodes) }
		t.Logf("%d nodes, for each and hour: %d transactions, %d updates, %d of them HOT, %d KiB of WAL; %d connections, %d KiB of table in all", nodes,
			hour(to.transactions-from.transactions), hour(to.updates-from.updates), hour(to.hot-from.hot), hour(to.wal-from.wal)>>10,
			to.connections/int64(nodes), to.bytes>>10)
		if err := conn.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
}
