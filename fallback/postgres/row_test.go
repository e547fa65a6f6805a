package postgres_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/fallback/postgres"
	"github.com/holdfast-go/holdfast/internal/storetest/owners"
)

func TestPostgres_Row(t *testing.T) {
	config := func(address string) *pgxpool.Config {
		c, err := pgxpool.ParseConfig(address)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	owners.Row(t, owners.Store{
		Name:  "PostgreSQL",
		Serve: func() string { return startServer(t).dsn("app") },
		Open:  func(address string) fallback.Arbiter { return postgres.New(config(address), options()) },
		Usual: func(address string) func(context.Context, string) (func() error, error) {
			pool, err := pgxpool.NewWithConfig(t.Context(), config(address))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(pool.Close)
			return func(ctx context.Context, key string) (func() error, error) { // an advisory lock is its connection's
				c, err := pool.Acquire(ctx)
				if err != nil {
					return nil, err
				}
				if _, err := c.Exec(ctx, "SELECT pg_advisory_lock(hashtextextended($1, 0))", key); err != nil {
					c.Release()
					return nil, err
				}
				return func() error {
					defer c.Release()
					_, err := c.Exec(ctx, "SELECT pg_advisory_unlock(hashtextextended($1, 0))", key)
					return err
				}, nil
			}
		},
	})
}
