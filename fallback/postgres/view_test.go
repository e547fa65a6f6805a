package postgres_test

import (
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/fallback/postgres"
)

// Describe makes no table, and finds a namespace where there is one.
func TestPostgres_DescribeChangesNothing(t *testing.T) {
	s := startServer(t)
	a := postgres.New(s.config("app"), options())
	describe := func(a fallback.Arbiter) (fallback.Settings, error) {
		return a.(fallback.Describer).Describe(t.Context(), settings.Namespace)
	}
	conn, err := pgx.Connect(t.Context(), s.dsn("admin"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	for _, role := range []string{"app", "admin"} {
		if _, err := describe(postgres.New(s.config(role), options())); !errors.Is(err, fallback.ErrNoNamespace) {
			t.Errorf("%s: %v", role, err)
		}
	}
	var tables int
	err = conn.QueryRow(t.Context(), `SELECT count(*) FROM pg_class WHERE relname LIKE 'locks%'`).Scan(&tables)
	if err != nil || tables != 0 {
		t.Errorf("Describe has made %d tables and indexes, %v", tables, err)
	}
	n := attach(t, a)
	if found, err := describe(a); err != nil || found.Partitions != settings.Partitions {
		t.Errorf("%+v, %v", found, err)
	}
	s.must(`DELETE FROM hf.locks`)
	if _, err := describe(a); !errors.Is(err, fallback.ErrNoNamespace) {
		t.Errorf("of an empty table: %v", err)
	}
	lock(t, n, alice) // the pools are open
}
