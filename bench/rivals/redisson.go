package rivals

import (
	"context"
	"crypto/rand"
	"errors"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// The server side of Redisson's read-write lock and semaphore, as scripts: see OpenRedissonRW and
// OpenRedissonSemaphore. Redisson itself is a library of Java; a user of Go would write this after
// it. It is no translation: names differ, and a holder has a lock once.

// redissonLease is Redisson's lockWatchdogTimeout. It is renewed every third of it, which no
// section here lasts.
const redissonLease = 30 * time.Second

// granted is the scripts' answer for a lock. Any other answer is the number of milliseconds that
// another one holds it at most.
const granted = -1

// The hash KEYS[1] has the mode, and a field for each holder. Each reader has a key with an expiry
// as well, as the hash has only one: the latest of its holders.
var (
	redissonRead = redis.NewScript(`
local mode = redis.call('HGET', KEYS[1], 'mode')
if mode == 'write' then return math.max(redis.call('PTTL', KEYS[1]), 1) end
if not mode then redis.call('HSET', KEYS[1], 'mode', 'read') end
redis.call('HINCRBY', KEYS[1], ARGV[1], 1)
redis.call('SET', KEYS[1] .. ':' .. ARGV[1], 1, 'PX', ARGV[2])
redis.call('PEXPIRE', KEYS[1], math.max(redis.call('PTTL', KEYS[1]), tonumber(ARGV[2])))
return -1`)

	redissonReadDone = redis.NewScript(`
if redis.call('HDEL', KEYS[1], ARGV[1]) == 0 then return 0 end
redis.call('DEL', KEYS[1] .. ':' .. ARGV[1])
local latest = 0
for _, holder in ipairs(redis.call('HKEYS', KEYS[1])) do
  if holder ~= 'mode' then latest = math.max(latest, redis.call('PTTL', KEYS[1] .. ':' .. holder)) end
end
if latest > 0 then
  redis.call('PEXPIRE', KEYS[1], latest)
  return 1
end
redis.call('DEL', KEYS[1])
redis.call('PUBLISH', KEYS[2], 0)
return 1`)

	redissonWrite = redis.NewScript(`
if redis.call('EXISTS', KEYS[1]) == 1 then return math.max(redis.call('PTTL', KEYS[1]), 1) end
redis.call('HSET', KEYS[1], 'mode', 'write', ARGV[1], 1)
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return -1`)

	redissonWriteDone = redis.NewScript(`
if redis.call('HGET', KEYS[1], 'mode') ~= 'write' or redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then return 0 end
redis.call('DEL', KEYS[1])
redis.call('PUBLISH', KEYS[2], 1)
return 1`)

	redissonAcquire = redis.NewScript(`
if tonumber(redis.call('GET', KEYS[1]) or '0') < tonumber(ARGV[1]) then return 86400000 end
redis.call('DECRBY', KEYS[1], ARGV[1])
return -1`)

	redissonRelease = redis.NewScript(`
redis.call('PUBLISH', KEYS[2], redis.call('INCRBY', KEYS[1], ARGV[1]))
return 1`)
)

// errNotHeld says that a lock was not held any more when it was to be unlocked.
var errNotHeld = errors.New("redisson: not held any more")

// redissonObject is the common part of locks and semaphores. A waiter subscribes to a channel, and
// tries again after each message, and when the holder has lapsed.
type redissonObject struct {
	client *redis.Client
	keys   []string // the object and its channel
	me     string
	count  atomic.Uint64
}

func newRedissonObject(client *redis.Client, key string) *redissonObject {
	return &redissonObject{client: client, keys: []string{key, key + ":channel"}, me: rand.Text() + ":"}
}

func (o *redissonObject) enter(ctx context.Context, try *redis.Script, args ...any) error {
	wait, err := try.Run(ctx, o.client, o.keys, args...).Int64()
	if err != nil || wait == granted {
		return err
	}
	sub := o.client.Subscribe(ctx, o.keys[1])
	defer sub.Close()
	if _, err := sub.Receive(ctx); err != nil { // it is subscribed
		return err
	}
	messages := sub.Channel()
	for {
		if wait, err = try.Run(ctx, o.client, o.keys, args...).Int64(); err != nil || wait == granted {
			return err
		}
		select {
		case <-messages:
		case <-time.After(time.Duration(wait) * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (o *redissonObject) leave(done *redis.Script, args ...any) error {
	n, err := done.Run(context.Background(), o.client, o.keys, args...).Int64()
	if err == nil && n != 1 {
		err = errNotHeld
	}
	return err
}

// OpenRedissonRW opens Redisson's read-write lock of a key. It is not fair: a writer gets it when
// there happens to be no reader. The key has a hash tag, as the server may be a cluster.
func OpenRedissonRW(e Environment, key string) (*RW, error) {
	o := newRedissonObject(e.Client, "{"+e.Namespace+":"+key+"}")
	lock := func(try, done *redis.Script) func(context.Context) (func() error, error) {
		return func(ctx context.Context) (unlock func() error, err error) {
			holder := o.me + strconv.FormatUint(o.count.Add(1), 10)
			if err := o.enter(ctx, try, holder, redissonLease.Milliseconds()); err != nil {
				return nil, err
			}
			return func() error { return o.leave(done, holder) }, nil
		}
	}
	return &RW{RLock: lock(redissonRead, redissonReadDone), Lock: lock(redissonWrite, redissonWriteDone)}, nil
}

// OpenRedissonSemaphore opens Redisson's RSemaphore of so many permits: a number at the server,
// which the first one of a name decides. The permits of a process that has crashed are lost.
// acquire waits for n permits, and returns the function that releases them.
func OpenRedissonSemaphore(e Environment, key string, permits int) (
	acquire func(ctx context.Context, n int) (release func() error, err error), err error,
) {
	o := newRedissonObject(e.Client, "{"+e.Namespace+":"+key+"}")
	return func(ctx context.Context, n int) (release func() error, err error) {
		if err := o.enter(ctx, redissonAcquire, n); err != nil {
			return nil, err
		}
		return func() error { return o.leave(redissonRelease, n) }, nil
	}, e.Client.SetNX(context.Background(), o.keys[0], permits, 0).Err()
}
