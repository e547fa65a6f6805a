package postgres

import (
	"context"
	"net"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// connectFor is for how long a server may be dialled, with its greeting, where the config has no connect_timeout.
const connectFor = 2 * time.Second

// limit limits how long a connection has a place in a pool that serves no call: while it is made, and after a call was given up.
// A server that has died without a word would keep it for 2 minutes, which is pgxpool's own limit, and for 15 seconds, which are
// pgconn's: to ask the server to cancel the statement, and to hear what it still says.
func limit(c *pgx.ConnConfig) {
	if c.ConnectTimeout <= 0 {
		c.ConnectTimeout = connectFor
	}
	most := c.ConnectTimeout
	dial, after := c.DialFunc, c.AfterNetConnect
	c.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, most)
		defer cancel()
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		// This is all that limits a request to cancel: AfterNetConnect is not called for one.
		if err := conn.SetDeadline(time.Now().Add(most)); err != nil {
			_ = conn.Close()
			return nil, err
		}
		return limited{conn, most}, nil
	}
	c.AfterNetConnect = func(ctx context.Context, config *pgconn.Config, conn net.Conn) (net.Conn, error) {
		if err := conn.SetDeadline(time.Time{}); err != nil || after == nil {
			return conn, err
		}
		return after(ctx, config, conn)
	}
}

// limited is a connection whose deadline is never later than a time from now.
type limited struct {
	net.Conn
	most time.Duration
}

func (c limited) SetDeadline(t time.Time) error {
	if latest := time.Now().Add(c.most); t.After(latest) {
		t = latest
	}
	return c.Conn.SetDeadline(t)
}
