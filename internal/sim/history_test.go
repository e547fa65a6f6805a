package sim

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/history"
)

// Locks allow the history of all modes that clients of real coordinators record. With one more hold
// in it, beside one in force, they do not.
func TestHistoriesOfAllModes(t *testing.T) {
	r := simulate(t, Config{Seed: 1, TTL: 10 * time.Second, Nodes: 3, Clients: 4, Keys: 2, Think: 400 * time.Millisecond, Length: 12, History: true})
	if len(r.Bad) > 0 {
		t.Fatal(r.Bad)
	}
	// The first hold of each kind that was in force for some time, and a hold that must not be
	// beside it.
	held := func(ops ...history.Op) (hold, seen history.Record) {
		t.Helper()
		for _, seen := range r.Records {
			i := slices.IndexFunc(r.Records, func(x history.Record) bool {
				return seen.Op == history.Seen && x.Process == seen.Process && x.ID == seen.Hold && slices.Contains(ops, x.Op)
			})
			if i >= 0 && seen.Call-r.Records[i].Return > 2*time.Millisecond {
				return r.Records[i], seen
			}
		}
		t.Fatalf("nothing in %d records was held for long by %v", len(r.Records), ops)
		return hold, seen
	}
	for _, c := range []struct {
		name   string
		of     []history.Op
		beside history.Record
	}{
		{"a reader beside a writer", []history.Op{history.Lock, history.TryLock}, history.Record{Op: history.RLock}},
		{"a writer beside a reader", []history.Op{history.RLock, history.TryRLock}, history.Record{Op: history.Lock}},
		{"a writer beside what was downgraded", []history.Op{history.Downgrade}, history.Record{Op: history.Lock}},
		{"too many permits", []history.Op{history.Acquire, history.TryAcquire}, history.Record{Op: history.Acquire, Permits: semaphore, Of: semaphore}},
	} {
		t.Run(c.name, func(t *testing.T) {
			hold, seen := held(c.of...)
			x, end := c.beside, history.Record{Op: history.Unlock, Hold: 1}
			x.Process, x.ID, x.Key, x.Fence = "another", 1, hold.Key, hold.Fence+1
			x.Call, x.Return = hold.Return+1, hold.Return+2
			end.Process, end.ID, end.Key, end.Call, end.Return = x.Process, 2, x.Key, hold.Return+3, hold.Return+4
			if end.Return >= seen.Call {
				t.Fatal("the hold was not in force for long enough")
			}
			err := history.Check(append(slices.Clone(r.Records), x, end), judging)
			if !errors.Is(err, history.ErrViolated) {
				t.Errorf("%v beside %v: %v", x, hold, err)
			}
		})
	}
	t.Run("a writer's token is no higher than a reader's", func(t *testing.T) {
		reader, _ := held(history.RLock, history.TryRLock)
		wrong := slices.Clone(r.Records)
		i := slices.IndexFunc(wrong, func(x history.Record) bool {
			return x.Op == history.Lock && x.Key == reader.Key && x.Fence > reader.Fence && !x.Refused && !x.Unknown
		})
		if i < 0 {
			t.Fatal("no writer has come after the reader")
		}
		wrong[i].Fence = reader.Fence
		if err := history.Check(wrong, judging); !errors.Is(err, history.ErrViolated) {
			t.Error(err)
		}
	})
}
