package fallback_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/fallback"
)

// A busy ledger reads in some milliseconds, and writes one change after another.
type busy struct {
	*ledger
	turn  chan struct{}
	swaps atomic.Int64
}

func (b *busy) Load(ctx context.Context, keys []string) (fallback.Look, error) {
	time.Sleep(5*time.Millisecond + rand.N(10*time.Millisecond))
	look, err := b.ledger.Load(ctx, keys)
	time.Sleep(5*time.Millisecond + rand.N(10*time.Millisecond))
	return look, err
}

func (b *busy) Swap(ctx context.Context, server string, changes []fallback.Change) ([]bool, error) {
	b.swaps.Add(1)
	select {
	case b.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	defer func() { <-b.turn }()
	done, err := b.ledger.Swap(ctx, server, changes)
	time.Sleep(5 * time.Millisecond)
	if err == nil && done[0] {
		time.Sleep(15 * time.Millisecond) // to the disk
	}
	return done, err
}

// Processes that renew their sessions at the same moment are not in the way of each other for long.
func TestRecords_ACrowdRenews(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const nodes = 50
		b := &busy{ledger: newLedger(), turn: make(chan struct{}, 1)}
		var all []fallback.Namespace
		for i := range nodes {
			a := fallback.NewRecords(b, &fallback.RecordsOptions{ColdStart: true, Durable: true})
			n, err := a.Attach(t.Context(), fallback.Settings{Namespace: "ns", Partitions: 1, Grace: 12 * time.Second})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := n.Open(t.Context(), fmt.Sprint("s", i), fallback.Registration{TTL: time.Hour}); err != nil {
				t.Fatal(err)
			}
			all = append(all, n)
		}
		for range 3 {
			b.swaps.Store(0)
			began := time.Now()
			var work sync.WaitGroup
			for i, n := range all {
				work.Go(func() {
					if _, err := n.Renew(t.Context(), fmt.Sprint("s", i), fallback.Registration{TTL: time.Hour}); err != nil {
						t.Error(err)
					}
				})
			}
			work.Wait()
			swaps := b.swaps.Load()
			t.Logf("%d swaps, %v", swaps, time.Since(began))
			if swaps > 12*nodes {
				t.Errorf("%d processes made %d swaps", nodes, swaps)
			}
		}
		for _, n := range all {
			if err := n.Close(); err != nil {
				t.Error(err)
			}
		}
	})
}
