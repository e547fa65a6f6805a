package postgres

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-go/holdfast/fallback"
)

// talker is a store with messages: NOTIFY and LISTEN.
type talker struct{ *store }

// channel returns the name of a channel in the database, of 63 characters at most.
func channel(name string) string {
	sum := sha256.Sum256([]byte(name))
	return "holdfast_" + hex.EncodeToString(sum[:16])
}

// Send implements [fallback.Messenger]. A commit with a notification waits for the commits of all others, so messages are
// sent apart from the records.
func (t *talker) Send(ctx context.Context, all []fallback.Mail) error {
	names, texts := make([]string, len(all)), make([]string, len(all))
	for i, m := range all {
		names[i], texts[i] = channel(m.Channel), m.Text
	}
	return t.do(ctx, "", writing, func(c *pgxpool.Conn) error {
		_, err := c.Exec(ctx, `SELECT pg_notify(c.name, c.text) FROM unnest($1::text[], $2::text[]) WITH ORDINALITY c (name, text, n) ORDER BY c.n`, names, texts)
		return err
	})
}

// probeFor is how long the first message may take.
const probeFor = 5 * time.Second

// Receive implements [fallback.Messenger]. It has a connection of its own.
func (t *talker) Receive(ctx context.Context, channels []string, handle func(string), lost func()) (func(), error) {
	c, err := t.listen(ctx, channels)
	if err != nil {
		return nil, err
	}
	life, end := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		for again := time.Duration(0); life.Err() == nil; {
			if c != nil {
				again = 0
				t.receive(life, c, handle)
			}
			select {
			case <-life.Done():
				return
			case <-time.After(again):
			}
			again = min(max(2*again, 50*time.Millisecond), 2*time.Second)
			if c, err = t.listen(life, channels); err == nil {
				lost()
			}
		}
	})
	return func() { end(); running.Wait() }, nil
}

// receive hands messages over until the connection or life ends.
func (t *talker) receive(life context.Context, c *pgx.Conn, handle func(string)) {
	defer closeConn(c)
	for {
		n, err := c.WaitForNotification(life)
		if err != nil {
			return
		}
		if n.Payload != "" {
			handle(n.Payload)
		}
	}
}

func closeConn(c *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = c.Close(ctx)
}

// listen makes a connection that has got its own first message: a pooler in transaction mode loses it.
func (t *talker) listen(ctx context.Context, channels []string) (c *pgx.Conn, err error) {
	config := t.opts.Listen.Copy()
	if before := t.config.BeforeConnect; before != nil {
		if err := before(ctx, config); err != nil {
			return nil, err
		}
	}
	own := config.Copy()
	limit(config)
	if c, err = pgx.ConnectConfig(ctx, config); err != nil {
		return nil, unreached(ctx, own, err)
	}
	defer func() {
		if err != nil {
			closeConn(c)
			c = nil
		}
	}()
	if after := t.config.AfterConnect; after != nil {
		if err := after(ctx, c); err != nil {
			return c, err
		}
	}
	for _, name := range channels {
		if _, err := c.Exec(ctx, `LISTEN `+channel(name)); err != nil {
			return c, failed(err)
		}
	}
	// From another connection: what a connection sends itself comes with the answer, also through a pooler.
	if err := t.Send(ctx, []fallback.Mail{{Channel: channels[0]}}); err != nil {
		return c, err
	}
	wait, cancel := context.WithTimeout(ctx, probeFor)
	defer cancel()
	if _, err := c.WaitForNotification(wait); err != nil {
		if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
			return c, fmt.Errorf("%w: no message comes back within %v, as behind a pooler in transaction mode: set postgres.Options.Listen to a connection "+
				"that leads to the server itself, or Mute", fallback.ErrRefused, probeFor)
		}
		return c, err
	}
	return c, nil
}
