package migrate_test

import (
	"errors"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/migrate"
)

// A lock ends before its old key may expire, and is unlocked in time. That holds also where the
// client waits for longer than its contexts last, as that of go-redis does for a silent server.
func TestLock_OldServerSilent(t *testing.T) {
	s := redistest.Start(t)
	const ttl = time.Second
	b, err := migrate.New(start(t, fallback.NewMemory()), s.Client(t), &migrate.Options{TTL: ttl})
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	l, err := b.Lock(t.Context(), "k")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	defer s.Signal(syscall.SIGCONT)
	<-l.Context().Done()
	if d := time.Since(began); d > ttl+ttl/2 {
		t.Errorf("it ended after %v", d)
	}
	began = time.Now()
	if err := l.Unlock(); !errors.Is(err, migrate.ErrOldLost) {
		t.Error(err)
	}
	if d := time.Since(began); d > ttl {
		t.Errorf("Unlock took %v", d)
	}
}
