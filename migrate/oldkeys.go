package migrate

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// oldKeys are the keys that the old library would set for a lock. More than half of them are the
// lock.
type oldKeys struct {
	client redis.UniversalClient
	keys   []string
	token  string // the value of each
	ttl    time.Duration
}

const (
	// A request that a client library has sent again, as its reply was lost, finds its own key.
	setScript = `if redis.call("set", KEYS[1], ARGV[1], "nx", "px", ARGV[2]) then return 1 end ` +
		`if redis.pcall("get", KEYS[1]) == ARGV[1] then return redis.call("pexpire", KEYS[1], ARGV[2]) end return 0`
	renewScript = `if redis.call("get", KEYS[1]) == ARGV[1] then return redis.call("pexpire", KEYS[1], ARGV[2]) end return 0`
	freeScript  = `if redis.call("get", KEYS[1]) == ARGV[1] then return redis.call("del", KEYS[1]) end return 0`
)

func (o *oldKeys) most() int { return len(o.keys)/2 + 1 }

// tally counts the answers to the commands for the keys.
type tally struct {
	yes, no int
	err     error // of one of the others
}

// each sends a command for each key, all at once, and returns how many were answered with yes and
// how many with no. err is of one of the others. It returns when ctx has ended, also if the client
// goes on: as a rule that of go-redis does, for some seconds (ContextTimeoutEnabled).
func (o *oldKeys) each(ctx context.Context, send func(p redis.Pipeliner, key string) redis.Cmder, yes func(redis.Cmder) (bool, error)) (y, n int, err error) {
	told := make(chan tally, 1)
	go func() { told <- o.ask(ctx, send, yes) }()
	select {
	case x := <-told:
		return x.yes, x.no, x.err
	case <-ctx.Done():
		return 0, 0, ctx.Err()
	}
}

func (o *oldKeys) ask(ctx context.Context, send func(p redis.Pipeliner, key string) redis.Cmder, yes func(redis.Cmder) (bool, error)) (x tally) {
	answers := make([]redis.Cmder, len(o.keys))
	_, _ = o.client.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, key := range o.keys {
			answers[i] = send(p, key)
		}
		return nil
	})
	for _, a := range answers {
		switch ok, e := yes(a); {
		case e != nil:
			x.err = e
		case ok:
			x.yes++
		default:
			x.no++
		}
	}
	return x
}

// set sets the keys, and reports whether they are the lock. If not, it leaves none behind that the
// server has told of.
func (o *oldKeys) set(ctx context.Context) (bool, error) {
	sent := time.Now()
	call, cancel := context.WithTimeout(ctx, o.ttl/3)
	y, n, err := o.script(call, setScript, o.token, o.ttl.Milliseconds())
	cancel()
	if err != nil && ctx.Err() == nil { // an answer that was lost may have been yes
		call, cancel = context.WithTimeout(ctx, o.ttl/3)
		defer cancel()
		y, _, _ = o.each(call, func(p redis.Pipeliner, key string) redis.Cmder { return p.Get(call, key) }, func(c redis.Cmder) (bool, error) {
			got, err := c.(*redis.StringCmd).Result()
			return got == o.token, err
		})
	}
	if y >= o.most() && time.Since(sent) < o.ttl/2 {
		return true, nil
	}
	if y > 0 || err != nil {
		o.free()
	}
	if n > len(o.keys)-o.most() { // those of others are enough to refuse it
		err = nil
	}
	return false, err
}

// renew reports whether the keys are the lock for another ttl. They are not any more if err is nil.
func (o *oldKeys) renew(ctx context.Context) (bool, error) {
	y, n, err := o.script(ctx, renewScript, o.token, o.ttl.Milliseconds())
	if n > len(o.keys)-o.most() {
		return false, nil
	}
	return y >= o.most(), err
}

// free deletes those that are the lock's, and reports whether the others were so many that they
// were no lock any more: surely, if the client library has sent the requests once. One that it has
// sent again, as its reply was lost, may find the key gone that it has deleted. Keys that could not
// be deleted expire.
func (o *oldKeys) free() (gone, sure bool) {
	ctx, cancel := context.WithTimeout(context.Background(), o.ttl/3)
	defer cancel()
	token := &counted{text: o.token}
	_, n, _ := o.script(ctx, freeScript, token)
	return n > len(o.keys)-o.most(), int(token.sent.Load()) <= len(o.keys)
}

// counted is an argument of a command that counts how often go-redis writes it: once more when it
// sends the command again.
type counted struct {
	text string
	sent atomic.Int64
}

// MarshalBinary implements [encoding.BinaryMarshaler].
func (c *counted) MarshalBinary() ([]byte, error) {
	c.sent.Add(1)
	return []byte(c.text), nil
}

func (o *oldKeys) script(ctx context.Context, text string, args ...any) (y, n int, err error) {
	return o.each(ctx, func(p redis.Pipeliner, key string) redis.Cmder {
		return p.Eval(ctx, text, []string{key}, args...)
	}, func(c redis.Cmder) (bool, error) {
		done, err := c.(*redis.Cmd).Int()
		return done == 1, err
	})
}
