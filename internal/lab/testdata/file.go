package main

import (
	"context"
	"database/sql"
	"log"
	"log/slog"
	"os"
	"time"

	_ "modernc.org/sqlite" // the driver "sqlite"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback/sqlite"
	"github.com/holdfast-go/holdfast/gossip"
	"github.com/holdfast-go/holdfast/internal/lab/agent"
)

func main() {
	if err := run(context.Background(), os.Args[1], os.Args[2]); err != nil {
		log.Fatal(err)
	}
}

// run serves a node that takes no partition within an hour. Without a message its callers ask the arbiter again each half minute.
func run(ctx context.Context, source, arbiter string) (err error) {
	db, err := sql.Open("sqlite", source)
	if err != nil {
		return err
	}
	defer db.Close()
	if _, err := db.ExecContext(ctx, `CREATE TABLE IF NOT EXISTS stock (sku TEXT PRIMARY KEY, units BIGINT NOT NULL, fence BIGINT);
		INSERT OR IGNORE INTO stock (sku, units) VALUES ('1', 1000)`); err != nil {
		return err
	}
	locks, err := coord.New(ctx, sqlite.New(arbiter, &sqlite.Options{ColdStart: true}), &coord.Options{
		Namespace: "file", Partitions: 31,
		SessionTTL: 10 * time.Minute, Grace: 15 * time.Minute, RenewEvery: 30 * time.Second, RetryEvery: 30 * time.Second,
		Logger:  slog.New(slog.NewTextHandler(os.Stderr, nil)),
		Cluster: &coord.Cluster{Membership: gossip.Start, Debounce: time.Hour, MaxDebounce: time.Hour, Takeover: -1, Keepalive: time.Second},
	})
	if err != nil {
		return err
	}
	defer func() {
		if closed := locks.Close(ctx); err == nil {
			err = closed
		}
	}()
	return agent.Serve(ctx, locks, db)
}
