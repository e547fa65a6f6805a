package fallback

import (
	"maps"
	"time"

	"github.com/holdfast-go/holdfast/internal/injure"
)

func init() {
	injure.State = func(memory any, namespace string, f any) {
		a := memory.(*Memory)
		a.mu.Lock()
		defer a.mu.Unlock()
		s := a.spaces[namespace]
		f.(func(*Sessions, []Partition))(&s.sessions, s.parts)
	}
	injure.Ahead = func(memory any, each bool, by time.Duration) {
		a := memory.(*Memory)
		a.mu.Lock()
		defer a.mu.Unlock()
		ahead := make(map[string]time.Duration, len(a.ahead)+1) // forks have the one before
		maps.Copy(ahead, a.ahead)
		ahead[memoryName(a.server)] = by
		if each {
			ahead[a.name] = by
			for _, name := range a.apart {
				ahead[name] = by
			}
		}
		a.ahead = ahead
	}
	injure.Tap = func(memory any, namespace, session string) func() any {
		a := memory.(*Memory)
		l := &listener{signal: make(chan struct{}, 1)}
		a.mu.Lock()
		defer a.mu.Unlock()
		a.listeners[[2]string{namespace, session}] = l
		return func() any {
			l.mu.Lock()
			defer l.mu.Unlock()
			q := l.queue
			l.queue = nil
			return q
		}
	}
}
