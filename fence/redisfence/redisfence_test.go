package redisfence_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fence"
	"github.com/holdfast-go/holdfast/fence/redisfence"
	"github.com/holdfast-go/holdfast/internal/redistest"
)

func Example() {
	// increase is the caller's script; it has one key and one argument.
	increase := redisfence.NewScript(`return redis.call("INCRBY", KEYS[1], ARGV[1])`)

	section := func(ctx context.Context, client *redis.Client, l coord.Lock) error {
		return increase.Run(ctx, client, "{order:7}:fence", l.Fence(), []string{"{order:7}"}, 5).Err()
	}
	_ = section
}

// The tokens differ in digits that a floating-point number does not have.
const base coord.Fence = 848_000_000 << 32

func TestScript(t *testing.T) {
	c := redistest.Start(t).Client(t)
	s := redisfence.NewScript(`
		local first = KEYS[1] -- a comment
		assert(#KEYS == 1 and #ARGV == 2)
		return redis.call('INCRBY', first, ARGV[1] + ARGV[2])`)
	want := 0
	for _, step := range []struct {
		token coord.Fence
		stale bool
	}{{9, false}, {10, false}, {9, true}, {base + 1, false}, {base + 1, false}, {base, true}, {base + 2, false}, {base + 1, true}, {9, true}, {1<<63 - 1, false}, {base + 9, true}} {
		n, err := s.Run(t.Context(), c, "{k}:fence", step.token, []string{"{k}"}, 1, 2).Int()
		var stale *fence.StaleError
		switch {
		case step.stale:
			if !errors.Is(err, fence.ErrStale) || !errors.As(err, &stale) || stale.Fence != step.token || stale.Seen <= step.token {
				t.Errorf("%d: %v", step.token, err)
			}
		case err != nil:
			t.Errorf("%d: %v", step.token, err)
		default:
			if want += 3; n != want {
				t.Errorf("%d: %d, not %d", step.token, n, want)
			}
		}
	}
	if err := s.Run(t.Context(), c, "f", 0, []string{"k"}).Err(); err == nil {
		t.Error("token 0 is accepted")
	}
	failing := redisfence.NewScript(`return redis.error_reply("MINE too")`)
	if err := failing.Run(t.Context(), c, "f", 1, nil).Err(); err == nil || err.Error() != "MINE too" {
		t.Errorf("the script's own error: %v", err)
	}
}

// The late write of a holder that stood still is refused, wherever it stood still after Put of the
// next.
func TestPut(t *testing.T) {
	c := redistest.Start(t).Client(t)
	write := redisfence.NewScript(`return redis.call('SET', KEYS[1], ARGV[1])`)
	read := func(token coord.Fence) int {
		if err := redisfence.Put(t.Context(), c, "f", token); err != nil {
			t.Fatal(err)
		}
		n, err := c.Get(t.Context(), "n").Int()
		if err != nil && err != redis.Nil {
			t.Fatal(err)
		}
		return n
	}
	late, next := read(base), read(base+1)
	if err := write.Run(t.Context(), c, "f", base, []string{"n"}, late+1).Err(); !errors.Is(err, fence.ErrStale) {
		t.Errorf("the late write: %v", err)
	}
	if err := write.Run(t.Context(), c, "f", base+1, []string{"n"}, next+1).Err(); err != nil {
		t.Error(err)
	}
	if err := redisfence.Put(t.Context(), c, "f", base); !errors.Is(err, fence.ErrStale) {
		t.Errorf("a late Put: %v", err)
	}
	if s := fmt.Sprint(c.Get(t.Context(), "n").Val()); s != "1" {
		t.Errorf("the value is %s", s)
	}
}
