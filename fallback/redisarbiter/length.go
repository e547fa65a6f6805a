package redisarbiter

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/fallback"
)

// lengths is this process's part in a change of Grace. The rules are those of fallback/length.go,
// and are explored in internal/model/takeover.
type lengths struct {
	now atomic.Pointer[scripts] // that calls use

	mu        sync.Mutex // protects what follows, and changes of now
	agreement fallback.Agreement
	before    []*scripts // that were used before now's, while calls use them
	renewals  int        // on their way
}

// begin returns the scripts that a call uses. The caller counts calls down at its end.
func (l *lengths) begin() *scripts {
	for {
		x := l.now.Load()
		x.calls.Add(1)
		if x == l.now.Load() {
			return x
		}
		x.calls.Add(-1) // they were replaced, perhaps before they were seen in use
	}
}

// use makes calls use other scripts from now on.
func (l *lengths) use(x *scripts) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if was := l.now.Swap(x); was != nil {
		l.before = append(l.before, was)
	}
	l.agreement.Use(x.grace.Milliseconds())
}

// state returns what a renewal states. done is to be called when it has ended, and reports whether
// it was alone.
func (l *lengths) state() (t fallback.Terms, done func() (alone bool)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	t = l.agreement.Terms()
	l.before = slices.DeleteFunc(l.before, func(x *scripts) bool { return x.calls.Load() == 0 })
	for _, x := range l.before {
		t.Uses = min(t.Uses, x.grace.Milliseconds())
	}
	l.renewals++
	return t, func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.renewals--
		return l.renewals == 0
	}
}

// agree heeds the Grace that the table has told a session. If the servers cannot be told of the
// scripts for it, the next renewal finds the same.
func (n *redisSpace) agree(ctx context.Context, r fallback.Renewal, stated fallback.Terms, alone bool) {
	if n.settings.Lease == 0 {
		return
	}
	n.lengths.mu.Lock()
	was := n.lengths.agreement.Uses
	use := n.lengths.agreement.Told(r, stated, alone)
	n.lengths.mu.Unlock()
	if use == was {
		return
	}
	if x, err := n.loaded(ctx, time.Duration(use)*time.Millisecond); err == nil {
		n.lengths.use(x)
	}
}
