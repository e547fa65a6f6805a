package coord

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/await"
)

// One of several servers takes no releases, neither owed ones nor those that messages ask for. Rows
// on the others are removed all the same when messages ask for holds that this process has not got.
func TestHeard_SilentServerLeavesRoom(t *testing.T) {
	for _, name := range []string{"owed", "heard"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const silent, other = 0, 1
			released := make(chan string, 10)
			c := enter(t, &unlocker{fallback.NewMemory(), func(releases []fallback.Release) error {
				for _, r := range releases {
					if r.Partition == silent {
						return errors.New("the server is away")
					}
				}
				for _, r := range releases {
					released <- r.Key
				}
				return nil
			}}, &Options{SessionTTL: time.Minute, Grace: 80 * time.Second, RetryEvery: 20 * time.Millisecond, Partitions: 7})
			l, err := c.Lock(t.Context(), "mine") // the first request
			if err != nil {
				t.Fatal(err)
			}
			s, r := c.sessions.current(), &c.debts.releases
			keys := 0
			keyOf := func(number uint32) string {
				for {
					keys++
					if key := fmt.Sprint("k", keys); c.partitionOf(key).Number() == number {
						return key
					}
				}
			}
			for range maxHeard {
				if name == "owed" {
					r.add(c.parts[silent].ReleaseOf(keyOf(silent), fallback.Identity{Session: s.ID, Request: 2}))
				} else {
					c.handle(s, fallback.Message{Kind: fallback.Ask, Key: keyOf(silent), Request: 1})
				}
			}
			await.Until(t, "they have failed", func() bool {
				r.mu.Lock()
				defer r.mu.Unlock()
				return len(r.pending) == 0 && len(r.failed) == maxHeard
			})
			key := keyOf(other)
			c.handle(s, fallback.Message{Kind: fallback.Ask, Key: key, Request: 1})
			select {
			case got := <-released:
				if got != key {
					t.Errorf("%q was released, want %q", got, key)
				}
			case <-time.After(30 * time.Second):
				t.Error("the row that this process knows nothing of stays")
			}
			if err := l.Unlock(); err != nil {
				t.Error(err)
			}
		})
	}
}
