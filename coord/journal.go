package coord

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/internal/logs"
)

// An Event is a record of a process's log, as [NodeReport] has the last ones.
type Event struct {
	Time  time.Time `json:"time"`
	Level string    `json:"level"`
	Text  string    `json:"text"` // the message, and its attributes
}

// Bounds of the journal.
const (
	mostEvents = 32
	maxEvent   = 300 // bytes of a Text
)

// journal keeps the last records of level Info or above, whether or not there is a logger. Records
// with one message leave room for those with others: records that strangers cause do not displace
// the record of a lost lock.
type journal struct {
	mu  mutex[lastRank] // protects all
	all []Event         // the newest first
}

// last returns the events, the newest first.
func (j *journal) last() []Event {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.all)
}

func (j *journal) add(e Event) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.all = logs.Thin(slices.Insert(j.all, 0, e), mostEvents, func(e Event) string { return e.Text })
}

// noting is a slog.Handler that notes records in the journal, and passes them on.
type noting struct {
	slog.Handler
	journal *journal
}

func (h noting) Enabled(ctx context.Context, l slog.Level) bool {
	return l >= slog.LevelInfo || h.Handler.Enabled(ctx, l)
}

func (h noting) WithAttrs(a []slog.Attr) slog.Handler {
	return noting{h.Handler.WithAttrs(a), h.journal}
}

func (h noting) WithGroup(name string) slog.Handler {
	return noting{h.Handler.WithGroup(name), h.journal}
}

func (h noting) Handle(ctx context.Context, r slog.Record) error {
	if r.Level >= slog.LevelInfo {
		h.journal.add(Event{r.Time, r.Level.String(), textOf(&r)})
	}
	if !h.Handler.Enabled(ctx, r.Level) {
		return nil
	}
	return h.Handler.Handle(ctx, r)
}

// textOf returns a record's message and attributes.
func textOf(r *slog.Record) string {
	var b strings.Builder
	b.WriteString(strings.TrimPrefix(r.Message, "holdfast: "))
	r.Attrs(func(a slog.Attr) bool {
		b.WriteString(" " + a.Key + "=" + a.Value.Resolve().String())
		return b.Len() < maxEvent
	})
	text := b.String()
	return strings.ToValidUTF8(text[:min(len(text), maxEvent)], "")
}
