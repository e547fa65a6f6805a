package redisarbiter

import (
	"context"
	"net"
	"time"

	"github.com/redis/go-redis/v9"
)

// redialing lets a client dial again with its next call, however often that has failed. go-redis
// counts the failures of a pool. After as many as it may have connections it dials once a second
// only, and fails all calls meanwhile: a renewal may be that late then, when the server is back. So
// a failed dial is a connection to go-redis, which fails when it is first used, with the same
// error.
//
// The client of a cluster asks meanwhile which server has which slots: so the call finds it when it
// is tried again, and not only the next one.
type redialing struct{ failed func(context.Context) }

func (redialing) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (redialing) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (x redialing) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := next(ctx, network, addr)
		if err != nil {
			x.failed(ctx)
			return undialed{err}, nil
		}
		return c, nil
	}
}

// redials makes a client of ours redialing.
func redials(c redis.UniversalClient) redis.UniversalClient {
	switch c := c.(type) {
	case *redis.Client:
		c.AddHook(redialing{func(context.Context) {}})
	case *redis.ClusterClient:
		c.OnNewNode(func(node *redis.Client) { node.AddHook(redialing{c.ReloadState}) })
	}
	return c
}

// undialed is a connection that could not be made.
type undialed struct{ err error }

func (c undialed) Read([]byte) (int, error)       { return 0, c.err }
func (c undialed) Write([]byte) (int, error)      { return 0, c.err }
func (undialed) Close() error                     { return nil }
func (undialed) LocalAddr() net.Addr              { return &net.TCPAddr{} }
func (undialed) RemoteAddr() net.Addr             { return &net.TCPAddr{} }
func (undialed) SetDeadline(time.Time) error      { return nil }
func (undialed) SetReadDeadline(time.Time) error  { return nil }
func (undialed) SetWriteDeadline(time.Time) error { return nil }
