package migrate

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/coordtest"
)

// Err of a lock's context says at once that the old keys may have expired, before the goroutine
// that renews them has noticed.
func TestContext_ErrLooksAtTheClock(t *testing.T) {
	own, err := coordtest.Start(t, fallback.NewMemory(), nil).Lock(t.Context(), "k")
	if err != nil {
		t.Fatal(err)
	}
	defer own.Unlock()
	l := newLock(&Both{opts: Options{TTL: time.Second, OldKeys: func(key string) []string { return []string{key} }}}, own)
	defer l.cancel(nil)
	l.extend(time.Now())
	if err := l.Context().Err(); err != nil {
		t.Error("at first:", err)
	}
	l.extend(time.Now().Add(-time.Second))
	if err := l.Context().Err(); err == nil || !errors.Is(context.Cause(l.Context()), ErrOldLost) {
		t.Errorf("got %v, %v", err, context.Cause(l.Context()))
	}
	<-l.Context().Done()
}
