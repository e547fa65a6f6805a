package coord

import (
	"context"
	"strings"
	"sync/atomic"

	"github.com/holdfast-go/holdfast/internal/lease"
)

// MaxLabel is the length of the longest label, in bytes.
const MaxLabel = 128

type labelKey struct{}

// labelled reports whether this program has made a label or a locker. A program without them pays
// one load per lock.
var labelled atomic.Bool

// WithLabel returns a context that names the caller of [Coordinator.Lock], RLock, their variants,
// Share, and [Semaphore.Acquire], such as "checkout 8123". [Coordinator.Inspect], Held and Top show
// the label while the caller waits for a lock and while it has it. Of several readers' labels Held
// and Top show one. A longer label than [MaxLabel] is cut. A lock with a label costs several times
// as much as one without. Labels go to the other nodes of the cluster on request: keep secrets out
// of them.
func WithLabel(ctx context.Context, label string) context.Context {
	if len(label) > MaxLabel {
		label = label[:MaxLabel]
	}
	if !labelled.Load() {
		labelled.Store(true)
	}
	return context.WithValue(ctx, labelKey{}, strings.ToValidUTF8(label, ""))
}

// labelOf returns the context's label. It may call the user's code, so no mutex may be held.
func labelOf(ctx context.Context) string {
	label, _ := ctx.Value(labelKey{}).(string)
	return label
}

// lockLabelled is lock with a label, or for a locker.
func (c *Coordinator) lockLabelled(ctx context.Context, key string, try bool, label string) (Lock, error) {
	p := c.partitionOf(key)
	p.mu.Lock()
	x := &attempt{c: c, p: p, ctx: ctx, key: key, try: try, start: lease.Unmeasured, label: label}
	l, err := c.enter(x, p.Find(key))
	if err == nil {
		if label != "" {
			l.keepLabel(label)
		}
		took(ctx, carriedLock{lock: l})
	}
	return l, err
}

// keepLabel keeps the label of the caller that has the lock, as long as it has it.
func (l Lock) keepLabel(label string) {
	p := l.p
	p.mu.Lock()
	defer p.mu.Unlock()
	if k := l.t.Key(l.fence); k != nil {
		p.Tag(k, withLabel(p.TagOf(k), l.fence, label))
	}
}

// withLabel adds a label to the tag of a key or seat. A tag of another lock is replaced.
func withLabel(tag any, fence uint64, label string) *caller {
	x := &caller{fence: fence, label: label}
	if old, ok := tag.(*caller); ok && old.fence == fence {
		x.stack = old.stack
	}
	return x
}

// labelIn returns the label in the tag of a key or seat, "" if there is none or it is that of
// another lock.
func labelIn(tag any, fence uint64) string {
	if c, ok := tag.(*caller); ok && c.fence == fence {
		return c.label
	}
	return ""
}
