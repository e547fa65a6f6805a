package rivals

import (
	"context"
	"crypto/tls"
	"net"

	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"

	"github.com/holdfast-go/holdfast/bench/harness"
)

// openRueidis opens rueidislock with its defaults or, tuned, as its README advises for a single
// Redis of version 7.0.5 or later: one key instead of three, and no notice of the client's own
// commands.
func openRueidis(tuned bool) func(Environment) (*Locker, error) {
	return func(e Environment) (*Locker, error) {
		o := rueidislock.LockerOption{
			KeyPrefix: e.Namespace + ":rueidislock",
			ClientOption: rueidis.ClientOption{
				InitAddress: []string{e.Redis},
				DialCtxFn: func(ctx context.Context, addr string, _ *net.Dialer, _ *tls.Config) (net.Conn, error) {
					return e.Count.Dial(ctx, "tcp", addr)
				},
			},
			ClientBuilder: func(o rueidis.ClientOption) (rueidis.Client, error) {
				c, err := rueidis.NewClient(o)
				return countedRueidis{c, e.Count}, err
			},
		}
		if tuned {
			o.KeyMajority, o.NoLoopTracking = 1, true
		}
		l, err := rueidislock.NewLocker(o)
		if err != nil {
			return nil, err
		}
		return &Locker{
			Section: func(ctx context.Context, key string, inside func(uint64)) error {
				// The context of a wait is that of the lock, too: it would be lost in the midst of
				// the section when ctx ends.
				wait, cancel := context.WithCancel(context.WithoutCancel(ctx))
				defer cancel()
				waits := context.AfterFunc(ctx, cancel)
				_, unlock, err := l.WithContext(wait, key)
				if !waits() {
					if err == nil {
						unlock()
					}
					return ctx.Err()
				}
				if err != nil {
					return err
				}
				inside(0)
				unlock() // waits until the keys are deleted
				return nil
			},
			shut: l.Close,
		}, nil
	}
}

// countedRueidis counts the commands of rueidislock, which sends nothing but scripts.
type countedRueidis struct {
	rueidis.Client
	count *harness.Counter
}

func (c countedRueidis) Do(ctx context.Context, cmd rueidis.Completed) rueidis.RedisResult {
	c.count.Commands.Add(1)
	c.count.Trips.Add(1)
	return c.Client.Do(ctx, cmd)
}
