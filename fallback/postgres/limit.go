package postgres

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// connectFor is for how long a server may be dialled, with its greeting, where the config has no
// connect_timeout.
const connectFor = 2 * time.Second

// limit limits how long a connection has a place in a pool that serves no call: while it is made,
// and after a call was given up. A server that has died without a word would keep it for 2 minutes,
// which is pgxpool's own limit. After a call it would keep it for 15 seconds, which are pgconn's:
// to ask the server to cancel the statement, and to hear its last answer.
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
		limited := &limited{Conn: conn, most: most}
		_ = limited.SetDeadline(time.Now().Add(most))
		return limited, nil
	}
	c.AfterNetConnect = func(ctx context.Context, config *pgconn.Config, conn net.Conn) (net.Conn, error) {
		_ = conn.SetDeadline(time.Time{})
		if after == nil {
			return conn, nil
		}
		own, plain := conn.(*limited)
		if !plain { // TLS
			return after(ctx, config, conn)
		}
		conn, err := after(ctx, config, own.Conn)
		if err != nil {
			return conn, err
		}
		return &limited{Conn: conn, most: most}, nil
	}
}

// unreached names connect_timeout in the error of a connection that took too long, if the config
// does not set it.
func unreached(ctx context.Context, c *pgx.ConnConfig, err error) error {
	if c.ConnectTimeout > 0 || ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return fmt.Errorf("%w (no connection within %v: set connect_timeout)", err, connectFor)
}

// limited is a connection whose deadline is never later than a time from now. One that knows no
// deadlines, as through an SSH client, is closed in their place.
type limited struct {
	net.Conn
	most time.Duration

	mu  sync.Mutex
	end *time.Timer // closes the connection; nil: there is no deadline, or the connection knows it
}

func (c *limited) SetDeadline(t time.Time) error {
	if latest := time.Now().Add(c.most); t.After(latest) {
		t = latest
	}
	err := c.Conn.SetDeadline(t)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.end != nil {
		c.end.Stop()
		c.end = nil
	}
	if err != nil && !t.IsZero() {
		c.end = time.AfterFunc(time.Until(t), func() { _ = c.Conn.Close() })
	}
	return nil
}
