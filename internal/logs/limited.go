// Package logs limits how often records of one kind are written.
package logs

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// Every is the least time between two records with the same message.
const Every = 10 * time.Second

// Limit returns a logger that writes the first record with a message at once, and then at most one
// per [Every]. A record that follows others that were left out tells their number, as the attribute
// suppressed.
func Limit(to *slog.Logger) *slog.Logger {
	return slog.New(handler{to.Handler(), &kinds{last: make(map[string]kind)}})
}

// handler is the limit on another handler.
type handler struct {
	to    slog.Handler
	kinds *kinds
}

func (h handler) Enabled(ctx context.Context, l slog.Level) bool { return h.to.Enabled(ctx, l) }
func (h handler) WithAttrs(a []slog.Attr) slog.Handler           { return handler{h.to.WithAttrs(a), h.kinds} }
func (h handler) WithGroup(name string) slog.Handler             { return handler{h.to.WithGroup(name), h.kinds} }

func (h handler) Handle(ctx context.Context, r slog.Record) error {
	skipped, due := h.kinds.due(r.Message, time.Now())
	if !due {
		return nil
	}
	if skipped > 0 {
		r = r.Clone()
		r.AddAttrs(slog.Int("suppressed", skipped))
	}
	return h.to.Handle(ctx, r)
}

// kinds is the messages written lately.
type kinds struct {
	mu   sync.Mutex      // protects last
	last map[string]kind // by message
}

// kind is the state of the records with one message.
type kind struct {
	at      time.Time // when the last one was written
	skipped int       // records since then
}

// most is how many messages are kept in mind. Those of this module are fewer; a server's own may
// differ in each record.
const most = 256

// due reports whether a record is to be written now, and how many were left out since the last one.
func (k *kinds) due(message string, now time.Time) (skipped int, due bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	x, known := k.last[message]
	if known && now.Sub(x.at) < Every {
		x.skipped++
		k.last[message] = x
		return 0, false
	}
	if len(k.last) >= most {
		for m, old := range k.last {
			if now.Sub(old.at) >= Every {
				delete(k.last, m)
			}
		}
	}
	if known || len(k.last) < most {
		k.last[message] = kind{at: now}
	}
	return x.skipped, true
}
