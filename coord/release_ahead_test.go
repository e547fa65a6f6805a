package coord

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/await"
)

// promptUnlocker is an unlocker that lets callers make calls by themselves.
type promptUnlocker struct{ unlocker }

type promptUnlockerSpace struct{ fallback.Namespace }

func (promptUnlockerSpace) Prompt() bool { return true }

func (a *promptUnlocker) Attach(ctx context.Context, s fallback.Settings) (fallback.Namespace, error) {
	n, err := a.unlocker.Attach(ctx, s)
	return promptUnlockerSpace{n}, err
}

// startPrompt starts a coordinator that keeps no key, and whose callers make calls by themselves.
func startPrompt(t *testing.T, see func(releases []fallback.Release) error) *Coordinator {
	o := &Options{SessionTTL: time.Hour, Grace: 2 * time.Hour, RetryEvery: 5 * time.Second} // slow is minutes then
	o.Handoff.Linger = -1
	c := enter(t, &promptUnlocker{unlocker{fallback.NewMemory(), see}}, o)
	unlockNow(t, c, "first") // the first call says that the arbiter is fast
	return c
}

func has(releases []fallback.Release, key string) bool {
	return slices.ContainsFunc(releases, func(r fallback.Release) bool { return r.Key == key })
}

func unlockNow(t *testing.T, c *Coordinator, key string) {
	t.Helper()
	l, err := c.Lock(t.Context(), key)
	if err == nil {
		err = l.Unlock()
	}
	if err != nil {
		t.Fatal(err)
	}
}

// A caller that wants a key which was given back just now sends the release before it asks: its
// first request is granted the key, though others' releases are on their way for long.
func TestAReleaseIsSentBeforeTheKeyIsAskedForAgain(t *testing.T) {
	others, slow := make(chan struct{}), make(chan struct{})
	c := startPrompt(t, func(releases []fallback.Release) error {
		if has(releases, "other") {
			close(others)
			<-slow
		}
		return nil
	})
	defer close(slow)
	unlockNow(t, c, "other")
	<-others
	unlockNow(t, c, "k")
	before := c.Stats().Calls
	unlockNow(t, c, "k")
	after := c.Stats().Calls
	if locks, unlocks := after[OpLock]-before[OpLock], after[OpUnlock]-before[OpUnlock]; locks != 1 || unlocks != 1 {
		t.Errorf("%d requests and %d releases were sent, want 1 and 1", locks, unlocks)
	}
}

// If that call fails, the release is sent again.
func TestAReleaseThatFailsBeforeTheKeyIsAskedForIsSentAgain(t *testing.T) {
	t.Parallel()
	others, slow := make(chan struct{}), make(chan struct{})
	var tries atomic.Int32
	c := startPrompt(t, func(releases []fallback.Release) error {
		switch {
		case has(releases, "other"):
			close(others)
			<-slow
		case has(releases, "k") && tries.Add(1) == 1:
			return errors.New("the server is away")
		}
		return nil
	})
	defer close(slow)
	unlockNow(t, c, "other")
	<-others
	unlockNow(t, c, "k")
	l, err := c.Lock(t.Context(), "k") // another sender relieves the one that waits
	if err != nil {
		t.Fatal(err)
	}
	if again := c.debts.releases.takeFailed(); len(again) > 0 {
		t.Errorf("it is to be sent once more: %v", again)
	}
	if n := tries.Load(); n < 2 {
		t.Errorf("the release was sent %d times", n)
	}
	if err := l.Unlock(); err != nil {
		t.Fatal(err)
	}
	await.Until(t, "the last release is there", func() bool { return tries.Load() > 2 })
}
