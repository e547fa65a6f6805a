package coord

import (
	"context"
	"fmt"
	"sync"

	"github.com/holdfast-go/holdfast/fallback"
)

// Watch returns a channel that gets a value after each [Coordinator.Announce] of the key, in any
// process of the namespace. It also gets one whenever an announcement may have been missed. Several
// of these may be one value. So a caller reads the watched data, waits for a value, and reads
// again. Announcements are hints: where the arbiter is no [fallback.Announcer] none arrives, so a
// caller has a timer as well. Nothing is sent to a channel after stop, which may be called often.
func (c *Coordinator) Watch(key string) (changed <-chan struct{}, stop func()) {
	ch := make(chan struct{}, 1)
	c.tells.news.mu.Lock()
	defer c.tells.news.mu.Unlock()
	if c.tells.news.watchers == nil {
		c.tells.news.watchers = make(map[string]map[chan struct{}]bool)
	}
	if c.tells.news.watchers[key] == nil {
		c.tells.news.watchers[key] = make(map[chan struct{}]bool)
	}
	c.tells.news.watchers[key][ch] = true
	return ch, func() { c.tells.news.forget(key, ch) }
}

// Announce tells all processes of the namespace that watch the key. See [Coordinator.Watch].
// Callers of this process are told even if the arbiter does not answer; Announce returns
// [ErrUnavailable] then. Errors: [ErrInvalidKey] besides.
func (c *Coordinator) Announce(ctx context.Context, key string) error {
	if err := validateKey(key); err != nil {
		return err
	}
	c.tells.news.tell(key)
	ns := c.remote.namespace.Load()
	if ns == nil {
		return fmt.Errorf("%w: no session yet", ErrUnavailable)
	}
	a, ok := (*ns).(fallback.Announcer)
	if !ok {
		return nil
	}
	sent := c.now()
	ctx, cancel := context.WithTimeout(ctx, c.opts.CallTimeout)
	defer cancel()
	err := a.Announce(ctx, key)
	c.called(OpAnnounce, sent, err)
	if err != nil {
		return fmt.Errorf("%w: announce %s: %w", ErrUnavailable, quoted(key), err)
	}
	return nil
}

// news is the channels of Watch.
type news struct {
	mu       mutex[leafRank] // protects watchers
	watchers map[string]map[chan struct{}]bool
}

func (n *news) tell(key string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for ch := range n.watchers[key] {
		nudge(ch)
	}
}

func (n *news) tellAll() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, all := range n.watchers {
		for ch := range all {
			nudge(ch)
		}
	}
}

func (n *news) forget(key string, ch chan struct{}) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.watchers[key], ch)
	if len(n.watchers[key]) == 0 {
		delete(n.watchers, key)
	}
}

func nudge(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}

// ExpectLong says that long waits for the key, and long holds of it, are expected in this process
// until stop is called. Readers, and a semaphore of that key, are included. No records are written
// of them (Options.LongWait, Options.LongHold), the waits do not count for Stats.LongestWait, and
// Top marks them (KeySummary.Expected).
func (c *Coordinator) ExpectLong(key string) (stop func()) {
	c.tells.expected.add(key, 1)
	return sync.OnceFunc(func() { c.tells.expected.add(key, -1) })
}

// expected is the keys of ExpectLong.
type expected struct {
	mu   mutex[leafRank] // protects keys
	keys map[string]int
}

func (x *expected) add(key string, n int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.keys == nil {
		x.keys = make(map[string]int)
	}
	if x.keys[key] += n; x.keys[key] == 0 {
		delete(x.keys, key)
	}
}

// has is about the key of a name.
func (x *expected) has(name string) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return len(x.keys) > 0 && x.keys[namedKey(name)] > 0
}
