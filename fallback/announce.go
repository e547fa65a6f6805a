package fallback

import (
	"context"
)

// An Announcer is a [Namespace] that sends news of a key to all sessions at once. It is optional,
// and found by a type assertion on a Namespace.
type Announcer interface {
	// Announce sends a message of kind [Changed], with the key, to every session that listens in
	// the namespace, the caller's own included. It is one call that blocks until ctx ends at most.
	// Like every [Message] it is a hint: a session may miss it, and gets a [Gap] then.
	Announce(ctx context.Context, key string) error
}

// Announce implements [Announcer].
func (n *memory) Announce(ctx context.Context, key string) error {
	return n.tellAll(ctx, Message{Kind: Changed, Key: key})
}

// tellAll sends a message to all sessions.
func (n *memory) tellAll(ctx context.Context, m Message) error {
	return n.do(ctx, func(Moment) {
		for id, l := range n.arbiter.listeners {
			if id[0] == n.settings.Namespace {
				l.put(m)
			}
		}
	})
}
