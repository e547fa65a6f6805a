package redisarbiter_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/redistest"
)

// Demote of a partition with many holds takes the server few commands, or it would hold up all
// others.
func TestRedis_DemoteOfManyRowsIsFewCommands(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	c, watcher := s.Client(t), s.Client(t)
	n := attachTo(t, c, cold, fallback.Settings{Namespace: "ns", Partitions: 1, Grace: time.Hour})
	const holds = 5000
	for round := range 2 { // the second one replaces all rows of the first
		r, err := n.Load(t.Context(), 0)
		if err != nil {
			t.Fatal(err)
		}
		got, err := n.Acquire(t.Context(), 0, "owner", fallback.Expect{Epoch: r.Epoch})
		if err != nil || got.Verdict != fallback.Granted || len(got.Rows) != round*holds {
			t.Fatalf("Acquire: %v, %d rows, %v", got.Verdict, len(got.Rows), err)
		}
		rows := make(map[string]fallback.Row)
		for i := range holds {
			rows[fmt.Sprint("key ", round, " ", i)] = fallback.Row{
				Identity: fallback.Identity{Session: "alice", Request: uint64(i + 1)}, Token: fallback.MakeToken(got.Record.Epoch, uint32(i+1)),
			}
		}
		before := calls(t, watcher)
		d, err := n.Demote(t.Context(), 0, "owner", got.Record.Epoch, rows)
		if err != nil || d.Verdict != fallback.Granted {
			t.Fatalf("Demote: %+v, %v", d, err)
		}
		if took := calls(t, watcher) - before; took > 40 {
			t.Errorf("demote with %d rows: %d commands, want 40 at most", holds, took)
		}
		read := fallback.Read{}
		for key := range rows {
			read.Keys = append(read.Keys, key)
		}
		for i, row := range n.Verify(t.Context(), []fallback.Read{read})[0].Rows {
			if row != rows[read.Keys[i]] {
				t.Fatalf("row of %q: %+v, want %+v", read.Keys[i], row, rows[read.Keys[i]])
			}
		}
	}
}
