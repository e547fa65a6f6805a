package fallback

import "github.com/holdfast-go/holdfast/internal/injure"

func init() {
	injure.State = func(memory any, namespace string, f any) {
		a := memory.(*Memory)
		a.mu.Lock()
		defer a.mu.Unlock()
		s := a.spaces[namespace]
		f.(func(*Sessions, []Partition))(&s.sessions, s.parts)
	}
	injure.Tap = func(memory any, namespace, session string) func() any {
		a := memory.(*Memory)
		l := &listener{signal: make(chan struct{}, 1)}
		a.mu.Lock()
		defer a.mu.Unlock()
		a.listeners[namespace+" "+session] = l
		return func() any {
			l.mu.Lock()
			defer l.mu.Unlock()
			q := l.queue
			l.queue = nil
			return q
		}
	}
}
