package fallback

import (
	"context"
	"strconv"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"
)

// Listen subscribes to the session's channel: one subscription for all keys.
func (n *redisSpace) Listen(ctx context.Context, session string, handle func(Message)) (func(), error) {
	// The subscription lives until stop, not as long as ctx.
	ps := n.client.Subscribe(context.WithoutCancel(ctx), n.channels()+session)
	if _, err := receive(ctx, ps); err != nil {
		_ = ps.Close()
		return nil, refused(err)
	}
	done := make(chan struct{})
	ch := ps.ChannelWithSubscriptions(redis.WithChannelSize(1024))
	go func() {
		defer close(done)
		for m := range ch {
			switch m := m.(type) {
			case *redis.Subscription: // the connection was lost and made again
				handle(Message{Kind: Gap})
			case *redis.Message:
				if msg, ok := parseMessage(m.Payload); ok {
					handle(msg)
				}
			}
		}
	}()
	return sync.OnceFunc(func() {
		_ = ps.Close()
		<-done
	}), nil
}

// receive waits for the confirmation of the subscription, until ctx ends at most.
func receive(ctx context.Context, ps *redis.PubSub) (any, error) {
	stop := context.AfterFunc(ctx, func() { _ = ps.Close() })
	defer stop()
	v, err := ps.Receive(ctx)
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	return v, err
}

// parseMessage reads what the scripts publish. Anybody may publish on a channel, so anything may come.
func parseMessage(text string) (Message, bool) {
	if text == "" {
		return Message{}, false
	}
	m := Message{Kind: MessageKind(text[0])}
	first, rest, ok := strings.Cut(text[1:], " ")
	if !ok {
		return Message{}, false
	}
	switch m.Kind {
	case Wake, Ask:
		request, err := strconv.ParseUint(first, 10, 64)
		m.Request, m.Key = request, rest
		return m, err == nil && rest != ""
	case Revoked:
		p, err := strconv.ParseUint(first, 10, 32)
		e, err2 := strconv.ParseUint(rest, 10, 32)
		m.Partition, m.Epoch = uint32(p), uint32(e)
		return m, err == nil && err2 == nil
	}
	return Message{}, false
}
