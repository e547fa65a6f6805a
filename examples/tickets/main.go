// Command tickets sells the seats of a concert, each once. The arbiter's table, the token and the
// seats are in one PostgreSQL database: one transaction checks the token, decides and writes, and a
// failover loses either all of it or nothing. Run as many as you like:
//
//	go run ./examples/tickets -database postgres://localhost/test -seats 5000
//
// Each process that has the concert's lock sells from memory of it: the database sees the sales,
// and one renewal and one read per process in 2.5 s. docs/fencing.md says why the token goes first,
// and docs/arbiters.md which failures the arbiter survives.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback/postgres"
	"github.com/holdfast-go/holdfast/fence"
	"github.com/holdfast-go/holdfast/fence/pgxfence"
	"github.com/holdfast-go/holdfast/gossip"
)

func main() {
	dsn := flag.String("database", "", "`DSN` of a PostgreSQL server")
	concert := flag.String("concert", "opening night", "what seats are sold of")
	seats := flag.Int64("seats", 1000, "seats of a concert that is new")
	sellers := flag.Int("sellers", 8, "goroutines that sell")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	sold, unknown, err := run(ctx, *dsn, *concert, *seats, *sellers, true)
	stop()
	fmt.Printf("%d tickets sold here, and %d perhaps\n", sold, unknown)
	if err != nil && !errors.Is(err, context.Canceled) {
		log.Fatal(err)
	}
}

// schema has no constraint that would refuse a ticket too many. fence is the column for the token.
const schema = `
CREATE TABLE IF NOT EXISTS concerts (name text PRIMARY KEY, seats bigint NOT NULL, fence bigint NOT NULL DEFAULT 0);
CREATE TABLE IF NOT EXISTS tickets (number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, concert text NOT NULL, buyer text NOT NULL)`

// run sells until the concert is sold out, or ctx ends. locked is false in a test only.
func run(ctx context.Context, dsn, concert string, seats int64, sellers int, locked bool) (sold, unknown int64, err error) {
	config, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return 0, 0, err
	}
	config.MaxConns = int32(sellers)
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return 0, 0, err
	}
	defer pool.Close()
	if err := prepare(ctx, pool, concert, seats); err != nil {
		return 0, 0, err
	}
	// The arbiter has connections of its own to the same database, so that sales never wait for a
	// session's renewal, nor it for them.
	locks, err := coord.New(ctx, postgres.New(config, nil), &coord.Options{
		Namespace: "tickets", Cluster: &coord.Cluster{Membership: gossip.Start, Gossip: "127.0.0.1:0"}, Partitions: 61,
	})
	if err != nil {
		return 0, 0, err
	}
	defer func() { // gives everything away; waits for locks in use until ctx ends
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		_ = locks.Close(ctx)
	}()

	b := &boxOffice{pool: pool, locks: locks, concert: concert}
	sell := b.sell
	if !locked {
		sell = b.sellCarelessly
	}
	var all sync.WaitGroup
	errs := make([]error, sellers)
	for i := range sellers {
		all.Go(func() { errs[i] = b.work(ctx, sell) })
	}
	all.Wait()
	return b.sold.Load(), b.unknown.Load(), errors.Join(errs...)
}

func prepare(ctx context.Context, pool *pgxpool.Pool, concert string, seats int64) error {
	return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		// CREATE TABLE IF NOT EXISTS of two processes at the same time may fail otherwise.
		if _, err := tx.Exec(ctx, `SELECT pg_advisory_xact_lock(hashtext('tickets'))`); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, schema); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, `INSERT INTO concerts (name, seats) VALUES ($1, $2) ON CONFLICT DO NOTHING`, concert, seats)
		return err
	})
}

// A boxOffice is one process.
type boxOffice struct {
	pool    *pgxpool.Pool
	locks   *coord.Coordinator
	concert string

	sold, unknown atomic.Int64
}

var errSoldOut = errors.New("sold out")

// work sells until there is nothing left. While the database is away it tries again.
func (b *boxOffice) work(ctx context.Context, sell func(ctx context.Context, buyer string) error) error {
	for n := 0; ; n++ {
		err := sell(ctx, fmt.Sprint("buyer ", os.Getpid(), "/", n))
		switch {
		case err == nil:
			b.sold.Add(1)
		case errors.Is(err, errSoldOut):
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.Is(err, fence.ErrUnknown): // perhaps it was sold: the buyer has to look, and must not buy again
			b.unknown.Add(1)
		default:
			select {
			case <-time.After(100 * time.Millisecond):
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
	}
}

// sell sells a ticket, in one transaction: the token, the decision and both writes.
func (b *boxOffice) sell(ctx context.Context, buyer string) error {
	seats := pgxfence.Column{Table: "concerts", Key: "name"}
	return seats.DoTx(ctx, b.locks, b.pool, "concert/"+b.concert, b.concert, func(ctx context.Context, tx pgx.Tx) error {
		return b.decide(ctx, tx, buyer)
	})
}

// sellCarelessly is sell without the lock and the token.
func (b *boxOffice) sellCarelessly(ctx context.Context, buyer string) error {
	return pgx.BeginFunc(ctx, b.pool, func(tx pgx.Tx) error { return b.decide(ctx, tx, buyer) })
}

// decide reads, decides, and writes. It is right only while no one else does the same.
func (b *boxOffice) decide(ctx context.Context, tx pgx.Tx, buyer string) error {
	var left int64
	if err := tx.QueryRow(ctx, `SELECT seats FROM concerts WHERE name = $1`, b.concert).Scan(&left); err != nil {
		return err
	}
	if left == 0 {
		return errSoldOut
	}
	if _, err := tx.Exec(ctx, `UPDATE concerts SET seats = $2 WHERE name = $1`, b.concert, left-1); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, `INSERT INTO tickets (concert, buyer) VALUES ($1, $2)`, b.concert, buyer)
	return err
}
