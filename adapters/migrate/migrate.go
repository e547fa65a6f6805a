// Package migrate puts a lock of Holdfast in the place of the database's own one in
// github.com/golang-migrate/migrate/v4: for databases that have none, or behind a pooler such as
// pgbouncer, where session locks do not hold.
package migrate

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/golang-migrate/migrate/v4/database"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/internal/unit"
)

// Options are the options of [Wrap].
type Options struct {
	// Wait is the longest wait of Lock. It is shorter than LockTimeout of the migrate.Migrate,
	// which would go on without the lock's being given back. Default 14 s, as LockTimeout is 15 s.
	// Negative values are refused, and less than 1 ms.
	Wait time.Duration
}

// Driver is a [database.Driver] that locks by a key. Once that lock was lost, no further migration
// runs. One that runs goes on: migrate has no way to tell it. Its version is recorded as clean when
// it has ended, and the call, such as Up, returns an error that Is [coord.ErrLost]. The next call
// locks anew.
type Driver struct {
	database.Driver
	c    *coord.Coordinator
	key  string
	wait time.Duration

	mu    sync.Mutex // protects the fields below
	held  coord.Lock
	dirty *int // the version that was recorded as dirty last; nil: none
}

// Wrap returns a driver that locks the key, such as "migrate/orders", in the place of d's own lock.
func Wrap(d database.Driver, c *coord.Coordinator, key string, opts *Options) (*Driver, error) {
	o := Options{}
	if opts != nil {
		o = *opts
	}
	switch {
	case d == nil || c == nil:
		return nil, errors.New("migrate: the driver or the coordinator is nil")
	case key == "" || len(key) > coord.MaxKey:
		return nil, coord.ErrInvalidKey
	case o.Wait < 0:
		return nil, fmt.Errorf("migrate: Options.Wait is %v, must not be negative", o.Wait)
	case o.Wait == 0:
		o.Wait = 14 * time.Second
	}
	if err := unit.Check("migrate: Options.Wait", o.Wait, time.Millisecond, "14 * time.Second"); err != nil {
		return nil, err
	}
	return &Driver{Driver: d, c: c, key: key, wait: o.Wait}, nil
}

// Open returns a driver for another database, with the same lock.
func (d *Driver) Open(url string) (database.Driver, error) {
	other, err := d.Driver.Open(url)
	if err != nil {
		return nil, err
	}
	return &Driver{Driver: other, c: d.c, key: d.key, wait: d.wait}, nil
}

// Lock implements [database.Driver]. Its error is that of [coord.Coordinator.Lock], and also
// [database.ErrLocked] if another process has the key for all of Options.Wait.
func (d *Driver) Lock() error {
	ctx, cancel := context.WithTimeout(context.Background(), d.wait)
	defer cancel()
	l, err := d.c.Lock(ctx, d.key)
	switch {
	case errors.Is(err, coord.ErrLocked):
		return fmt.Errorf("%w: %w", database.ErrLocked, err)
	case err != nil:
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.held = l
	return nil
}

// Unlock implements [database.Driver]. It returns nil also if the lock was lost, as migrate takes
// itself to be locked for good after an error: the calls under the lock have told the loss.
func (d *Driver) Unlock() error {
	if err := d.lock().Unlock(); !errors.Is(err, coord.ErrLost) {
		return err
	}
	return nil
}

// Run implements [database.Driver]. After a loss the migration does not run. If its version was
// recorded before, it remains dirty.
func (d *Driver) Run(migration io.Reader) error {
	if err := d.check(); err != nil {
		return err
	}
	if err := d.Driver.Run(migration); err != nil {
		return d.tell(err)
	}
	return nil // migrate records the end of the migration, and is told there
}

// SetVersion implements [database.Driver]. After a loss no version becomes dirty, so no migration
// begins. The end of a migration is recorded also after a loss, if its version is still there as
// dirty: a dirty version keeps other processes from migrating until Force is called. After a loss
// the error Is [coord.ErrLost].
func (d *Driver) SetVersion(version int, dirty bool) error {
	if lost := d.check(); lost != nil && (dirty || !d.mine()) {
		return lost
	}
	err := d.Driver.SetVersion(version, dirty)
	if err == nil {
		d.note(version, dirty)
	}
	if dirty {
		return err
	}
	return d.tell(err)
}

// note keeps the recorded version if it is dirty, and else none.
func (d *Driver) note(version int, dirty bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.dirty = nil; dirty {
		d.dirty = &version
	}
}

// mine reports whether the version that was recorded as dirty last is still there, as dirty.
func (d *Driver) mine() bool {
	d.mu.Lock()
	mine := d.dirty
	d.mu.Unlock()
	version, dirty, err := d.Driver.Version()
	return err == nil && dirty && mine != nil && version == *mine
}

// Drop implements [database.Driver]. Its error Is [coord.ErrLost] if the lock was lost before or
// meanwhile.
func (d *Driver) Drop() error {
	if err := d.check(); err != nil {
		return err
	}
	return d.tell(d.Driver.Drop())
}

// tell returns err, and with it that the lock was lost.
func (d *Driver) tell(err error) error {
	lost := d.check()
	switch {
	case lost == nil:
		return err
	case err == nil:
		return lost
	}
	return errors.Join(err, lost)
}

// check returns an error if the lock was lost.
func (d *Driver) check() error {
	ctx := d.lock().Context()
	if ctx.Err() != nil {
		return fmt.Errorf("migrate: %w", context.Cause(ctx))
	}
	return nil
}

func (d *Driver) lock() coord.Lock {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.held
}
