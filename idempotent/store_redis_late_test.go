package idempotent_test

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/idempotent"
	"github.com/holdfast-go/holdfast/internal/once"
	"github.com/holdfast-go/holdfast/internal/redistest"
)

// A request of Put may arrive after the ones behind it, as a client has sent it twice or given it
// up. It does not make a job that is over one that runs: its answer would be lost, and a job that
// has failed would have an unknown outcome.
func TestRedisStore_ALateStart(t *testing.T) {
	client := redis.NewClient(&redis.Options{Addr: redistest.Start(t).Addr, ContextTimeoutEnabled: true})
	t.Cleanup(func() { _ = client.Close() })
	s := idempotent.NewRedisStore(client, nil)
	put := func(record []byte, fence uint64, want error) {
		t.Helper()
		if err := s.Put(t.Context(), "k", record, fence, time.Hour); !errors.Is(err, want) {
			t.Errorf("fence %d, %v: %v, want %v", fence, once.State(record[1]), err, want)
		}
	}
	print := once.Print{7}
	began := once.Encode(once.Started, print)
	for i, state := range []once.State{once.Answered, once.NotKept, once.Failed} {
		over, fence := once.Encode(state, print), uint64(10+i)
		put(began, fence, nil)
		put(began, fence, nil) // sent twice
		put(over, fence, nil)
		put(began, fence, idempotent.ErrStale)
		put(over, fence, nil) // sent twice
		if got, err := s.Get(t.Context(), "k"); err != nil || !bytes.Equal(got, over) {
			t.Errorf("%v: %v, %v", state, got, err)
		}
	}
	put(began, 9, idempotent.ErrStale)
	put(began, 20, nil) // of the next holder
}
