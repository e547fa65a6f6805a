package subjects

import (
	"context"
	"errors"
	"math/rand/v2"

	"github.com/holdfast-go/holdfast/bench/rivals"
	"github.com/holdfast-go/holdfast/coord"
)

// readerWriter is a lock of one key, for reading and for writing.
type readerWriter interface {
	RLock(ctx context.Context) (unlock func() error, err error)
	Lock(ctx context.Context) (unlock func() error, err error)
}

// rivalBatch is how many pairs of calls are timed at a time if each needs round trips: what of a batch is done after the end of a
// round counts as done in it.
const rivalBatch = 1

// rwRivals are locks for readers and writers that a user would have elsewhere.
var rwRivals = []modeWay{
	{
		Variant: rivals.Variant{
			Name: "Redisson's read-write lock", In: "read mixed",
			How: "its algorithm as Lua by go-redis: a script to lock, one to unlock, a channel for those who wait; without the renewal",
		},
		openRW: func(p modePlace) (readerWriter, func() error, error) {
			return rivals.NewRedissonRW(p.Client, "{"+p.Namespace+":"+p.key+"}"), nil, nil
		},
	},
	{
		Variant: rivals.Variant{
			Name: "PostgreSQL shared advisory lock", In: "read mixed", Server: rivals.PostgresKind,
			How: "pg_advisory_lock_shared and pg_advisory_lock by pgx, a connection for each goroutine",
		},
		openRW: openRival(rivals.OpenAdvisoryRW),
	},
	{
		Variant: rivals.Variant{
			Name: "etcd RWMutex", In: "read mixed", Server: rivals.EtcdKind,
			How: "RWMutex of client/v3/experimental/recipes, a session for each process; one server, which writes to its disk",
		},
		openRW: openRival(rivals.OpenEtcdRW),
	},
	{
		Variant: rivals.Variant{
			Name: "ZooKeeper read-write lock", In: "read mixed", Server: rivals.ZookeeperKind,
			How: "ZooKeeper's recipe, which is Curator's InterProcessReadWriteLock, by go-zookeeper: an ephemeral node in sequence for each caller, and the list of all " +
				"of them; a connection for each process; one server, which writes to its disk",
		},
		openRW: openRival(rivals.OpenZookeeperRW),
	},
}

func openRival[L interface {
	readerWriter
	Close() error
}](open func(rivals.Environment, string) (L, error)) func(modePlace) (readerWriter, func() error, error) {
	return func(p modePlace) (readerWriter, func() error, error) {
		l, err := open(p.Environment, p.key)
		if err != nil {
			return nil, nil, err
		}
		return l, l.Close, nil
	}
}

// mixedWays are those of the job "mixed" that are no rivals.
var mixedWays = []modeWay{
	{
		Variant: rivals.Variant{Name: "Holdfast RLock and Lock", How: "of one key, by the nodes of a cluster", In: "mixed"},
		openRW: func(p modePlace) (readerWriter, func() error, error) {
			c, err := p.cluster()
			return holdfastRW{c, p.key}, nil, err
		},
	},
	{
		Variant: rivals.Variant{Name: "no lock", How: "the same sections by as many processes", In: "mixed"},
		floor:   true,
		openRW:  func(modePlace) (readerWriter, func() error, error) { return unlockedRW{}, nil, nil },
	},
}

// redissonPermits is the semaphore that a user would have elsewhere.
var redissonPermits = modeWay{
	Variant: rivals.Variant{
		Name: "Redisson's semaphore", In: "permits",
		How: "its algorithm as Lua by go-redis: a number at the server; permits of a process that has crashed are lost",
	},
	open: func(p modePlace) (*openMode, error) {
		s, err := rivals.NewRedissonSemaphore(context.Background(), p.Client, "{"+p.Namespace+":renderers}", permitsOf(p.job))
		if err != nil {
			return nil, err
		}
		return limited(p, func(ctx context.Context) (func() error, error) { return s.Acquire(ctx, 1) }, func(release func() error) error { return release() }), nil
	},
}

// holdfastRW is a key of a cluster.
type holdfastRW struct {
	c   *coord.Coordinator
	key string
}

func (h holdfastRW) RLock(ctx context.Context) (unlock func() error, err error) {
	l, err := h.c.RLock(ctx, h.key)
	return l.Unlock, err
}

func (h holdfastRW) Lock(ctx context.Context) (unlock func() error, err error) {
	l, err := h.c.Lock(ctx, h.key)
	return l.Unlock, err
}

// unlockedRW lets all in.
type unlockedRW struct{}

func (unlockedRW) RLock(context.Context) (unlock func() error, err error) {
	return func() error { return nil }, nil
}

func (u unlockedRW) Lock(ctx context.Context) (unlock func() error, err error) { return u.RLock(ctx) }

// openLocks opens a way that locks for readers and writers: for pairs of calls, or for sections.
func openLocks(w *modeWay, p modePlace) (*openMode, error) {
	p.key = "catalogue"
	l, shut, err := w.openRW(p)
	if err != nil {
		return nil, err
	}
	m := &openMode{close: shut, batch: rivalBatch}
	if p.job.Writes > 0 {
		m.loop = func(ctx context.Context, n int) error { return mixed(ctx, p, m, l, n) }
		return m, nil
	}
	m.loop = func(ctx context.Context, n int) error {
		for range n {
			unlock, err := l.RLock(ctx)
			if err != nil {
				return err
			}
			if err := unlock(); err != nil {
				return err
			}
		}
		return nil
	}
	return m, nil
}

// aWriter is what a writer adds to the judge's count, and a reader 1.
const aWriter = 1 << 32

// mixed makes sections of two round trips to Redis, some of which are a writer's. The judge looks whether a writer is alone.
func mixed(ctx context.Context, p modePlace, m *openMode, l readerWriter, n int) error {
	for range n {
		lock, one := l.RLock, int64(1)
		if rand.IntN(p.job.Writes) == 0 {
			lock, one = l.Lock, aWriter
		}
		unlock, err := lock(ctx)
		if err != nil {
			return err
		}
		judge := m.judge.Load()
		if now := judge.inside.Add(one); now >= aWriter && now != aWriter {
			judge.wrong.Add(1)
		}
		err = p.Client.Incr(ctx, "{bench}:sections").Err()
		if err == nil {
			err = p.Client.Incr(ctx, "{bench}:sections").Err()
		}
		judge.inside.Add(-one)
		if err := errors.Join(err, unlock()); err != nil {
			return err
		}
	}
	return nil
}
