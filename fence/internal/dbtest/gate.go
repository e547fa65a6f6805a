package dbtest

import (
	"context"
	"database/sql"
	"database/sql/driver"
)

// A Gate is called before each statement is sent, with its text, or BEGIN, COMMIT or ROLLBACK. While
// the gate does not return, the client stands still as a stopped process does: the context was looked
// at before, and the statement is sent in any case.
type Gate func(statement string)

// Open opens the database with a gate in front of it, or none.
func (d *Database) Open(g Gate) (*sql.DB, error) {
	c, err := d.connector()
	if err != nil {
		return nil, err
	}
	if g == nil {
		return sql.OpenDB(c), nil
	}
	return sql.OpenDB(gatedConnector{c, g}), nil
}

type gatedConnector struct {
	driver.Connector
	gate Gate
}

func (c gatedConnector) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return &gatedConn{conn, c.gate}, nil
}

type gatedConn struct {
	driver.Conn
	gate Gate
}

func (c *gatedConn) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	c.gate("BEGIN")
	ctx = context.WithoutCancel(ctx)
	tx, err := c.Conn.(driver.ConnBeginTx).BeginTx(ctx, opts)
	if err != nil {
		return nil, err
	}
	return gatedTx{tx, c.gate}, nil
}

func (c *gatedConn) ExecContext(ctx context.Context, text string, args []driver.NamedValue) (driver.Result, error) {
	c.gate(text)
	return c.Conn.(driver.ExecerContext).ExecContext(context.WithoutCancel(ctx), text, args)
}

func (c *gatedConn) QueryContext(ctx context.Context, text string, args []driver.NamedValue) (driver.Rows, error) {
	c.gate(text)
	return c.Conn.(driver.QueryerContext).QueryContext(context.WithoutCancel(ctx), text, args)
}

func (c *gatedConn) PrepareContext(ctx context.Context, text string) (driver.Stmt, error) {
	return c.Conn.(driver.ConnPrepareContext).PrepareContext(ctx, text)
}

// CheckNamedValue leaves values to the driver, or to database/sql.
func (c *gatedConn) CheckNamedValue(v *driver.NamedValue) error {
	if checker, ok := c.Conn.(driver.NamedValueChecker); ok {
		return checker.CheckNamedValue(v)
	}
	return driver.ErrSkip
}

func (c *gatedConn) ResetSession(ctx context.Context) error {
	if resetter, ok := c.Conn.(driver.SessionResetter); ok {
		return resetter.ResetSession(ctx)
	}
	return nil
}

func (c *gatedConn) IsValid() bool {
	v, ok := c.Conn.(driver.Validator)
	return !ok || v.IsValid()
}

type gatedTx struct {
	driver.Tx
	gate Gate
}

func (t gatedTx) Commit() error {
	t.gate("COMMIT")
	return t.Tx.Commit()
}

func (t gatedTx) Rollback() error {
	t.gate("ROLLBACK")
	return t.Tx.Rollback()
}
