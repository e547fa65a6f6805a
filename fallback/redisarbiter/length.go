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

	mu        sync.Mutex // protects the fields below, and changes of now
	agreement fallback.Agreement
	before    []*scripts // that were used before now's, while calls use them
	renewals  int        // on their way
	all       []*scripts // that the servers have been told of, one for each Grace
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
	if !slices.Contains(l.all, x) {
		l.all = append(l.all, x)
	}
	l.agreement.Use(x.grace.Milliseconds())
}

// state returns the Terms that a renewal states. done is to be called when it has ended, and
// reports whether it was alone.
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
	_ = n.switchTo(ctx, time.Duration(use)*time.Millisecond)
}

// switchTo makes calls go by another Grace. Servers that have forgotten its scripts are told by the
// calls.
func (n *redisSpace) switchTo(ctx context.Context, grace time.Duration) error {
	n.lengths.mu.Lock()
	at := slices.IndexFunc(n.lengths.all, func(x *scripts) bool { return x.grace == grace })
	var x *scripts
	if at >= 0 {
		x = n.lengths.all[at]
	}
	n.lengths.mu.Unlock()
	if x == nil {
		var err error
		if x, err = n.loaded(ctx, grace); err != nil {
			return err
		}
	}
	n.lengths.use(x)
	return nil
}
