package coord

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/await"
	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/internal/takes"
)

// syncBuffer is a buffer that goroutines share.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *syncBuffer) count(text string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return strings.Count(b.b.String(), text)
}

// A node holds and waits for as many keys of another one as that lets it. Then its callers are
// told, and the owner's log; other callers of the owner's keys are served.
func TestCluster_MaxPerNode(t *testing.T) {
	takes.Seconds(t)
	m := fallback.NewMemory()
	var log syncBuffer
	o := small()
	o.Cluster.MaxPerNode = 4
	o.Logger = slog.New(slog.NewTextHandler(&log, nil))
	a, b := enter(t, m, o), enter(t, m, small())
	if err := a.Settled(t.Context(), 2); err != nil {
		t.Fatal(err)
	}
	full := func(what string) {
		t.Helper()
		for n := range 2 {
			ctx, cancel := context.WithCancel(t.Context())
			err := error(nil)
			key := keyOf(a, what, n)
			if n == 0 {
				_, err = b.Lock(ctx, key)
			} else {
				_, err = b.TryLock(ctx, key)
			}
			cancel()
			if !errors.Is(err, ErrUnavailable) || errors.Is(err, ErrLocked) || !strings.Contains(err.Error(), "MaxPerNode") {
				t.Errorf("%s: %v", what, err)
			}
		}
		if err := lockOf(t, a, a, "own "+what).Unlock(); err != nil {
			t.Error(err)
		}
	}
	held := []Lock{lockOf(t, a, b, "one"), lockOf(t, a, b, "two"), lockOf(t, a, b, "three"), lockOf(t, a, b, "four")}
	full("held")
	await.Until(t, "the refusal is logged", func() bool { return log.count("requests are refused") == 1 })
	for _, l := range held {
		if err := l.Unlock(); err != nil {
			t.Error(err)
		}
	}
	await.Until(t, "b may lock again", func() bool {
		l, err := b.TryLock(t.Context(), held[0].Key())
		if err == nil {
			_ = l.Unlock()
		}
		return err == nil
	})

	await.Until(t, "nothing is counted", func() bool { return used(a) == 0 })

	// The keys that it waits for count as well.
	var mine []Lock
	ctx, cancel := context.WithCancel(t.Context())
	var waiting sync.WaitGroup
	for _, name := range []string{"w1", "w2", "w3", "w4"} {
		l := lockOf(t, a, a, name)
		mine = append(mine, l)
		waiting.Go(func() {
			if l, err := b.Lock(ctx, l.Key()); err == nil {
				_ = l.Unlock()
			}
		})
	}
	await.Until(t, "b waits for four keys", func() bool { return b.Stats().Waiting == 4 && used(a) >= 4 })
	full("waited")
	cancel()
	waiting.Wait()
	for _, l := range mine {
		_ = l.Unlock()
	}
	await.Until(t, "nothing is counted", func() bool { return used(a) == 0 })
	if n := log.count("requests are refused"); n != 1 {
		t.Errorf("%d records", n)
	}
}

// A request that gives back more than it takes is let in at the node's limit, and is no refusal.
func TestCluster_ADowngradeIsNoRefusal(t *testing.T) {
	takes.Seconds(t)
	m := fallback.NewMemory()
	o := small()
	o.Cluster.MaxPerNode = 1
	a, b := enter(t, m, o), enter(t, m, small())
	if err := a.Settled(t.Context(), 2); err != nil {
		t.Fatal(err)
	}
	l := lockOf(t, a, b, "k")
	refused := func() (n int64) {
		for _, l := range a.cluster.all() {
			n += l.refused.Load()
		}
		return n
	}
	r, err := l.Downgrade(t.Context())
	if err != nil || refused() != 0 {
		t.Errorf("%v, %d refusals", err, refused())
	}
	if _, err := b.Lock(t.Context(), keyOf(a, "another", 0)); !errors.Is(err, ErrUnavailable) || refused() != 1 {
		t.Errorf("%v, %d refusals", err, refused())
	}
	if err := r.Unlock(); err != nil {
		t.Error(err)
	}
}

// used returns how much all other nodes use of c's quotas.
func used(c *Coordinator) (n int64) {
	for _, l := range c.cluster.all() {
		n += l.used.Load()
	}
	return n
}

// keyOf is the nth key of those that owner grants.
func keyOf(owner *Coordinator, prefix string, nth int) string {
	for n := 0; ; n++ {
		key := prefix + strings.Repeat("'", n)
		p := owner.partitionOf(key)
		p.mu.Lock()
		mine := p.Phase() == lease.Owned
		p.mu.Unlock()
		if !mine {
			continue
		}
		if nth == 0 {
			return key
		}
		nth--
	}
}
