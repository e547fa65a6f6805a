package harness

import (
	"context"
	"net"
	"sync"
	"sync/atomic"

	"github.com/redis/go-redis/v9"
)

// Counter is a go-redis hook that counts the commands of a client. A script is one command,
// whatever it calls inside; of a pipeline each command counts, but the round trip counts once.
//
// It counts at the client because the server cannot: its total_commands_processed and its
// commandstats include the calls of scripts. The set-up of a pool's connection does not count, and
// a subscription's commands are not seen. A command that go-redis sends again after a network error
// would count once; the server's own count of scripts, printed beside ours, would tell.
type Counter struct {
	Commands, Trips atomic.Int64
	Sent, Received  atomic.Int64 // bytes of all connections, of whatever kind of server
}

func (c *Counter) count(cmds ...redis.Cmder) {
	n := int64(0)
	for _, cmd := range cmds {
		switch cmd.Name() {
		case "hello", "auth", "select", "client":
		default:
			n++
		}
	}
	if n > 0 {
		c.Commands.Add(n)
		c.Trips.Add(1)
	}
}

func (c *Counter) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := next(ctx, network, addr)
		return c.counted(conn), err
	}
}

// Dial is a net.Dialer's DialContext, for other clients.
func (c *Counter) Dial(ctx context.Context, network, addr string) (net.Conn, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, network, addr)
	return c.counted(conn), err
}

func (c *Counter) counted(conn net.Conn) net.Conn {
	if tcp, ok := conn.(*net.TCPConn); ok {
		return &countedConn{tcp, c}
	}
	return conn
}

// countedConn is a TCP connection in all else: clients look at its socket.
type countedConn struct {
	*net.TCPConn
	count *Counter
}

func (c *countedConn) Read(p []byte) (int, error) {
	n, err := c.TCPConn.Read(p)
	c.count.Received.Add(int64(n))
	return n, err
}

func (c *countedConn) Write(p []byte) (int, error) {
	n, err := c.TCPConn.Write(p)
	c.count.Sent.Add(int64(n))
	return n, err
}

func (c *Counter) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		c.count(cmd)
		return next(ctx, cmd)
	}
}

func (c *Counter) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		c.count(cmds...)
		return next(ctx, cmds)
	}
}

// NewClient returns a client with the library's settings that counts its commands. goroutines is
// how many want a connection at the same time: none shall be slow because it waits for one. 0: the
// library's default.
func NewClient(addr string, goroutines int) (*redis.Client, *Counter) {
	o := &redis.Options{Addr: addr, ContextTimeoutEnabled: true}
	if goroutines > 0 {
		o.PoolSize = goroutines + 4 // and some for the background work of a lock
	}
	client, n := redis.NewClient(o), new(Counter)
	client.AddHook(n)
	counters.Store(client, n)
	return client, n
}

// counters are the counters of newClient's clients.
var counters sync.Map

// Background returns a client for Holdfast's background work: one as Holdfast would make from
// client's options, but with the client's counter. It lasts as long as the process.
func Background(client *redis.Client) *redis.Client {
	c := redis.NewClient(client.Options())
	if n, ok := counters.Load(client); ok {
		c.AddHook(n.(*Counter))
	}
	return c
}
