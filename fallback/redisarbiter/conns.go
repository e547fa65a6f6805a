package redisarbiter

import (
	"context"
	"errors"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/holdfast-go/holdfast/internal/workers"
)

// conns are the clients of a namespace. A lock call never takes a connection that a renewal or a
// verification needs, and neither does the application.
type conns struct {
	locks redis.UniversalClient // the caller's: lock calls and results
	pulse redis.UniversalClient // sessions, and messages
	work  redis.UniversalClient // the rest: verification, releases, ownership
	own   bool                  // pulse and work are ours to close
	paces [3]atomic.Int64       // how long the last call over each of them took; 0: none yet
	chase *chase                // for a Sentinel client; nil for all others
}

// Sizes of our own pools, per server. A pool makes a connection only when it needs one.
const (
	pulseConns = 8  // one, as a rule; further ones while earlier calls hang
	workConns  = 16 // at least
	idleConns  = 2  // of each pool
)

// mostBackoff is the longest pause of a call for sessions that go-redis makes again: coord makes
// it again soon.
const mostBackoff = 10 * time.Millisecond

// newConns makes clients of our own from the options of the caller's client. A client with options
// that cannot be read, or are not enough, is used for everything.
func newConns(c, background redis.UniversalClient) *conns {
	if background != nil {
		return &conns{locks: c, pulse: background, work: background}
	}
	switch c := c.(type) {
	case *redis.Client:
		o := *c.Options()
		x := &conns{locks: c, own: true}
		if o.Addr == failoverAddr {
			x.chase = &chase{dial: o.Dialer, conns: make(map[*chased]struct{})}
			o.Dialer = x.chase.dialOne
		}
		pulse := ownOptions(o, pulseConns)
		pulse.MaxRetryBackoff = min(pulse.MaxRetryBackoff, mostBackoff)
		x.pulse = redials(redis.NewClient(pulse))
		x.work = redials(redis.NewClient(ownOptions(o, max(workConns, o.PoolSize))))
		return x
	case *redis.ClusterClient:
		o := *c.Options()
		if o.ClusterSlots == nil { // else a failover is known to the caller's client alone
			pulse := ownClusterOptions(o, pulseConns)
			pulse.MaxRetryBackoff = min(pulse.MaxRetryBackoff, mostBackoff)
			return &conns{locks: c, own: true, pulse: redials(redis.NewClusterClient(pulse)),
				work: redials(redis.NewClusterClient(ownClusterOptions(o, max(workConns, o.PoolSize))))}
		}
	}
	return &conns{locks: c, pulse: c, work: c}
}

// failoverAddr is the address in the options of a client that asks Sentinel.
const failoverAddr = "FailoverClient"

// connect begins to make the first connection for sessions, which is needed soon: to a slow server
// that takes several round trips. It does not wait.
func (x *conns) connect(ctx context.Context, calls *workers.Pool) {
	if c, ok := x.pulse.(*redis.Client); ok && x.own && x.chase == nil {
		calls.Go(func() { _ = c.Ping(ctx).Err() }) // whatever is wrong, the first call finds out
	}
}

// ownOptions adapts a copy of a client's options. They are filled: a zero means none, where it
// means the default in new options.
func ownOptions(o redis.Options, size int) *redis.Options {
	o.PoolSize, o.MinIdleConns, o.MaxIdleConns, o.MaxActiveConns, o.MaxConcurrentDials = size, 0, idleConns, 0, 0
	o.PipelinePoolSize = -1 // one pool for all calls
	o.DialerRetries = 1     // coord tries again
	o.ContextTimeoutEnabled = true
	o.DisableIdentity = true // a round trip less when a connection is made
	o.Limiter = nil          // it is there for the application's calls
	o.PushNotificationProcessor = nil
	o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	o.ClientSideCache, o.ClientSideCacheConfig = nil, nil
	o.MaxRetries = zeroIsNone(o.MaxRetries)
	o.MinRetryBackoff, o.MaxRetryBackoff = zeroIsNone(o.MinRetryBackoff), zeroIsNone(o.MaxRetryBackoff)
	o.ReadTimeout, o.WriteTimeout = zeroIsNone(o.ReadTimeout), zeroIsNone(o.WriteTimeout)
	return &o
}

func ownClusterOptions(o redis.ClusterOptions, size int) *redis.ClusterOptions {
	o.Addrs = slices.Clone(o.Addrs) // each client appends to its own
	o.PoolSize, o.MinIdleConns, o.MaxIdleConns, o.MaxActiveConns, o.MaxConcurrentDials = size, 0, idleConns, 0, 0
	o.PipelinePoolSize = -1
	o.DialerRetries = 1
	o.ContextTimeoutEnabled = true
	o.DisableIdentity = true
	o.PushNotificationProcessor = nil
	o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	if o.MaxRedirects == 0 {
		o.MaxRedirects = -1
	}
	o.MinRetryBackoff, o.MaxRetryBackoff = zeroIsNone(o.MinRetryBackoff), zeroIsNone(o.MaxRetryBackoff)
	o.ReadTimeout, o.WriteTimeout = zeroIsNone(o.ReadTimeout), zeroIsNone(o.WriteTimeout)
	return &o
}

func zeroIsNone[T int | time.Duration](v T) T {
	if v == 0 {
		return -1
	}
	return v
}

// lane returns which of the clients, in their order, is for a script.
func lane(s script) int {
	switch s {
	case scriptLock, scriptLoadResult, scriptSaveResult:
		return 0
	case scriptRenew, scriptDead, scriptBury, scriptClose, scriptMark, scriptSecret, scriptList, scriptSweep:
		return 1
	default:
		return 2
	}
}

// of returns the client for a script.
func (x *conns) of(s script) redis.UniversalClient {
	return [...]redis.UniversalClient{x.locks, x.pulse, x.work}[lane(s)]
}

func (x *conns) pace(s script) *atomic.Int64 { return &x.paces[lane(s)] }

func (x *conns) close() {
	if x.own {
		_, _ = x.pulse.Close(), x.work.Close()
	}
}

// chase keeps our own connections at the primary that Sentinel names. The caller's client does so
// for its own pool only, and a deposed primary that still acknowledges must not keep a session
// alive.
type chase struct {
	dial func(ctx context.Context, network, addr string) (net.Conn, error) // asks Sentinel

	mu    sync.Mutex // protects conns
	conns map[*chased]struct{}
}

// chased is a connection that was made by a chase.
type chased struct {
	net.Conn
	x *chase
}

func (c *chased) Close() error {
	c.x.mu.Lock()
	delete(c.x.conns, c)
	c.x.mu.Unlock()
	return c.Conn.Close()
}

func (x *chase) dialOne(ctx context.Context, network, addr string) (net.Conn, error) {
	c, err := x.dial(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	made := &chased{c, x}
	x.mu.Lock()
	x.conns[made] = struct{}{}
	x.mu.Unlock()
	return made, nil
}

// errDeposed says that Sentinel names another primary than the one that may have answered.
var errDeposed = errors.New("fallback: Sentinel names another primary")

// look asks Sentinel for the primary, by a connection to it, and closes connections to all other
// servers. It returns errDeposed if there were any. While Sentinel does not answer, they stay.
func (x *chase) look(ctx context.Context) error {
	c, err := x.dial(ctx, "tcp", "")
	if err != nil {
		return nil
	}
	at := c.RemoteAddr().String()
	_ = c.Close()
	var old []*chased
	x.mu.Lock()
	for c := range x.conns {
		if c.RemoteAddr().String() != at {
			old = append(old, c)
		}
	}
	x.mu.Unlock()
	for _, c := range old {
		_ = c.Close()
	}
	if old != nil {
		return errDeposed
	}
	return nil
}

// begin is look beside a call that ctx limits. The function that it returns waits for the result,
// but leaves the caller time to answer.
func (x *chase) begin(ctx context.Context, calls *workers.Pool) func() error {
	if x == nil {
		return func() error { return nil }
	}
	wait := time.Second
	if d, ok := ctx.Deadline(); ok {
		wait = time.Until(d) * 4 / 5
	}
	late := time.After(wait)
	found := make(chan error, 1)
	calls.Go(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience*wait)
		defer cancel()
		found <- x.look(ctx)
	})
	return func() error {
		select {
		case err := <-found:
			return err
		case <-late:
			return nil
		}
	}
}
