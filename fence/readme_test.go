package fence_test

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/coord"
)

var (
	errStale   = errors.New("stale")
	errSoldOut = errors.New("sold out")
)

// sellAsReadme is README's code, word for word.
func sellAsReadme(ctx context.Context, locks doer, db *sql.DB, sku string) (err error) {
	err = locks.Do(ctx, "sku/"+sku, func(ctx context.Context, l holdfast.Lock) error {
		tx, err := db.BeginTx(ctx, nil) // ctx ends if the lock is lost, and the transaction with it
		if err != nil {
			return err
		}
		defer tx.Rollback()
		var units int // The token goes in before the stock is read: see docs/fencing.md.
		err = tx.QueryRowContext(ctx,
			`UPDATE stock SET fence = $1 WHERE sku = $2 AND COALESCE(fence, 0) <= $1 RETURNING units`, l.Fence(), sku).Scan(&units)
		switch {
		case errors.Is(err, sql.ErrNoRows):
			return errStale // a later holder was here, or there is no such SKU
		case err != nil:
			return err
		case units == 0:
			return errSoldOut
		}
		if _, err := tx.ExecContext(ctx, `UPDATE stock SET units = $1 WHERE sku = $2`, units-1, sku); err != nil {
			return err
		}
		return tx.Commit()
	})
	return err
}

func TestReadme_SellsAsTested(t *testing.T) {
	const begin, end = "err = locks.Do(", "\n})\n"
	tested, shown := excerpt(t, "readme_test.go", "\t"+begin, strings.ReplaceAll(end, "\n}", "\n\t}")), excerpt(t, "../README.md", begin, end)
	if dedented := strings.ReplaceAll(tested, "\n\t", "\n")[1:]; dedented != shown {
		t.Errorf("README shows\n%s\ntested is\n%s", shown, dedented)
	}
}

// excerpt returns the part of a file from a line that begins with begin, to the first end.
func excerpt(t *testing.T, path, begin, end string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	_, after, ok := strings.Cut(string(text), "\n"+begin)
	inside, _, closed := strings.Cut(after, end)
	if !ok || !closed {
		t.Fatalf("%s has no %q to %q", path, begin, end)
	}
	return begin + inside + end
}

// Two customers want the last unit. The first holder stops between two statements, until the other
// one has sold, or waits for the row.
func TestReadme_StalledHolders(t *testing.T) {
	eachDatabase(t, func(t *testing.T, d *database) {
		d.mustExec(`CREATE TABLE stock (sku VARCHAR(100) PRIMARY KEY, units BIGINT NOT NULL, fence BIGINT)`)
		for stop := 0; ; stop++ {
			d.mustExec(`DELETE FROM stock`)
			d.mustExec(`INSERT INTO stock (sku, units) VALUES ('a', 1)`)
			sell := func(ctx context.Context, l coord.Lock, db *sql.DB) error {
				return sellAsReadme(ctx, stoppable{l}, db, "a")
			}
			where, errs := d.race(stop, sell, sell)
			if where == "" {
				break
			}
			sold := 0
			for i, err := range errs {
				switch {
				case err == nil:
					sold++
				case !errors.Is(err, errStale) && !errors.Is(err, errSoldOut):
					t.Errorf("stopped before %s: holder %d: %v", where, i+1, err)
				}
			}
			if left := d.number(`SELECT units FROM stock`); sold != 1 || left != 0 {
				t.Errorf("stopped before %s: sold %d, left %d, of 1; %v", where, sold, left, errs)
			}
		}
	}, sqliteKind, postgresKind)
}

// A lock may be used for more than one write, and a row without a token is sold as any other.
func TestReadme_TwiceUnderALock(t *testing.T) {
	eachDatabase(t, func(t *testing.T, d *database) {
		d.mustExec(`CREATE TABLE stock (sku VARCHAR(100) PRIMARY KEY, units BIGINT NOT NULL, fence BIGINT)`)
		d.mustExec(`INSERT INTO stock (sku, units) VALUES ('a', 2)`)
		l := d.lock()
		for i, want := range []error{nil, nil, errSoldOut} {
			if err := sellAsReadme(t.Context(), stoppable{l}, d.db, "a"); !errors.Is(err, want) {
				t.Errorf("sale %d: %v", i+1, err)
			}
		}
		if left := d.number(`SELECT units FROM stock`); left != 0 {
			t.Errorf("%d are left", left)
		}
	}, sqliteKind, postgresKind)
}
