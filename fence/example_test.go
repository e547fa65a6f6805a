package fence_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/fence"
)

// shop returns a database with two units of one article, and a coordinator's locks.
func shop(ctx context.Context) (db *sql.DB, locks *coord.Coordinator, end func()) {
	db, err := sql.Open("sqlite", ":memory:")
	if err != nil {
		log.Fatal(err)
	}
	db.SetMaxOpenConns(1) // another connection would open another database
	if _, err := db.ExecContext(ctx, `CREATE TABLE stock (sku TEXT PRIMARY KEY, units BIGINT NOT NULL, fence BIGINT);
		INSERT INTO stock (sku, units) VALUES ('4711', 2)`); err != nil {
		log.Fatal(err)
	}
	locks, err = coord.New(ctx, fallback.NewMemory(), nil)
	if err != nil {
		log.Fatal(err)
	}
	return db, locks, func() { locks.Close(ctx); db.Close() }
}

var errSold = errors.New("sold out")

func Example() {
	ctx := context.Background()
	db, locks, end := shop(ctx)
	defer end()

	fences := fence.Table{Dialect: fence.SQLite}
	if err := fences.EnsureTable(ctx, db); err != nil {
		fmt.Println(err)
		return
	}
	for range 3 {
		err := fences.DoTx(ctx, locks, db, "sku/4711", func(ctx context.Context, tx *sql.Tx) error {
			var units int
			if err := tx.QueryRowContext(ctx, `SELECT units FROM stock WHERE sku = '4711'`).Scan(&units); err != nil {
				return err
			}
			if units == 0 {
				return errSold
			}
			_, err := tx.ExecContext(ctx, `UPDATE stock SET units = $1 WHERE sku = '4711'`, units-1)
			return err
		})
		fmt.Println(err)
	}
	// Output:
	// <nil>
	// <nil>
	// sold out
}

// The transaction is begun by the caller, as with sqlx, bun or gorm.
func ExampleTable_Check() {
	ctx := context.Background()
	db, locks, end := shop(ctx)
	defer end()
	fences := fence.Table{Dialect: fence.SQLite}
	if err := fences.EnsureTable(ctx, db); err != nil {
		fmt.Println(err)
		return
	}

	sell := func(l coord.Lock) error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer tx.Rollback()
		if err := fences.Check(ctx, tx, l.Key(), l.Fence()); err != nil { // before anything is read
			return err
		}
		if _, err := tx.ExecContext(ctx, `UPDATE stock SET units = units - 1 WHERE sku = '4711' AND units > 0`); err != nil {
			return err
		}
		return tx.Commit()
	}
	var kept [2]coord.Lock
	for i := range kept {
		if err := locks.Do(ctx, "sku/4711", func(_ context.Context, l coord.Lock) error { kept[i] = l; return nil }); err != nil {
			fmt.Println(err)
		}
	}
	fmt.Println("the later holder:", sell(kept[1]))
	fmt.Println("the earlier one is stale:", errors.Is(sell(kept[0]), fence.ErrStale))
	// Output:
	// the later holder: <nil>
	// the earlier one is stale: true
}

// The token is kept in a column of the caller's table.
func ExampleColumn() {
	ctx := context.Background()
	db, locks, end := shop(ctx)
	defer end()

	stock := fence.Column{Dialect: fence.SQLite, Table: "stock", Key: "sku"}
	err := stock.DoTx(ctx, locks, db, "sku/4711", "4711", func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `UPDATE stock SET units = 7 WHERE sku = '4711'`)
		return err
	})
	fmt.Println(err)
	// Output: <nil>
}

// The section asks another service, so that a transaction around it would be long.
func ExampleTable_Put() {
	ctx := context.Background()
	db, locks, end := shop(ctx)
	defer end()
	fences := fence.Table{Dialect: fence.SQLite}
	if err := fences.EnsureTable(ctx, db); err != nil {
		fmt.Println(err)
		return
	}

	err := locks.Do(ctx, "sku/4711", func(ctx context.Context, l coord.Lock) error {
		if err := fences.Put(ctx, db, l.Key(), l.Fence()); err != nil { // before anything is read
			return err
		}
		var units int
		if err := db.QueryRowContext(ctx, `SELECT units FROM stock WHERE sku = '4711'`).Scan(&units); err != nil {
			return err
		}
		ordered := 10 - units // by another service, which takes its time
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer tx.Rollback()
		if err := fences.Check(ctx, tx, l.Key(), l.Fence()); err != nil { // no later holder has begun
			return err
		}
		if _, err := tx.ExecContext(ctx, `UPDATE stock SET units = $1 WHERE sku = '4711'`, units+ordered); err != nil {
			return err
		}
		return tx.Commit()
	})
	fmt.Println(err)
	// Output: <nil>
}
