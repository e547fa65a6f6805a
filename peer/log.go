package peer

import (
	"log/slog"
	"sync"
	"time"
)

// limitedLog logs the same thing once a minute, and at most 32 things a minute: any host that
// reaches the port could fill the log otherwise. Lines about strangers have one of their own, so
// that the log tells of nodes whatever strangers do.
type limitedLog struct {
	to *slog.Logger

	mu    sync.Mutex
	since time.Time           // protected by mu: start of this minute
	seen  map[string]struct{} // protected by mu: keys of this minute
}

const logsPerMinute = 32

func newLimitedLog(to *slog.Logger) *limitedLog {
	return &limitedLog{to: to, seen: make(map[string]struct{})}
}

// warn logs unless something with the same key was logged this minute.
func (l *limitedLog) warn(key, text string, args ...any) {
	if l.fresh(key) {
		l.to.Warn(text, args...)
	}
}

func (l *limitedLog) fresh(key string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now := time.Now(); now.Sub(l.since) > time.Minute {
		l.since = now
		clear(l.seen)
	}
	if _, ok := l.seen[key]; ok || len(l.seen) >= logsPerMinute {
		return false
	}
	l.seen[key] = struct{}{}
	return true
}
