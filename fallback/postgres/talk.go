package postgres

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-go/holdfast/fallback"
)

// talker is a store with messages: NOTIFY and LISTEN.
type talker struct {
	*store
	deaf atomic.Pointer[error] // nil: messages come, or the server is away
}

// channel returns the name of a channel in the database, of 63 characters at most.
func channel(name string) string {
	sum := sha256.Sum256([]byte(name))
	return "holdfast_" + hex.EncodeToString(sum[:16])
}

// Send implements [fallback.Messenger]. A commit with a notification waits for the commits of all
// others, so messages are sent apart from the records.
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

const (
	probeFor   = 5 * time.Second // how long the first message may take
	probeLeast = time.Second     // a shorter silence says nothing of a pooler
	answerFor  = time.Second     // a probe leaves so much of its context's time; unlisten takes so much at most
)

// probing is how long a probe takes: it ends before ctx does, so that its caller is told why.
func probing(ctx context.Context) time.Duration {
	end, limited := ctx.Deadline()
	if !limited {
		return probeFor
	}
	left := time.Until(end)
	return min(probeFor, max(left-answerFor, left/2))
}

// Receive implements [fallback.Messenger]. It has a connection of its own.
func (t *talker) Receive(ctx context.Context, channels []string, handle func(string), lost func()) (func(), error) {
	c, err := t.listen(ctx, channels)
	if err != nil {
		return nil, refusedAtStart(denied(err))
	}
	t.deaf.Store(nil)
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
			c, err = t.listen(life, channels)
			switch {
			case err == nil:
				t.deaf.Store(nil)
				lost()
			case errors.Is(err, fallback.ErrRefused):
				why := err // the next pass overwrites err
				t.deaf.Store(&why)
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

// Advise tells as well of a pooler that loses messages, and did not when the process began.
func (t *talker) Advise(ctx context.Context) ([]string, error) {
	advice, err := t.store.Advise(ctx)
	if deaf := t.deaf.Load(); deaf != nil {
		advice = append(advice, fmt.Sprintf("keys are handed over late, as messages do not come: %v", *deaf))
	}
	return advice, err
}

// listen makes a connection that has got its own first message.
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
	if err := t.keeps(ctx, c); err != nil {
		return c, err
	}
	var listen, unlisten strings.Builder
	for _, name := range channels {
		listen.WriteString(`LISTEN ` + channel(name) + `; `)
		unlisten.WriteString(`UNLISTEN ` + channel(name) + `; `)
	}
	pid, err := askPID(ctx, c, listen.String())
	if err != nil {
		return c, failed(err)
	}
	// From another connection: a connection's messages to itself come with the answer, also through
	// a pooler.
	if err := t.Send(ctx, []fallback.Mail{{Channel: channels[0]}}); err != nil {
		return c, err
	}
	patience := probing(ctx)
	wait, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if _, err := c.WaitForNotification(wait); err != nil {
		if !errors.Is(err, context.DeadlineExceeded) {
			return c, err
		}
		t.unlisten(ctx, config, unlisten.String(), pid)
		if patience < probeLeast || ctx.Err() != nil {
			return c, fmt.Errorf("no message came back within %v: %w", patience, err)
		}
		return c, errDeaf
	}
	return c, nil
}

// errDeaf says that a pooler loses messages.
var errDeaf = refusal("no message comes back, as behind a pooler in transaction or statement mode: set postgres.Options.Listen to a connection " +
	"that leads to the server itself, or Mute")

// keeps refuses a connection that its pooler lends to others between two transactions. It looks
// before LISTEN, which would stay with the server's process, and have it send other clients
// messages that are not for them. It does not find every such pooler.
func (t *talker) keeps(ctx context.Context, c *pgx.Conn) error {
	first, err := askPID(ctx, c, "")
	if err != nil || first == c.PgConn().PID() { // there is no pooler
		return err
	}
	var other uint32
	if err := t.do(ctx, "", reading, func(x *pgxpool.Conn) (err error) { other, err = askPID(ctx, x.Conn(), ""); return err }); err != nil {
		return err
	}
	again, err := askPID(ctx, c, "")
	if err == nil && (other == first || again != first) {
		err = errDeaf
	}
	return err
}

// askPID executes statements, and returns the number of the server's process that did.
func askPID(ctx context.Context, c *pgx.Conn, statements string) (pid uint32, err error) {
	results := c.PgConn().Exec(ctx, statements+`SELECT pg_backend_pid()`)
	for results.NextResult() {
		if r := results.ResultReader(); r.NextRow() {
			n, parsed := strconv.ParseUint(string(r.Values()[0]), 10, 32)
			pid, err = uint32(n), parsed
		}
	}
	return pid, errors.Join(err, results.Close())
}

// unlistenTries is how often unlisten asks for the connection: a pooler may have up to as many at
// work.
const unlistenTries = 20

// unlisten takes back a LISTEN that has stayed with a process of the server. It may not find that.
// It goes on although ctx ends.
func (t *talker) unlisten(ctx context.Context, config *pgx.ConnConfig, statements string, pid uint32) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), answerFor)
	defer cancel()
	c, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return
	}
	defer closeConn(c)
	for range unlistenTries {
		if at, err := askPID(ctx, c, statements); err != nil || at == pid {
			return
		}
	}
}
