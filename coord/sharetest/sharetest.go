// Package sharetest checks that a [coord.ShareStore] keeps its contract.
//
//	func TestConformance(t *testing.T) {
//		sharetest.Run(t, func(t *testing.T) coord.ShareStore { return mine.New(startStore(t)) })
//	}
package sharetest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/internal/await"
)

// patience is how long to wait for what must happen: long, because machines that run tests can be
// slow.
const patience = 30 * time.Second

// Run checks the stores that create makes, in parallel subtests, each named by what it proves. Each
// gets a store without results in it. It takes about a second.
func Run(t *testing.T, create func(t *testing.T) coord.ShareStore) {
	t.Helper()
	for _, x := range []struct {
		name string
		run  func(*testing.T, coord.ShareStore)
	}{
		{"nothing is kept at first", nothing},
		{"what was put is got, whatever its bytes", bytes},
		{"a lower fence is refused, and changes nothing", fences},
		{"of many puts at once the highest fence stays", atOnce},
		{"what is kept ages, and expires", ages},
		{"a later put renews the time", renewal},
		{"a context that has ended ends a call", ended},
	} {
		t.Run(x.name, func(t *testing.T) {
			t.Parallel()
			x.run(t, create(t))
		})
	}
}

func put(t *testing.T, s coord.ShareStore, key, value string, fence uint64, keep time.Duration) {
	t.Helper()
	if err := s.Put(t.Context(), key, []byte(value), fence, keep); err != nil {
		t.Fatalf("Put(%q) with fence %d: %v", key, fence, err)
	}
}

func get(t *testing.T, s coord.ShareStore, key string) coord.Shared {
	t.Helper()
	r, err := s.Get(t.Context(), key)
	if err != nil {
		t.Fatalf("Get(%q): %v", key, err)
	}
	return r
}

func want(t *testing.T, s coord.ShareStore, key, value string, fence uint64) {
	t.Helper()
	r := get(t, s, key)
	if r.Fence != fence || string(r.Value) != value || r.Age < 0 || r.Age > patience {
		t.Errorf("Get(%q): got %d bytes, fence %d, age %v; want %d bytes, fence %d", key, len(r.Value), r.Fence, r.Age, len(value), fence)
	}
}

func nothing(t *testing.T, s coord.ShareStore) {
	if r := get(t, s, "k"); r.Fence != 0 {
		t.Errorf("got %+v", r)
	}
}

func bytes(t *testing.T, s coord.ShareStore) {
	keys := []string{"k", " ", "a b", "\x00", "{a}", "a\nb", "\xff\xfe", "鍵", "*", strings.Repeat("k", coord.MaxKey)}
	values := []string{"", "v", "\x00\xff\r\n", strings.Repeat("v", 1<<19)}
	for i, k := range keys {
		put(t, s, k, values[i%len(values)], uint64(i+1), time.Hour)
	}
	for i, k := range keys {
		want(t, s, k, values[i%len(values)], uint64(i+1))
	}
}

func fences(t *testing.T, s coord.ShareStore) {
	for _, high := range []uint64{2, 1<<53 + 1, 843_350_400<<32 + 17, 1<<63 - 1} {
		k := fmt.Sprint(high)
		put(t, s, k, "first", high-1, time.Hour)
		put(t, s, k, "high", high, time.Hour)
		if err := s.Put(t.Context(), k, []byte("low"), high-1, time.Hour); !errors.Is(err, coord.ErrLost) {
			t.Errorf("Put with fence %d over %d: got %v, want ErrLost", high-1, high, err)
		}
		want(t, s, k, "high", high)
		put(t, s, k, "again", high, time.Hour)
		want(t, s, k, "again", high)
	}
}

func atOnce(t *testing.T, s coord.ShareStore) {
	const n = 32
	var work sync.WaitGroup
	for i := range uint64(n) {
		work.Go(func() {
			if err := s.Put(t.Context(), "k", fmt.Append(nil, i+1), i+1, time.Hour); err != nil && !errors.Is(err, coord.ErrLost) {
				t.Error(err)
			}
		})
	}
	work.Wait()
	want(t, s, "k", fmt.Sprint(n), n)
}

func ages(t *testing.T, s coord.ShareStore) {
	const keep = 200 * time.Millisecond
	put(t, s, "long", "v", 1, time.Hour)
	begin := time.Now()
	put(t, s, "k", "v", 1, keep)
	await.Within(t, patience, "it expires", func() bool { return get(t, s, "k").Fence == 0 })
	if d := time.Since(begin); d < keep-10*time.Millisecond {
		t.Errorf("it has expired after %v, want %v", d, keep)
	}
	await.Within(t, patience, "what was put earlier ages", func() bool { return get(t, s, "long").Age > 0 })
}

func renewal(t *testing.T, s coord.ShareStore) {
	put(t, s, "a", "v", 1, time.Millisecond)
	put(t, s, "b", "v", 1, time.Millisecond)
	put(t, s, "b", "w", 2, time.Hour)
	await.Within(t, patience, "the one that was not renewed expires", func() bool { return get(t, s, "a").Fence == 0 })
	want(t, s, "b", "w", 2)
}

func ended(t *testing.T, s coord.ShareStore) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Get(ctx, "k"); !errors.Is(err, context.Canceled) {
		t.Errorf("Get: %v", err)
	}
	if err := s.Put(ctx, "k", nil, 1, time.Hour); !errors.Is(err, context.Canceled) {
		t.Errorf("Put: %v", err)
	}
}
