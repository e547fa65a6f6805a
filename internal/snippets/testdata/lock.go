package main

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"log"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
)

func main() {
	if err := sell(context.Background(), sql.OpenDB(database{}), "1"); err != nil {
		log.Fatal(err)
	}
}

func sell(ctx context.Context, db *sql.DB, sku string) error {
	//snippet
	return err
}

// database prints statements. Each of them affects a row.
type database struct{}

func (database) Connect(context.Context) (driver.Conn, error) { return database{}, nil }
func (database) Driver() driver.Driver                        { return nil }
func (database) Prepare(string) (driver.Stmt, error)          { return nil, driver.ErrSkip }
func (database) Begin() (driver.Tx, error)                    { return nil, driver.ErrSkip }
func (database) Close() error                                 { return nil }

func (database) ExecContext(_ context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	_, err := fmt.Println("under the lock:", query, args)
	return driver.RowsAffected(1), err
}
