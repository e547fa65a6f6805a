package migrate_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	lib "github.com/golang-migrate/migrate/v4"
	"github.com/golang-migrate/migrate/v4/database"
	"github.com/golang-migrate/migrate/v4/database/sqlite"
	"github.com/golang-migrate/migrate/v4/source/iofs"
	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast/adapters/adaptertest"
	"github.com/holdfast-go/holdfast/adapters/adaptertest/processtest"
	"github.com/holdfast-go/holdfast/adapters/migrate"
	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/leak"
)

func TestMain(m *testing.M) {
	// migrate leaves a goroutine behind that reads a migration ahead when another one has failed.
	leak.Main(m, goleak.IgnoreAnyFunction("github.com/golang-migrate/migrate/v4.(*Migration).Buffer"))
}

// hooked is SQLite, which calls run before each migration.
type hooked struct {
	database.Driver
	run func() error
}

func (h hooked) Run(migration io.Reader) error {
	if err := h.run(); err != nil {
		return err
	}
	return h.Driver.Run(migration)
}

// open returns a Migrate for a database of its own. Close it.
func open(c *coord.Coordinator, key string, run func() error) (*lib.Migrate, error) {
	inner, err := (&sqlite.Sqlite{}).Open("sqlite://:memory:")
	if err != nil {
		return nil, err
	}
	d, err := migrate.Wrap(hooked{inner, run}, c, key, &migrate.Options{Wait: time.Minute})
	if err != nil {
		return nil, err
	}
	files, err := iofs.New(fstest.MapFS{
		"1_a.up.sql": {Data: []byte("CREATE TABLE a (x INTEGER)")},
		"2_b.up.sql": {Data: []byte("CREATE TABLE b (x INTEGER)")},
	}, ".")
	if err != nil {
		return nil, err
	}
	m, err := lib.NewWithInstance("files", files, "sqlite", d)
	if err != nil {
		return nil, err
	}
	m.LockTimeout = 2 * time.Minute
	return m, nil
}

// up migrates a database of its own.
func up(c *coord.Coordinator, key string, run func() error) error {
	m, err := open(c, key, run)
	if err != nil {
		return err
	}
	defer m.Close()
	return m.Up()
}

func section(t *testing.T, c *coord.Coordinator, key string, section func(context.Context) error) error {
	done := false
	return up(c, key, func() error {
		if done {
			return nil // it is the second migration
		}
		done = true
		return section(t.Context())
	})
}

func TestDriver(t *testing.T) {
	adaptertest.Run(t, adaptertest.Fixture{
		Untold:   true,
		RealTime: true, // those goroutines would keep a bubble from ending
		Section:  section,
	})
}

func TestDriver_Processes(t *testing.T) { processtest.Run(t, section) }

// After a loss no further migration runs. The one that ran is recorded, the loss is told, and the
// next call locks anew.
func TestDriver_Lost(t *testing.T) {
	for lost := 1; lost <= 2; lost++ {
		t.Run(fmt.Sprint("in migration ", lost), func(t *testing.T) {
			c := adaptertest.Start(t, fallback.NewMemory(), nil)
			runs := 0
			m, err := open(c, "k", func() error {
				if runs++; runs != lost {
					return nil
				}
				return loseLock(t.Context(), c, "k")
			})
			if err != nil {
				t.Fatal(err)
			}
			defer m.Close()
			if err := m.Up(); runs != lost || !errors.Is(err, coord.ErrLost) {
				t.Errorf("%d runs, %v", runs, err)
			}
			if v, dirty, err := m.Version(); v != uint(lost) || dirty || err != nil {
				t.Errorf("version %d, dirty %v, %v", v, dirty, err)
			}
			if err := m.Up(); runs != 2 || err != nil && !errors.Is(err, lib.ErrNoChange) {
				t.Errorf("again: %d runs, %v", runs, err)
			}
		})
	}
}

// A loss between the version and the migration leaves the version dirty: the migration does not
// run.
func TestDriver_LostBeforeTheMigration(t *testing.T) {
	c := adaptertest.Start(t, fallback.NewMemory(), nil)
	d, err := migrate.Wrap(new(kept), c, "k", nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(d.Lock(), d.SetVersion(1, true), loseLock(t.Context(), c, "k")); err != nil {
		t.Fatal(err)
	}
	for what, err := range map[string]error{
		"a migration": d.Run(strings.NewReader("")), "the next version": d.SetVersion(2, true), "Drop": d.Drop(),
		"a version that is clean": d.SetVersion(1, false),
	} {
		if !errors.Is(err, coord.ErrLost) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if err := d.Unlock(); err != nil {
		t.Error(err)
	}
	if err := d.Unlock(); !errors.Is(err, coord.ErrUnlocked) {
		t.Errorf("a second time: %v", err)
	}
}

// After a loss the end of a migration is recorded only over its own version: others may have gone
// on.
func TestDriver_LostAndRepaired(t *testing.T) {
	c := adaptertest.Start(t, fallback.NewMemory(), nil)
	database := new(kept)
	d, err := migrate.Wrap(database, c, "k", nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(d.Lock(), d.SetVersion(5, true), loseLock(t.Context(), c, "k")); err != nil {
		t.Fatal(err)
	}
	for _, by := range []kept{{version: 8}, {version: 8, dirty: true}, {version: 5}} {
		if *database = by; !errors.Is(d.SetVersion(5, false), coord.ErrLost) || *database != by {
			t.Errorf("%+v over %+v", *database, by)
		}
	}
	*database = kept{version: 5, dirty: true}
	if err := d.SetVersion(5, false); !errors.Is(err, coord.ErrLost) || database.dirty {
		t.Errorf("%+v, %v", *database, err)
	}
}

// kept is a database with a version.
type kept struct {
	database.Driver
	version int
	dirty   bool
}

func (k *kept) SetVersion(version int, dirty bool) error {
	k.version, k.dirty = version, dirty
	return nil
}

func (k *kept) Version() (int, bool, error) { return k.version, k.dirty, nil }

// loseLock takes the key's lock away from its holder.
func loseLock(ctx context.Context, c *coord.Coordinator, key string) error {
	info, err := c.Inspect(ctx, key)
	if err != nil {
		return err
	}
	return c.Break(ctx, key, info.Holder.Fence, "a test")
}

func TestDriver_Locked(t *testing.T) {
	c := adaptertest.Start(t, fallback.NewMemory(), nil)
	l, err := c.Lock(t.Context(), "k")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Unlock()
	d, err := migrate.Wrap(hooked{}, c, "k", &migrate.Options{Wait: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Lock(); !errors.Is(err, database.ErrLocked) || !errors.Is(err, coord.ErrLocked) {
		t.Errorf("got %v", err)
	}
}

func TestWrap_Refuses(t *testing.T) {
	c := adaptertest.Start(t, fallback.NewMemory(), nil)
	for want, f := range map[string]func() error{
		"coordinator":  func() error { _, err := migrate.Wrap(hooked{}, nil, "k", nil); return err },
		"key":          func() error { _, err := migrate.Wrap(hooked{}, c, "", nil); return err },
		"Wait":         func() error { _, err := migrate.Wrap(hooked{}, c, "k", &migrate.Options{Wait: -1}); return err },
		"Wait is 14ns": func() error { _, err := migrate.Wrap(hooked{}, c, "k", &migrate.Options{Wait: 14}); return err },
	} {
		if err := f(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}

func Example() {
	ctx := context.Background()
	locks, err := coord.New(ctx, fallback.NewMemory(), nil)
	if err != nil {
		log.Fatal(err)
	}
	inner, err := (&sqlite.Sqlite{}).Open("sqlite://:memory:")
	if err != nil {
		log.Fatal(err)
	}
	driver, err := migrate.Wrap(inner, locks, "migrate/orders", nil)
	if err != nil {
		log.Fatal(err)
	}
	files, err := iofs.New(fstest.MapFS{"1_orders.up.sql": {Data: []byte("CREATE TABLE orders (id INTEGER)")}}, ".")
	if err != nil {
		log.Fatal(err)
	}
	m, err := lib.NewWithInstance("files", files, "orders", driver)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(m.Up())
	m.Close()
	fmt.Println(locks.Close(ctx))
	// Output:
	// <nil>
	// <nil>
}
