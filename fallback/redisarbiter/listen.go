package redisarbiter

import (
	"context"
	"strconv"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/fallback"
)

// Listen subscribes to the session's channel, and to the one of all sessions: one subscription for
// all keys.
func (n *redisSpace) Listen(ctx context.Context, session string, handle func(fallback.Message)) (func(), error) {
	ps, err := n.subscribe(ctx, n.channels()+session, n.channels()+broadcast)
	if err != nil {
		return nil, refused(err)
	}
	done := make(chan struct{})
	ch := ps.ChannelWithSubscriptions(redis.WithChannelSize(1024))
	go func() {
		defer close(done)
		for m := range ch {
			switch m := m.(type) {
			case *redis.Subscription: // the connection was lost and made again
				if m.Count >= 2 { // to both channels again
					handle(fallback.Message{Kind: fallback.Gap})
				}
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

// subscribe waits for the confirmation of each channel, until ctx ends at most. The client may go
// on dialling after that; Close waits for it.
func (n *redisSpace) subscribe(ctx context.Context, channels ...string) (*redis.PubSub, error) {
	type result struct {
		ps  *redis.PubSub
		err error
	}
	ch := make(chan result) // without a buffer: a reader that has gone has not got it
	n.calls.Go(func() {
		// The subscription lives until stop, not as long as ctx.
		ps := n.conns.pulse.Subscribe(context.WithoutCancel(ctx), channels...)
		stop := context.AfterFunc(ctx, func() { _ = ps.Close() })
		var err error
		for i := 0; i < len(channels) && err == nil; i++ {
			_, err = ps.Receive(ctx)
		}
		if !stop() { // closed, or about to be, even if the confirmation came
			err = ctx.Err()
		}
		if err != nil {
			_ = ps.Close()
		}
		select {
		case ch <- result{ps, err}:
		case <-ctx.Done():
			_ = ps.Close()
		}
	})
	select {
	case r := <-ch:
		return r.ps, r.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// parseMessage reads a message of the scripts. Any client may publish on a channel, so anything may
// come.
func parseMessage(text string) (fallback.Message, bool) {
	if text == "" {
		return fallback.Message{}, false
	}
	m := fallback.Message{Kind: fallback.MessageKind(text[0])}
	first, rest, ok := strings.Cut(text[1:], " ")
	if !ok {
		return fallback.Message{}, false
	}
	switch m.Kind {
	case fallback.Wake, fallback.Ask:
		request, err := strconv.ParseUint(first, 10, 64)
		m.Request, m.Key = request, rest
		return m, err == nil && rest != ""
	case fallback.Freed:
		request, key, _ := strings.Cut(rest, " ")
		n, err := strconv.ParseUint(request, 10, 64)
		m.Session, m.Request, m.Key = first, n, key
		return m, err == nil && first != "" && key != ""
	case fallback.Changed:
		m.Key = rest
		return m, first == "" && rest != ""
	case fallback.Changes:
		return m, first == "" && rest == ""
	case fallback.Revoked:
		p, err := strconv.ParseUint(first, 10, 32)
		e, err2 := strconv.ParseUint(rest, 10, epochBits)
		m.Partition, m.Epoch = uint32(p), uint32(e)
		return m, err == nil && err2 == nil
	}
	return fallback.Message{}, false
}
