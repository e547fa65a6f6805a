package migrate_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/migrate"
	redislockshim "github.com/holdfast-go/holdfast/migrate/redislock"
	redsyncshim "github.com/holdfast-go/holdfast/migrate/redsync"
	rueidislockshim "github.com/holdfast-go/holdfast/migrate/rueidislock"
)

// TryLock waits for neither lock, and leaves neither behind where it does not get both.
func TestBoth_TryLock(t *testing.T) {
	s := redistest.Start(t)
	client := s.Client(t)
	c := start(t, fallback.NewMemory())
	b, err := migrate.New(c, client, nil)
	if err != nil {
		t.Fatal(err)
	}
	l, err := b.TryLock(t.Context(), "k")
	if err != nil || client.Exists(t.Context(), "k").Val() != 1 {
		t.Fatalf("TryLock: %v", err)
	}
	if _, err := b.TryLock(t.Context(), "k"); !errors.Is(err, coord.ErrLocked) {
		t.Errorf("a new process has it: %v", err)
	}
	if err := l.Unlock(); err != nil || client.Exists(t.Context(), "k").Val() != 0 {
		t.Errorf("Unlock: %v", err)
	}
	if err := l.Unlock(); !errors.Is(err, coord.ErrUnlocked) {
		t.Errorf("Unlock again: %v", err)
	}
	if err := client.Set(t.Context(), "k", "an old process", 0).Err(); err != nil {
		t.Fatal(err)
	}
	if _, err := b.TryLock(t.Context(), "k"); !errors.Is(err, coord.ErrLocked) {
		t.Errorf("an old process has it: %v", err)
	}
	if v := client.Get(t.Context(), "k").Val(); v != "an old process" {
		t.Errorf("the old key is %q", v)
	}
	s.Kill()
	if _, err := b.TryLock(t.Context(), "k"); !errors.Is(err, coord.ErrUnavailable) || errors.Is(err, coord.ErrLocked) {
		t.Errorf("the server is gone: %v", err)
	}
	if l, err := c.TryLock(t.Context(), "k"); err != nil {
		t.Errorf("Holdfast's lock was left behind: %v", err)
	} else {
		l.Unlock()
	}
}

// The reply to the request that sets the old key is lost, and the client sends it again: the key
// that it finds is its own.
func TestLock_AReplyIsLost(t *testing.T) {
	s := redistest.Start(t)
	x := redistest.StartProxy(t, s.Addr)
	client := redis.NewClient(&redis.Options{Addr: x.Addr})
	defer client.Close()
	b, err := migrate.New(start(t, fallback.NewMemory()), client, nil)
	if err != nil {
		t.Fatal(err)
	}
	l, err := b.TryLock(t.Context(), "before") // there is a connection
	if err != nil || l.Unlock() != nil {
		t.Fatal(err)
	}
	x.Lose("$1\r\nk\r\n")
	if l, err = b.TryLock(t.Context(), "k"); err != nil || x.Lost.Load() != 1 {
		t.Fatalf("%v; %d replies were lost", err, x.Lost.Load())
	}
	if err := l.Unlock(); err != nil || s.Client(t).Exists(t.Context(), "k").Val() != 0 {
		t.Errorf("Unlock: %v", err)
	}
}

// The reply to the request that frees the old key is lost, and the client sends it again: that the
// key is gone then, or another process's, is no loss.
func TestUnlock_AReplyIsLost(t *testing.T) {
	s := redistest.Start(t)
	x := redistest.StartProxy(t, s.Addr)
	client := redis.NewClient(&redis.Options{Addr: x.Addr})
	defer client.Close()
	for _, keys := range []func(string) []string{nil, migrate.RueidislockKeys("", 0)} {
		b, err := migrate.New(start(t, fallback.NewMemory()), client, &migrate.Options{OldKeys: keys})
		if err != nil {
			t.Fatal(err)
		}
		x.Lost.Store(0)
		err = b.Do(t.Context(), "k", func(context.Context, *migrate.Lock) error {
			x.Lose(`redis.call("del", `)
			return nil
		})
		if err != nil || x.Lost.Load() != 1 {
			t.Errorf("Do: %v; %d replies were lost", err, x.Lost.Load())
		}
		if all, err := s.Client(t).Keys(t.Context(), "*k*").Result(); len(all) != 0 || err != nil {
			t.Errorf("%q are left, %v", all, err)
		}
		err = b.Do(t.Context(), "k", func(ctx context.Context, l *migrate.Lock) error {
			return client.Del(ctx, b.OldKeys("k")...).Err()
		})
		if !errors.Is(err, migrate.ErrOldLost) {
			t.Errorf("the keys were deleted: %v", err)
		}
	}
}

// More than half of the keys are the lock, as the real library has it, whichever they are.
func TestRueidislockKeys(t *testing.T) {
	s := redistest.Start(t)
	client := s.Client(t)
	keys := migrate.RueidislockKeys("", 0)("k")
	if want := []string{"rueidislock:0:k", "rueidislock:1:k", "rueidislock:2:k"}; !slices.Equal(keys, want) {
		t.Errorf("keys %q", keys)
	}
	if one := migrate.RueidislockKeys("mine", 1)("k"); !slices.Equal(one, []string{"mine:0:k"}) {
		t.Errorf("keys %q", one)
	}
	real, err := rueidislock.NewLocker(rueidislock.LockerOption{ClientOption: rueidis.ClientOption{InitAddress: []string{s.Addr}}, TryNextAfter: 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer real.Close()
	b, err := migrate.New(start(t, fallback.NewMemory()), client, &migrate.Options{TTL: time.Second, OldKeys: migrate.RueidislockKeys("", 0)})
	if err != nil {
		t.Fatal(err)
	}
	for taken := range 8 { // by others, as bits
		var others []string
		for i, key := range keys {
			if taken>>i&1 == 1 {
				others = append(others, key)
				client.Set(t.Context(), key, "another", 0)
			}
		}
		l, err := b.TryLock(t.Context(), "k")
		_, cancel, errReal := real.TryWithContext(t.Context(), "k")
		switch {
		case len(others) > 1 && !errors.Is(err, coord.ErrLocked), len(others) <= 1 && err != nil:
			t.Errorf("%q are taken: %v", others, err)
		case !errors.Is(errReal, rueidislock.ErrNotLocked):
			t.Errorf("the real library, %q and Both's are taken: %v", others, errReal)
		}
		cancel()
		if err == nil {
			if err := l.Unlock(); err != nil {
				t.Errorf("Unlock: %v", err)
			}
		}
		if left := client.Exists(t.Context(), keys...).Val(); left != int64(len(others)) {
			t.Errorf("%d keys are left, %q were there", left, others)
		}
		client.Del(t.Context(), keys...)
	}
}

// An old process that takes the lock away ends it at the next renewal.
func TestLock_TakenAway(t *testing.T) {
	s := redistest.Start(t)
	real, err := rueidislock.NewLocker(rueidislock.LockerOption{ClientOption: rueidis.ClientOption{InitAddress: []string{s.Addr}}, TryNextAfter: 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer real.Close()
	b, err := migrate.New(start(t, fallback.NewMemory()), s.Client(t), &migrate.Options{TTL: time.Second, OldKeys: migrate.RueidislockKeys("", 0)})
	if err != nil {
		t.Fatal(err)
	}
	l, err := b.Lock(t.Context(), "k")
	if err != nil {
		t.Fatal(err)
	}
	forced, cancel, err := real.ForceWithContext(t.Context(), "k")
	if err != nil {
		t.Fatal(err)
	}
	defer cancel()
	<-l.Context().Done()
	if err := context.Cause(l.Context()); !errors.Is(err, migrate.ErrOldLost) {
		t.Errorf("cause: %v", err)
	}
	if err := l.Unlock(); !errors.Is(err, coord.ErrLost) || forced.Err() != nil {
		t.Errorf("Unlock: %v; the taker's lock: %v", err, forced.Err())
	}
}

// A shim takes no Both with the keys of another library: old processes and new ones would not
// exclude each other, and nothing else would say so.
func TestNewBoth_TheKeysOfAnotherLibrary(t *testing.T) {
	client, c := redistest.Start(t).Client(t), start(t, fallback.NewMemory())
	prefixed := func(key string) []string { return []string{"app:" + key} }
	for name, x := range map[string]struct {
		keys         func(key string) []string
		one, rueidis bool // accepted by redislock and redsync, and by rueidislock
	}{
		"the key":             {nil, true, false},
		"with a prefix":       {prefixed, true, false},
		"rueidislock's":       {migrate.RueidislockKeys("", 0), false, true},
		"with five":           {migrate.RueidislockKeys("app:lock", 3), false, true},
		"two":                 {func(key string) []string { return []string{"x:0:" + key, "x:1:" + key} }, false, false},
		"rueidislock's, of 1": {migrate.RueidislockKeys("", 1), true, true},
	} {
		b, err := migrate.New(c, client, &migrate.Options{OldKeys: x.keys})
		if err != nil {
			t.Fatal(err)
		}
		panics := func(f func()) (yes bool) {
			defer func() { yes = recover() != nil }()
			f()
			return false
		}
		if panics(func() { redislockshim.NewBoth(b) }) == x.one {
			t.Errorf("redislock, %s: accepted %v", name, !x.one)
		}
		if panics(func() { redsyncshim.NewBoth(b) }) == x.one {
			t.Errorf("redsync, %s: accepted %v", name, !x.one)
		}
		if _, err := rueidislockshim.NewBoth(b); (err == nil) != x.rueidis {
			t.Errorf("rueidislock, %s: %v", name, err)
		}
	}
}

// The shims' own errors say so, too.
func TestUnlock_ShimsTellThatTheOldKeyIsLost(t *testing.T) {
	client := redistest.Start(t).Client(t)
	b, err := migrate.New(start(t, fallback.NewMemory()), client, nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, x := range map[string]struct {
		section func(lose func()) error
		want    error
	}{
		"redislock": {func(lose func()) error {
			l, err := redislockshim.NewBoth(b).Obtain(t.Context(), "k", 10*time.Second, nil)
			if err != nil {
				return err
			}
			lose()
			return l.Release(t.Context())
		}, redislockshim.ErrLockNotHeld},
		"redsync": {func(lose func()) error {
			m := redsyncshim.NewBoth(b).NewMutex("k")
			if err := m.Lock(); err != nil {
				return err
			}
			lose()
			_, err := m.Unlock()
			return err
		}, redsyncshim.ErrLockAlreadyExpired},
	} {
		err := x.section(func() {
			if n, err := client.Del(t.Context(), "k").Result(); n != 1 || err != nil {
				t.Fatalf("%s: the old key is not there: %v", name, err)
			}
		})
		if !errors.Is(err, x.want) || !errors.Is(err, migrate.ErrOldLost) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A process that has died in the middle blocks neither kind for long: its keys expire.
func TestLock_ProcessDies(t *testing.T) {
	s := redistest.Start(t)
	dead := redis.NewClient(&redis.Options{Addr: s.Addr, ContextTimeoutEnabled: true})
	b, err := migrate.New(start(t, fallback.NewMemory()), dead, &migrate.Options{TTL: 300 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	l, err := b.Lock(t.Context(), "k")
	if err != nil {
		t.Fatal(err)
	}
	if err := dead.Close(); err != nil { // it neither renews nor frees the key any more
		t.Fatal(err)
	}
	<-l.Context().Done()
	other, err := migrate.New(start(t, fallback.NewMemory()), s.Client(t), nil)
	if err != nil {
		t.Fatal(err)
	}
	next, err := other.Lock(t.Context(), "k")
	if err != nil {
		t.Fatal(err)
	}
	_ = next.Unlock()
	if err := l.Unlock(); !errors.Is(err, migrate.ErrOldLost) {
		t.Errorf("Unlock: %v", err)
	}
}
