package mysql

import (
	"context"
	"database/sql"
	"testing"

	driver "github.com/go-sql-driver/mysql"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/storetest/owners"
)

func TestMySQL_Row(t *testing.T) {
	config := func(address string) *driver.Config {
		c := configOf("app", "secret", func() string { return address })
		c.DBName = "hf"
		return c
	}
	owners.Row(t, owners.Store{
		Name:  "MariaDB",
		Serve: func() string { return startServer(t).now.Load().socket() },
		Open:  func(address string) fallback.Arbiter { return New(config(address), options()) },
		Usual: func(address string) func(context.Context, string) (func() error, error) {
			connector, err := driver.NewConnector(config(address))
			if err != nil {
				t.Fatal(err)
			}
			db := sql.OpenDB(connector)
			t.Cleanup(func() { _ = db.Close() })
			return func(ctx context.Context, key string) (func() error, error) { // the lock is its connection's
				c, err := db.Conn(ctx)
				if err != nil {
					return nil, err
				}
				if _, err := c.ExecContext(ctx, "DO GET_LOCK(?, 10)", key); err != nil {
					_ = c.Close()
					return nil, err
				}
				return func() error {
					defer c.Close()
					_, err := c.ExecContext(ctx, "DO RELEASE_LOCK(?)", key)
					return err
				}, nil
			}
		},
	})
}
