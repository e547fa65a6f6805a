package postgres_test

import (
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/fallback/postgres"
	"github.com/holdfast-go/holdfast/internal/storetest"
)

// The cost of processes at rest, each with a lock. README.md has the figures.
func TestPostgres_WhatItCostsAtRest(t *testing.T) {
	storetest.Minutes(t)
	for _, nodes := range []int{1, 10} {
		s := startServer(t)
		conn, err := pgx.Connect(t.Context(), s.dsn("admin"))
		if err != nil {
			t.Fatal(err)
		}
		var connections, bytes int64
		look := func() map[string]int64 {
			t.Helper()
			var transactions, wal, updates, hot int64
			if err := conn.QueryRow(t.Context(), `SELECT pg_stat_clear_snapshot()::text, (SELECT xact_commit FROM pg_stat_database WHERE datname = 'postgres'),
				pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::bigint, n_tup_upd, n_tup_hot_upd,
				(SELECT count(*) FROM pg_stat_activity WHERE usename = 'app'), pg_total_relation_size('hf.locks')
				FROM pg_stat_user_tables WHERE relname = 'locks'`).
				Scan(nil, &transactions, &wal, &updates, &hot, &connections, &bytes); err != nil {
				t.Fatal(err)
			}
			return map[string]int64{"transactions": transactions, "wal": wal, "updates": updates, "hot": hot}
		}
		start := func() fallback.Arbiter { return postgres.New(s.config("app"), options()) }
		hour := storetest.Rest(t, nodes, coord.Options{Namespace: "rest"}, start, look)
		t.Logf("%d nodes, for each and hour: %d transactions, %d updates, %d of them HOT, %d KiB of WAL; %d connections, %d KiB of table in all", nodes,
			hour["transactions"], hour["updates"], hour["hot"], hour["wal"]>>10, connections/int64(nodes), bytes>>10)
		if err := conn.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
}
