package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"time"

	"github.com/redis/go-redis/v9"
	_ "modernc.org/sqlite" // the driver "sqlite"

	"github.com/holdfast-go/holdfast"
)

var (
	errStale   = errors.New("stale")
	errSoldOut = errors.New("sold out")
)

func main() {
	if err := run(context.Background()); err != nil {
		log.Fatal(err)
	}
}

// run sells a unit of two, and prints the row.
func run(ctx context.Context) error {
	db, err := sql.Open("sqlite", ":memory:")
	if err != nil {
		return err
	}
	defer db.Close()
	db.SetMaxOpenConns(1) // another connection would open another database
	if _, err := db.ExecContext(ctx, `CREATE TABLE stock (sku TEXT PRIMARY KEY, units BIGINT NOT NULL, fence BIGINT);
		INSERT INTO stock (sku, units) VALUES ('1', 2)`); err != nil {
		return err
	}
	if err := sell(ctx, db, "1"); err != nil {
		return err
	}
	var units int
	var fenced bool
	if err := db.QueryRowContext(ctx, `SELECT units, fence > 0 FROM stock`).Scan(&units, &fenced); err != nil {
		return err
	}
	_, err = fmt.Printf("%d left, with a token: %t\n", units, fenced)
	return err
}

func sell(ctx context.Context, db *sql.DB, sku string) error {
	//snippet
	return err
}
