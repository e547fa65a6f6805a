package dbtest

import (
	"cmp"
	"context"
	"database/sql"
	"database/sql/driver"
)

// A Gate is called before each statement is sent, with its text, or BEGIN, COMMIT or ROLLBACK.
// While the gate does not return, the client stands still as a stopped process does: the context
// was looked at before, and the statement is sent in any case. An error of the gate takes the place
// of the answer: the statement is executed, and the client does not know.
type Gate func(statement string) error

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
	lost := c.gate("BEGIN")
	ctx = context.WithoutCancel(ctx)
	tx, err := c.Conn.(driver.ConnBeginTx).BeginTx(ctx, opts)
	if err := cmp.Or(err, lost); err != nil {
		return nil, err
	}
	return gatedTx{tx, c.gate}, nil
}

func (c *gatedConn) ExecContext(ctx context.Context, text string, args []driver.NamedValue) (driver.Result, error) {
	lost := c.gate(text)
	r, err := c.Conn.(driver.ExecerContext).ExecContext(context.WithoutCancel(ctx), text, args)
	return r, cmp.Or(err, lost)
}

func (c *gatedConn) QueryContext(ctx context.Context, text string, args []driver.NamedValue) (driver.Rows, error) {
	lost := c.gate(text)
	rows, err := c.Conn.(driver.QueryerContext).QueryContext(context.WithoutCancel(ctx), text, args)
	if err == nil && lost != nil {
		rows.Close()
		return nil, lost
	}
	return rows, err
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
	lost := t.gate("COMMIT")
	return cmp.Or(t.Tx.Commit(), lost)
}

func (t gatedTx) Rollback() error {
	lost := t.gate("ROLLBACK")
	return cmp.Or(t.Tx.Rollback(), lost)
}
