package coord_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
)

// records is a logger's handler that keeps its records.
type records struct {
	mu   *sync.Mutex // protects all
	all  *[]record
	with []slog.Attr
}

// record is one that was logged.
type record struct {
	level slog.Level
	text  string
	attrs map[string]slog.Value
}

func (r record) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%v %s", r.level, r.text)
	for _, k := range slices.Sorted(func(yield func(string) bool) {
		for k := range r.attrs {
			if !yield(k) {
				return
			}
		}
	}) {
		fmt.Fprintf(&b, " %s=%v", k, r.attrs[k])
	}
	return b.String()
}

func newRecords() records { return records{mu: new(sync.Mutex), all: new([]record)} }

func (h records) Enabled(context.Context, slog.Level) bool { return true }
func (h records) WithGroup(string) slog.Handler            { return h }
func (h records) WithAttrs(attrs []slog.Attr) slog.Handler {
	h.with = slices.Concat(h.with, attrs)
	return h
}

func (h records) Handle(_ context.Context, r slog.Record) error {
	x := record{r.Level, r.Message, make(map[string]slog.Value)}
	for _, a := range h.with {
		x.attrs[a.Key] = a.Value
	}
	r.Attrs(func(a slog.Attr) bool { x.attrs[a.Key] = a.Value.Resolve(); return true })
	h.mu.Lock()
	defer h.mu.Unlock()
	*h.all = append(*h.all, x)
	return nil
}

// with returns the records with a text.
func (h records) about(text string) (found []record) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, r := range *h.all {
		if r.text == text {
			found = append(found, r)
		}
	}
	return found
}

// atLeast returns the records of a level, and above.
func (h records) atLeast(level slog.Level) (found []record) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, r := range *h.all {
		if r.level >= level {
			found = append(found, r)
		}
	}
	return found
}
