package coord

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/await"
)

// While one of several servers takes no releases, those that this process owes it do not keep rows
// on the others, of which messages say that it has not got the holds, from being removed.
func TestHeard_OwnReleasesLeaveRoom(t *testing.T) {
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
	for i := range maxHeard {
		id := fallback.Identity{Session: s.ID, Request: uint64(i) + 2}
		r.add(c.parts[silent].ReleaseOf(fmt.Sprint("owed ", i), id))
	}
	await.Until(t, "they have failed", func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return len(r.pending) == 0
	})
	key := "k"
	for i := 0; c.partitionOf(key).Number() != other; i++ {
		key = fmt.Sprint("k", i)
	}
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
}
