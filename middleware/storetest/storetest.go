// Package storetest checks that a store keeps the contract of [middleware.Store]. [Run] is for the
// tests of every implementation, third parties' included:
//
//	func TestConformance(t *testing.T) {
//		storetest.Run(t, func(t *testing.T) middleware.Store { return mine.New(startServer(t)) })
//	}
package storetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/middleware"
)

// Run tests the stores that open returns, which must be empty. It calls open once for each of its
// subtests, which run one after another; open may use t.Cleanup. They need 1 MiB of room, and some
// of them wait for records to expire, a second at most each.
func Run(t *testing.T, open func(t *testing.T) middleware.Store) {
	for _, x := range []struct {
		name string
		run  func(*space)
	}{
		{"WhatIsNotThere", absent},
		{"WhatWasPut", roundTrip},
		{"KeysAreApart", keys},
		{"AHigherFenceReplaces", higher},
		{"AnEqualFenceReplaces", equal},
		{"ALowerFenceIsRefused", lower},
		{"FencesUseAllBits", bits},
		{"RecordsExpire", expiry},
		{"PutMovesTheExpiry", moved},
		{"AnExpiredFenceCountsNoMore", forgotten},
		{"BytesAreTheCallers", ownership},
		{"ATTLMustBePositive", ttl},
		{"TheHighestFenceWins", race},
		{"ContextsThatHaveEnded", ended},
	} {
		t.Run(x.name, func(t *testing.T) { x.run(&space{t, open(t)}) })
	}
}

// space is a store under test.
type space struct {
	*testing.T
	store middleware.Store
}

// key is as long as the middleware's are.
func key(name string) string { return name + strings.Repeat("-", 43-len(name)) }

const long = time.Hour

func (s *space) put(name, record string, fence uint64, ttl time.Duration) {
	s.Helper()
	if err := s.store.Put(s.Context(), key(name), []byte(record), fence, ttl); err != nil {
		s.Fatalf("Put of %q with fence %d: %v", name, fence, err)
	}
}

func (s *space) stale(fence uint64) {
	s.Helper()
	const name = "a"
	if err := s.store.Put(s.Context(), key(name), []byte("stale"), fence, long); !errors.Is(err, middleware.ErrStale) {
		s.Fatalf("Put of %q with fence %d: %v, want ErrStale", name, fence, err)
	}
}

func (s *space) is(name, want string) {
	s.Helper()
	got, err := s.store.Get(s.Context(), key(name))
	if err != nil || string(got) != want {
		s.Fatalf("Get of %q: %.40q, %v, want %.40q", name, got, err, want)
	}
}

func (s *space) none(name string) {
	s.Helper()
	if got, err := s.store.Get(s.Context(), key(name)); !errors.Is(err, middleware.ErrNoRecord) {
		s.Fatalf("Get of %q: %.40q, %v, want ErrNoRecord", name, got, err)
	}
}

// gone waits until a record has expired.
func (s *space) gone(name string) {
	s.Helper()
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if _, err := s.store.Get(s.Context(), key(name)); errors.Is(err, middleware.ErrNoRecord) {
			return
		}
	}
	s.Fatalf("%q did not expire", name)
}

func absent(s *space) { s.none("a") }

func roundTrip(s *space) {
	all := make([]byte, 256)
	for i := range all {
		all[i] = byte(i)
	}
	large := make([]byte, 1<<19)
	r := rand.NewChaCha8([32]byte{1})
	_, _ = r.Read(large)
	for i, record := range []string{"text", "", string(all), string(large), "\r\n", "0", strings.Repeat("9", 40)} {
		s.put("a", record, uint64(i+1), long)
		s.is("a", record)
	}
}

func keys(s *space) {
	s.put("a", "A", 2, long)
	s.put("b", "B", 1, long)
	s.put("A", "other", 1, long)
	s.is("a", "A")
	s.is("b", "B")
	s.none("c")
}

func higher(s *space) {
	s.put("a", "1", 1, long)
	s.put("a", "2", 2, long)
	s.is("a", "2")
}

func equal(s *space) {
	s.put("a", "started", 7, long)
	s.put("a", "answered", 7, long)
	s.is("a", "answered")
}

func lower(s *space) {
	s.put("a", "9", 9, long)
	s.stale(8)
	s.stale(0)
	s.is("a", "9")
	s.put("a", "10", 10, long) // as numbers, not as texts
	s.stale(9)
	s.is("a", "10")
}

func bits(s *space) {
	for _, f := range []uint64{1<<53 + 1, 1<<62 + 1, 1<<63 - 1} {
		s.put("a", fmt.Sprint(f), f, long)
		s.stale(f - 1)
		s.is("a", fmt.Sprint(f))
	}
}

func expiry(s *space) {
	s.put("short", "1", 1, 50*time.Millisecond)
	s.put("long", "1", 1, long)
	s.gone("short")
	s.is("long", "1")
}

func moved(s *space) {
	s.put("a", "1", 1, 300*time.Millisecond)
	s.put("a", "2", 1, long)
	s.put("mark", "1", 1, 600*time.Millisecond) // twice as long as a's would have been
	s.gone("mark")
	s.is("a", "2")
	s.put("a", "3", 1, 50*time.Millisecond)
	s.gone("a")
}

func forgotten(s *space) {
	s.put("a", "1", 9, 50*time.Millisecond)
	s.gone("a")
	s.put("a", "2", 1, long)
	s.is("a", "2")
}

func ownership(s *space) {
	b := []byte("mine")
	if err := s.store.Put(s.Context(), key("a"), b, 1, long); err != nil {
		s.Fatal(err)
	}
	copy(b, "ours")
	got, err := s.store.Get(s.Context(), key("a"))
	if err != nil || string(got) != "mine" {
		s.Fatalf("%q, %v: the store has kept the caller's bytes", got, err)
	}
	copy(got, "YYYY")
	s.is("a", "mine")
}

func ttl(s *space) {
	for _, d := range []time.Duration{0, -time.Second} {
		if err := s.store.Put(s.Context(), key("a"), nil, 1, d); err == nil {
			s.Errorf("Put for %v succeeded", d)
		}
	}
	s.none("a")
	s.put("a", "1", 1, time.Nanosecond) // less than a store may be able to count
	s.gone("a")
}

// race puts from many goroutines at once. Whatever the order, the highest fence is there in the
// end, and no Put succeeds after one with a higher fence has returned.
func race(s *space) {
	const n = 50
	var (
		mu   sync.Mutex
		done uint64 // the highest fence of a Put that has returned; guarded by mu
		wg   sync.WaitGroup
	)
	for _, i := range rand.Perm(n) {
		fence := uint64(i + 1)
		wg.Go(func() {
			mu.Lock()
			before := done
			mu.Unlock()
			err := s.store.Put(s.Context(), key("a"), fmt.Append(nil, fence), fence, long)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil && before > fence:
				s.Errorf("fence %d was accepted after %d", fence, before)
			case err == nil:
				done = max(done, fence)
			case !errors.Is(err, middleware.ErrStale):
				s.Error(err)
			}
		})
	}
	wg.Wait()
	s.is("a", fmt.Sprint(n))
}

func ended(s *space) {
	s.put("a", "1", 1, long)
	ctx, cancel := context.WithCancel(s.Context())
	cancel()
	if got, err := s.store.Get(ctx, key("a")); err == nil && !bytes.Equal(got, []byte("1")) || errors.Is(err, middleware.ErrNoRecord) {
		s.Errorf("Get: %q, %v: a call that was given up is no answer", got, err)
	}
	err := s.store.Put(ctx, key("a"), []byte("2"), 2, long)
	if errors.Is(err, middleware.ErrStale) {
		s.Errorf("Put: %v: a call that was given up is no answer", err)
	}
	if err == nil {
		s.is("a", "2")
	}
}
