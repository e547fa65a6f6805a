package main

import (
	"context"
	"database/sql"
	"errors"
	"log"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
	_ "modernc.org/sqlite" // the driver "sqlite"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/lab/agent"
)

var (
	errStale   = errors.New("stale")
	errSoldOut = errors.New("sold out")
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1]); err != nil {
		log.Fatal(err)
	}
}

// run sells a unit from a database of all hosts.
func run(ctx context.Context, source string) error {
	db, err := sql.Open("sqlite", source)
	if err != nil {
		return err
	}
	defer db.Close()
	if _, err := db.ExecContext(ctx, `CREATE TABLE IF NOT EXISTS stock (sku TEXT PRIMARY KEY, units BIGINT NOT NULL, fence BIGINT);
		INSERT OR IGNORE INTO stock (sku, units) VALUES ('1', 1000)`); err != nil {
		return err
	}
	return sell(ctx, db, "1")
}

func sell(ctx context.Context, db *sql.DB, sku string) error {
	//snippet
	if err != nil {
		return err
	}
	return agent.Serve(ctx, locks, db)
}
