package coord_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/await"
	"github.com/holdfast-go/holdfast/internal/takes"
)

// Nodes that come and leave in order are nothing to be warned of.
func TestLog_AnOrderlyLifeWarnsOfNothing(t *testing.T) {
	takes.Seconds(t)
	a := fallback.NewMemory()
	h := newRecords()
	var nodes []*coord.Coordinator
	for _, name := range []string{"one", "two", "three"} {
		o := unhurried()
		o.Name, o.Logger = name, slog.New(h)
		nodes = append(nodes, join(t, a, o))
	}
	settle(t, 61, nodes...)
	for len(nodes) > 0 {
		_ = nodes[0].Do(t.Context(), "k", func(context.Context, coord.Lock) error { return nil })
		if err := nodes[0].Close(t.Context()); err != nil {
			t.Error(err)
		}
		if nodes = nodes[1:]; len(nodes) > 0 {
			settle(t, 61, nodes...)
		}
		// The others might try to reach it.
		await.Throughout(t, time.Second, "no warning", func() bool { return len(h.atLeast(slog.LevelWarn)) == 0 })
	}
	for _, r := range h.atLeast(slog.LevelWarn) {
		t.Errorf("%v", r)
	}
	for _, r := range h.atLeast(slog.LevelInfo) {
		t.Logf("%v", r)
	}
}
