package goose_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"
	"testing"

	lib "github.com/pressly/goose/v3"
	_ "modernc.org/sqlite" // the driver "sqlite"

	"github.com/holdfast-go/holdfast/adapters/adaptertest"
	"github.com/holdfast-go/holdfast/adapters/adaptertest/processtest"
	"github.com/holdfast-go/holdfast/adapters/goose"
	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/leak"
)

func TestMain(m *testing.M) { leak.Main(m) }

// migrate runs one migration, in a database of its own.
func migrate(ctx context.Context, l *goose.Locker, migration func(context.Context) error) error {
	db, err := sql.Open("sqlite", ":memory:")
	if err != nil {
		return err
	}
	defer db.Close()
	db.SetMaxOpenConns(1)
	up := lib.NewGoMigration(1, &lib.GoFunc{RunTx: func(ctx context.Context, _ *sql.Tx) error { return migration(ctx) }}, nil)
	p, err := lib.NewProvider(lib.DialectSQLite3, db, nil, lib.WithLocker(l), lib.WithGoMigrations(up), lib.WithDisableGlobalRegistry(true))
	if err != nil {
		return err
	}
	_, err = p.Up(ctx)
	return err
}

func section(t *testing.T, c *coord.Coordinator, key string, section func(context.Context) error) error {
	l, err := goose.NewLocker(c, key)
	if err != nil {
		return err
	}
	return migrate(t.Context(), l, section)
}

func TestLocker(t *testing.T) {
	adaptertest.Run(t, adaptertest.Fixture{Untold: true, RealTime: true, Section: section})
}

func TestLocker_Processes(t *testing.T) { processtest.Run(t, section) }

// goose lets the next Up begin before it calls Unlock. The Unlock of one whose lock was lost frees
// nothing of the next one's.
func TestUnlock_AfterALoss(t *testing.T) {
	c := adaptertest.Start(t, fallback.NewMemory(), nil)
	l, err := goose.NewLocker(c, "k")
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Lock(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	info, err := c.Inspect(t.Context(), "k")
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Break(t.Context(), "k", info.Holder.Fence, "the test"); err != nil {
		t.Fatal(err)
	}
	if err := l.Lock(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	if err := l.Unlock(t.Context(), nil); !errors.Is(err, coord.ErrLost) {
		t.Errorf("the first Unlock: %v", err)
	}
	if _, err := c.TryLock(t.Context(), "k"); !errors.Is(err, coord.ErrLocked) {
		t.Errorf("after the first Unlock the key is free: %v", err)
	}
	if err := l.Unlock(t.Context(), nil); err != nil {
		t.Errorf("the second Unlock: %v", err)
	}
	if err := l.Unlock(t.Context(), nil); !errors.Is(err, coord.ErrUnlocked) {
		t.Errorf("a third one: %v", err)
	}
}

func TestNewLocker_Refuses(t *testing.T) {
	if _, err := goose.NewLocker(nil, "k"); err == nil {
		t.Error("a nil coordinator was accepted")
	}
	if _, err := goose.NewLocker(adaptertest.Start(t, fallback.NewMemory(), nil), ""); !errors.Is(err, coord.ErrInvalidKey) {
		t.Errorf("got %v", err)
	}
}

func Example() {
	ctx := context.Background()
	locks, err := coord.New(ctx, fallback.NewMemory(), nil)
	if err != nil {
		log.Fatal(err)
	}
	locker, err := goose.NewLocker(locks, "migrate/orders")
	if err != nil {
		log.Fatal(err)
	}
	// lib.NewProvider(lib.DialectPostgres, db, migrations, lib.WithLocker(locker)), and its Up:
	err = migrate(ctx, locker, func(context.Context) error { fmt.Println("migrated"); return nil })
	fmt.Println(err, locks.Close(ctx))
	// Output:
	// migrated
	// <nil> <nil>
}
