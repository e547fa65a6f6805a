package redisarbiter

import (
	"context"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/fallback"
)

// broadcast is the channel that all sessions of a namespace listen on. No session has it as its ID.
const broadcast = "all"

// Announce implements [Announcer].
func (n *redisSpace) Announce(ctx context.Context, key string) error {
	return n.tellAll(ctx, n.conns.locks, string(fallback.Changed)+" "+key)
}

// tellAll publishes a message for all sessions.
func (n *redisSpace) tellAll(ctx context.Context, by redis.UniversalClient, text string) error {
	_, err := outlive(ctx, &n.calls, func(ctx context.Context) (int64, error) {
		return by.Publish(ctx, n.channels()+broadcast, text).Result()
	})
	return refused(err)
}
