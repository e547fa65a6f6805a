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

// A Limited logger writes the first record with a message at once, and then at most one per [Every]. A record that follows
// others that were left out tells their number, as the attribute suppressed.
type Limited struct {
	to *slog.Logger

	mu   sync.Mutex      // protects kinds
	kind map[string]kind // by message
}

// kind is what is known of the records with one message.
type kind struct {
	last    time.Time // when the last one was written
	skipped int       // records since then
}

// Limit returns a Limited logger that writes to another one.
func Limit(to *slog.Logger) *Limited { return &Limited{to: to, kind: make(map[string]kind)} }

// Info logs at level Info.
func (l *Limited) Info(text string, args ...any) { l.log(slog.LevelInfo, text, args) }

// Warn logs at level Warn.
func (l *Limited) Warn(text string, args ...any) { l.log(slog.LevelWarn, text, args) }

// Error logs at level Error.
func (l *Limited) Error(text string, args ...any) { l.log(slog.LevelError, text, args) }

func (l *Limited) log(level slog.Level, text string, args []any) {
	if !l.to.Enabled(context.Background(), level) {
		return
	}
	now := time.Now()
	l.mu.Lock()
	k := l.kind[text]
	if !k.last.IsZero() && now.Sub(k.last) < Every {
		k.skipped++
		l.kind[text] = k
		l.mu.Unlock()
		return
	}
	l.kind[text] = kind{last: now}
	l.mu.Unlock()
	if k.skipped > 0 {
		args = append(args[:len(args):len(args)], "suppressed", k.skipped)
	}
	l.to.Log(context.Background(), level, text, args...)
}
