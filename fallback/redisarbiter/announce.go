package redisarbiter

import (
	"context"

	"github.com/holdfast-go/holdfast/fallback"
)

// everybody is the channel that all sessions of a namespace listen on. No session has it as its ID.
const everybody = "all"

// Announce implements [Announcer].
func (n *redisSpace) Announce(ctx context.Context, key string) error {
	_, err := outlive(ctx, &n.calls, func(ctx context.Context) (int64, error) {
		return n.conns.locks.Publish(ctx, n.channels()+everybody, string(fallback.Changed)+" "+key).Result()
	})
	return refused(err)
}
