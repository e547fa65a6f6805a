// Package holdfast opens locks by key that are exclusive among the processes of a service, for the
// usual case: the arbiter is Redis, and the processes are a cluster that shares the keys out and
// locks them in memory.
//
//	locks, err := holdfast.Open(ctx, client, &holdfast.Options{Namespace: "shop", Logger: slog.Default()})
//	...
//	err = locks.Do(ctx, "order/4711", func(ctx context.Context, l holdfast.Lock) error {
//		// One at a time among all processes. ctx ends if the lock is lost.
//		// l.Fence() rises with each lock of the key.
//	})
//
// Its types and errors are those of package coord, which has the documentation of the API, and
// lists the methods by purpose. A program with another arbiter, without a cluster, or with another
// membership, calls coord.New, and links less: this package links memberlist and go-redis.
//
// Three things to know before production:
//
//   - If Redis has replicas, set Options.Redis.Replicas to 1. With Redis's default replication a
//     primary may be cut off together with a process. It goes on acknowledging while another one is
//     promoted, and a key has two holders.
//   - A process that stands still for longer than the lease, and goes on, may write before it has
//     noticed that its lock is lost. It may even have got nil from [Lock.Unlock]. So do not trust
//     nil: let the resource refuse a token ([Lock.Fence]) that is lower than the highest it has
//     seen.
//   - Any process of the namespace may take a lock from its holder (Coordinator.Break), and have a node
//     give its partitions away (Coordinator.DrainNode). With More.Unbreakable a process refuses both.
package holdfast

import (
	"context"
	"log/slog"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback/redisarbiter"
	"github.com/holdfast-go/holdfast/gossip"
)

// The types that programs name.
type (
	// A Coordinator grants locks: one per process is enough.
	Coordinator = coord.Coordinator
	// A Lock is a granted lock; one caller has the key.
	Lock = coord.Lock
	// A ReadLock is a granted lock for reading, beside other readers.
	ReadLock = coord.ReadLock
	// A Semaphore has a number of permits that callers of all processes together do not exceed.
	Semaphore = coord.Semaphore
	// Permits are some of a semaphore's that a caller has.
	Permits = coord.Permits
	// Locks are the locks of several keys, which LockAll granted together.
	Locks = coord.Locks
	// A Claim is a key that LockClaims is to lock, for reading or writing.
	Claim = coord.Claim
	// Claimed are the locks that LockClaims granted together.
	Claimed = coord.Claimed
	// A Fence is a fencing token: it rises with each lock of a key.
	Fence = coord.Fence
	// A NodeInfo describes a node of the cluster.
	NodeInfo = coord.NodeInfo
	// RedisOptions are the options of the arbiter on Redis.
	RedisOptions = redisarbiter.Options
	// ShareOptions are the options of Share.
	ShareOptions[T any] = coord.ShareOptions[T]

	// A WaitError says why a lock was not obtained.
	WaitError = coord.WaitError
	// A LossError says which lock was lost, and why.
	LossError = coord.LossError
	// A LossCause says why a lock was lost.
	LossCause = coord.LossCause
	// A DeadlockError has the circle of callers that wait for each other.
	DeadlockError = coord.DeadlockError
	// A SizeError says that a semaphore's size is not that of others that use it.
	SizeError = coord.SizeError
	// A KeptError is an error of Share's function that is kept like a result.
	KeptError = coord.KeptError
	// An UnreachableError names a member of the cluster that this node does not reach.
	UnreachableError = coord.UnreachableError
)

// Causes of losses.
const (
	SessionExpired = coord.SessionExpired
	LeaseExpired   = coord.LeaseExpired
	Superseded     = coord.Superseded
	CoordClosed    = coord.CoordClosed
	TimeOver       = coord.TimeOver
	Broken         = coord.Broken
)

// The errors of locks, as package coord documents them.
var (
	ErrLocked      = coord.ErrLocked      // another caller has the key
	ErrUnavailable = coord.ErrUnavailable // the arbiter could not be asked, or may grant nothing now
	ErrLost        = coord.ErrLost        // the lock was lost: another caller may have the key
	ErrHeld        = coord.ErrHeld        // the caller has the key itself: its context carries the lock
	ErrClosed      = coord.ErrClosed      // Close was called
	ErrDeadlock    = coord.ErrDeadlock    // callers wait for each other in a circle
	ErrUnlocked    = coord.ErrUnlocked    // the lock was unlocked before
	ErrInvalidKey  = coord.ErrInvalidKey  // the key is empty, too long, or has a beginning or an ending that is reserved
	ErrObserver    = coord.ErrObserver    // the coordinator only looks: coord.Options.Observe
	ErrNotHeld     = coord.ErrNotHeld     // of Break: no caller has the lock with that token
	ErrNotBroken   = coord.ErrNotBroken   // of Break: the process that has the lock does not permit it, or could not be asked
	ErrNodeDead    = coord.ErrNodeDead    // the cause of a context of NodeContext: the node was found dead
	ErrNotShared   = coord.ErrNotShared   // of Share: the value is valid, but others may not get it
	ErrTooLarge    = coord.ErrTooLarge    // of Share: the result was not kept, as it is too large
	ErrNoResults   = coord.ErrNoResults   // of Share: the arbiter keeps no results, and there is no ShareOptions.Store
)

// ForReading returns claims of keys for reading, for LockClaims.
func ForReading(keys ...string) []Claim { return coord.ForReading(keys...) }

// ForWriting returns claims of keys for writing, for LockClaims.
func ForWriting(keys ...string) []Claim { return coord.ForWriting(keys...) }

// WithLabel is coord.WithLabel: a context that names the caller of Lock for those that look at the
// key.
func WithLabel(ctx context.Context, label string) context.Context {
	return coord.WithLabel(ctx, label)
}

// WithLocker is coord.WithLocker: a context for a caller that locks one key after another, so that
// a circle of such callers is found.
func WithLocker(ctx context.Context) context.Context { return coord.WithLocker(ctx) }

// Share is coord.Share: it runs fn once for all callers of all processes that ask at the same time,
// and keeps the result.
func Share[T any](ctx context.Context, locks *Coordinator, key string, opts *ShareOptions[T],
	fn func(ctx context.Context, fence Fence) (T, error)) (T, error) {
	return coord.Share(ctx, locks, key, opts, fn)
}

// Unshare is coord.Unshare: it forgets a result that Share has kept. store is ShareOptions.Store.
func Unshare(ctx context.Context, locks *Coordinator, key string, store coord.ShareStore) error {
	return coord.Unshare(ctx, locks, key, store)
}

// Options are the options of [Open]. The zero value of each field means its default, and a nil
// *Options means all defaults.
type Options struct {
	// Namespace is coord.Options.Namespace: it keeps the locks of an application apart from those
	// of others on the same Redis. Default "holdfast".
	Namespace string

	// Name is coord.Options.Name: the name of this process in logs. Default: the host's name.
	Name string

	// Service is coord.Cluster.Service: the URL of this process for HTTP requests of other nodes.
	// Default: none.
	Service string

	// Logger is coord.Options.Logger. Nil: silent.
	Logger *slog.Logger

	// Redis has the options of the arbiter: Replicas, to be set where Redis has replicas, and
	// ColdStart for a Redis that is known to be new. Nil: the defaults.
	Redis *RedisOptions

	// More has all other options of coordinators and of the cluster. Fields above that are not zero
	// take precedence. More.Cluster.Membership is gossip.Start if it is nil. Nil: the defaults.
	More *coord.Options
}

// Open opens a coordinator with the client's Redis as its arbiter, as a node of the namespace's
// cluster. Close it when the process ends. The client stays the caller's, and outlives the
// coordinator. It blocks as coord.New does; opts may be nil. Give Close a context with a deadline:
// it waits for locks that are in use until that ends.
//
// A new namespace on a Redis that has just been started grants nothing for Grace (12 s): the server
// may be one that has lost its data. Options.Redis.ColdStart says that it has not, as in tests and
// development.
//
// Errors are those of coord.New; one of an option names the field of coord.Options.
func Open(ctx context.Context, client redis.UniversalClient, opts *Options) (*Coordinator, error) {
	if opts == nil {
		opts = new(Options)
	}
	return coord.New(ctx, redisarbiter.New(client, opts.Redis), opts.coord())
}

// coord returns the options of the coordinator.
func (o *Options) coord() *coord.Options {
	var all coord.Options
	if o.More != nil {
		all = *o.More
	}
	var cluster coord.Cluster
	if all.Cluster != nil {
		cluster = *all.Cluster
	}
	all.Cluster = &cluster
	if cluster.Membership == nil {
		cluster.Membership = gossip.Start
	}
	if o.Namespace != "" {
		all.Namespace = o.Namespace
	}
	if o.Name != "" {
		all.Name = o.Name
	}
	if o.Service != "" {
		cluster.Service = o.Service
	}
	if o.Logger != nil {
		all.Logger = o.Logger
	}
	return &all
}
