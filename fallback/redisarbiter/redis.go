package redisarbiter

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/unit"
	"github.com/holdfast-go/holdfast/internal/workers"
)

// Options are the options of [New]. The zero value is valid, and so is a nil pointer.
type Options struct {
	// ColdStart says that a server without our data is new, rather than one that lost them. Without
	// it, a namespace on a server that has been up for less than Q (or was promoted) has to wait
	// for the difference: locks of before its restart may still be in force. For tests, demos and
	// development.
	ColdStart bool

	// Replicas is the number of replicas that must acknowledge each change of a session or of an
	// ownership (WAIT) before it counts. 0: none; negative: refused. With too few acknowledgements
	// within ReplicaTimeout the operation fails; it is tried again, and meanwhile no deadline is
	// extended.
	Replicas int

	// ReplicaTimeout is how long to wait for the replicas. 0: 500 ms; at least 1 ms.
	ReplicaTimeout time.Duration

	// ObserverClock makes a new namespace one in which the server's clock tells no process how much
	// time has passed: processes declare a session dead, and Grace over, when they have seen it
	// stand still for long enough by their own monotonic clocks. Then a step of the server's clock,
	// by any length in any direction, ends no session and no Grace. A namespace stays as it was
	// made: processes with and without the option use one that has it alike, and one that was made
	// without it is refused with it. See docs/redis.md for its costs.
	ObserverClock bool

	// AllReplicas makes a new namespace one in which a session counts once all replicas of the
	// server have it, and the server's own disk; it is how many replicas there are. Each server
	// that takes over knows all sessions then. So Grace ends as soon as each of these has said that
	// it has reclaimed all that it has, and not after Q: see docs/redis.md for the figures. While a
	// replica is away, no process can begin a session: none starts, and one that has lost its
	// session gets no other. Sessions that there are go on. The server and its replicas must have
	// appendonly yes and appendfsync always, and permit CONFIG GET and INFO. In a Redis Cluster the
	// server is the one that has the sessions, and must permit CLUSTER NODES: replicas that it
	// lists and that are away count, too. It cannot be combined with ObserverClock. A namespace
	// stays as it was made: processes without the option can look at it, and open no session in it.
	// 0: not so; negative: refused.
	AllReplicas int

	// Background is the client for everything but lock calls and results: sessions, messages,
	// verification, releases, ownership. Nil: clients of Holdfast's own, which it makes from the
	// options of New's client and closes. So neither the application nor lock calls can take the
	// connections that keep a session alive. Holdfast's clients lack the hooks and the Limiter of
	// New's client; its Dialer, TLS, credentials providers and OnConnect apply. A client that is no
	// *redis.Client or *redis.ClusterClient, or that has ClusterOptions.ClusterSlots (as that of
	// NewFailoverClusterClient), cannot be copied: it is used for everything. Set Background to a
	// client that does nothing else then; or to New's client, to have one pool for everything.
	Background redis.UniversalClient
}

// Arbiter is the arbiter on a Redis server, 6.2 or later, or a compatible one: standalone, behind
// Sentinel, or a Cluster.
//
// One operation is one script on keys of one slot, called by its digest; a read of many partitions
// is one pipeline. All keys and channels begin with "{" + namespace + ":". Nothing in them expires
// but the queues of waiters, which are hints, and results.
type Arbiter struct {
	client redis.UniversalClient
	opts   Options
}

// New returns an arbiter on the server that client talks to. It does no I/O. The client stays the
// caller's: it is not closed, and its settings for dialling, TLS, passwords and retries apply. Lock
// calls go through it, and take at most half of its connections (PoolSize) at a time; all other
// calls but those of results have connections of their own, see [Options.Background]. opts may be
// nil.
//
// Errors about the server, a nil client among them, come from Attach.
func New(client redis.UniversalClient, opts *Options) *Arbiter {
	a := &Arbiter{client: client}
	if opts != nil {
		a.opts = *opts
	}
	if a.opts.ReplicaTimeout == 0 {
		a.opts.ReplicaTimeout = 500 * time.Millisecond
	}
	return a
}

// Attach implements [Arbiter].
func (a *Arbiter) Attach(ctx context.Context, s fallback.Settings) (fallback.Namespace, error) {
	if err := s.Check(); err != nil {
		return nil, err
	}
	if a.opts.Replicas < 0 {
		return nil, fmt.Errorf("%w: Options.Replicas is %d, must be 0 (none) or more", fallback.ErrRefused, a.opts.Replicas)
	}
	made, err := a.opts.asked()
	if err != nil {
		return nil, err
	}
	if a.opts.ReplicaTimeout < 0 {
		return nil, fmt.Errorf("%w: Options.ReplicaTimeout is %v, must be more than 0, or 0 for 500 ms", fallback.ErrRefused, a.opts.ReplicaTimeout)
	}
	// WAIT counts in milliseconds, and 0 of them are for ever.
	if err := unit.Check("Options.ReplicaTimeout", a.opts.ReplicaTimeout, time.Millisecond, "500 * time.Millisecond"); err != nil {
		return nil, fmt.Errorf("%w: %w", fallback.ErrRefused, err)
	}
	n := &redisSpace{opts: a.opts, settings: s, lengths: lengths{agreement: fallback.Agreement{Needs: s.Needs()}}}
	n.use(made)
	if err := n.begin(ctx, a.client); err != nil {
		_ = n.Close()
		return nil, atStart(err)
	}
	return n, nil
}

// begin checks the servers, makes them know the scripts, and formats the namespace.
func (n *redisSpace) begin(ctx context.Context, c redis.UniversalClient) (err error) {
	if v := reflect.ValueOf(c); !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
		return fmt.Errorf("%w: the Redis client is nil", fallback.ErrRefused)
	}
	if _, ok := c.(*redis.Ring); ok {
		return fmt.Errorf("%w: a redis.Ring moves keys between servers that do not know of each other", fallback.ErrRefused)
	}
	n.conns = newConns(c, n.opts.Background)
	n.gates.init(c)
	w := n.conns.work
	n.conns.connect(ctx, &n.calls)
	look, err := outlive(ctx, &n.calls, func(ctx context.Context) (firstLook, error) {
		return checkServers(ctx, w, n.sessions(), n.settings.Observes)
	})
	if err != nil {
		return refused(err)
	}
	n.guarded, n.kind = look.guarded, look.kind
	if err = n.fit(); err != nil && n.opts.AllReplicas > 0 {
		return err
	}
	for range 3 {
		if err = n.adoptMark(ctx, w, look.mark); err != nil {
			return err
		}
		look.mark = nil // there may be another one by then
		x, failed := n.loaded(ctx, n.settings.Grace)
		if failed != nil {
			return failed
		}
		n.lengths.use(x)
		if err = n.format(ctx); !errors.Is(err, fallback.ErrMismatch) {
			break
		} // another process was faster, with other settings: they may do
	}
	return err
}

// loaded returns the scripts with a Grace in them, which the servers know.
func (n *redisSpace) loaded(ctx context.Context, grace time.Duration) (*scripts, error) {
	x := newScripts(n.guarded, n.observer != nil, grace)
	digest, err := outlive(ctx, &n.calls, func(ctx context.Context) ([scriptCount]string, error) { return loadAll(ctx, n.conns.work, x) })
	x.digest = digest
	return x, refused(err)
}

// adoptMark goes by the Grace of the namespace, if it is formatted. The scripts have it in them, so
// none can be asked. told is the answer if the server has been asked already.
func (n *redisSpace) adoptMark(ctx context.Context, w redis.UniversalClient, told *redis.StringCmd) error {
	mark, err := outlive(ctx, &n.calls, func(ctx context.Context) (string, error) {
		if told == nil {
			told = w.HGet(ctx, n.sessions(), "f")
		}
		return told.Result()
	})
	if errors.Is(err, redis.Nil) || err == nil && mark == "" {
		return nil
	}
	if err != nil {
		return refused(err)
	}
	if mark, err = n.madeAs(mark, true); err == nil {
		n.settings, err = n.settings.Adopt(mark, n.guarded)
	}
	return err
}

// redisSpace is a namespace on a Redis, as one process sees it.
type redisSpace struct {
	conns    *conns
	gates    gates
	bar      bar
	opts     Options
	settings fallback.Settings
	lengths  lengths
	guarded  bool
	kind     kind
	variant  variant
	known    atomic.Pointer[string] // the session of this process that all servers know which may take over
	observer *observer              // nil: the server's clock counts
	calls    workers.Pool           // for calls, which may outlive their context
	secrets  atomic.Pointer[string] // as the server has told them last: they outlive the loss of its data
	noConfig atomic.Bool            // CONFIG is not permitted
	results  atomic.Bool            // this process keeps some here
}

// The values of flags in calls: interfaces, so that none is made for each call.
var yes, no any = "1", "0"

func flag(b bool) any {
	if b {
		return yes
	}
	return no
}

func (n *redisSpace) key(suffix string) string {
	return "{" + n.settings.Namespace + ":" + suffix + "}"
}
func (n *redisSpace) sessions() string     { return n.key("s") }
func (n *redisSpace) channels() string     { return n.key("c") + ":" }
func (n *redisSpace) part(p uint32) string { return n.key("p" + strconv.FormatUint(uint64(p), 10)) }

// queue is that of a hold's key.
func (n *redisSpace) queue(p uint32, name string) string { return n.partAndQueue(p, name)[1] }

// partAndQueue returns the key of a partition's record, and that of the queue of a hold's key.
func (n *redisSpace) partAndQueue(p uint32, name string) []string {
	key, _ := fallback.Split(name)
	var digits [10]byte
	queue := "{" + n.settings.Namespace + ":p" + string(strconv.AppendUint(digits[:0], uint64(p), 10)) + "}:w:" + key
	return []string{queue[:len(queue)-len(":w:")-len(key)], queue} // one string, as each lock makes it
}

func (n *redisSpace) Guarded() bool { return n.guarded }

// Grace implements [Namespace].
func (n *redisSpace) Grace() time.Duration { return n.lengths.now.Load().grace }

// Prompt implements [Prompter]: it is for the client to say, by its option ContextTimeoutEnabled.
func (n *redisSpace) Prompt() bool { return honoursDeadline(n.conns.locks) }

// Queues implements [Queuer].
func (n *redisSpace) Queues() bool { return true }

// Spread implements [Spreader].
func (n *redisSpace) Spread() bool {
	_, ok := n.conns.work.(*redis.ClusterClient)
	return ok
}

// Close does not wait for calls that were given up but that the client has not given up yet: they
// end with its own timeouts, or when it is closed.
func (n *redisSpace) Close() error {
	if n.conns != nil {
		n.conns.close()
	}
	n.calls.CloseIdle()
	return nil
}

// format makes sure that the namespace is formatted.
func (n *redisSpace) format(ctx context.Context) error {
	if n.opts.ColdStart {
		return n.formatAs(ctx, "cold")
	}
	return n.formatAs(ctx, "look")
}

// formatAs formats the namespace in a mode of fresh.lua. The mark is written last: without it, the
// next process starts over, and existing records stay as they are.
func (n *redisSpace) formatAs(ctx context.Context, mode string) error {
	settings := n.settings
	settings.Grace = n.Grace()
	mark := n.variant.mark(settings.Mark(n.guarded))
	theirs, kept, err := n.markAndSecret(ctx, mode, "")
	if err != nil {
		return err
	}
	if theirs == "" {
		const chunk = 256
		for first := 0; first < n.settings.Partitions; first += chunk {
			var batch []call
			for p := first; p < min(first+chunk, n.settings.Partitions); p++ {
				batch = append(batch, call{scriptFormat, []string{n.part(uint32(p))}, []any{"", mode}})
			}
			for _, o := range n.runAll(ctx, batch) {
				if o.err != nil {
					return o.err
				}
				if o.v == int64(1) {
					// The namespace is not new, only the server with the sessions is: processes may
					// be at work.
					mode = "full"
				}
			}
		}
		if theirs, kept, err = n.markAndSecret(ctx, mode, mark); err != nil {
			return err
		}
	}
	if theirs, err = n.madeAs(theirs, false); err != nil {
		return err
	}
	if _, err := settings.Adopt(theirs, n.guarded); err != nil {
		return err
	}
	n.keep(kept)
	return nil
}

// markAndSecret asks for the format mark, or sets it, and makes sure that a formatted namespace has
// a secret: in one go.
func (n *redisSpace) markAndSecret(ctx context.Context, mode, mark string) (theirs, secrets string, err error) {
	secrets = fallback.NewSecrets()
	if known := n.secrets.Load(); known != nil {
		secrets = *known
	}
	keys := []string{n.sessions()}
	got := n.runAll(ctx, []call{{scriptMark, keys, []any{mode, mark}}, {scriptSecret, keys, []any{secrets, ""}}})
	for _, o := range got {
		if o.err != nil {
			return "", "", o.err
		}
	}
	r := reader{v: []any{got[0].v, got[1].v}}
	return r.str(0), r.str(1), r.err
}

// secret has secret.lua add a secret, or store all if there are none, and keeps the answer. lost
// says that the table is lost.
func (n *redisSpace) secret(ctx context.Context, text, how string) (lost bool, err error) {
	v, err := n.run(ctx, scriptSecret, []string{n.sessions()}, text, how)
	if err != nil {
		return false, err
	}
	s, _ := v.(string)
	n.keep(s)
	return s == "", nil
}

// keep remembers the secrets that the server has told.
func (n *redisSpace) keep(secrets string) {
	if secrets != "" {
		n.secrets.Store(&secrets)
	}
}

// Partitions.

func (n *redisSpace) Load(ctx context.Context, p uint32) (fallback.Record, error) {
	s := n.Verify(ctx, []fallback.Read{{Partition: p}})[0]
	return s.Record, s.Err
}

func (n *redisSpace) Acquire(ctx context.Context, p uint32, me string, x fallback.Expect) (fallback.Acquisition, error) {
	v, err := n.runWait(ctx, scriptAcquire, []string{n.part(p)}, "", me, x.Epoch, x.Owner, flag(x.OwnerDead), n.waits())
	if err != nil {
		return fallback.Acquisition{}, err
	}
	r := reader{v: list(v)}
	a := fallback.Acquisition{Verdict: r.verdict(), Record: r.record()}
	if a.Verdict == fallback.Granted {
		a.Rows = make(map[string]fallback.Row, (len(r.v)-recordLen)/2)
		for i := recordLen; i+1 < len(r.v); i += 2 {
			a.Rows[r.str(i)] = r.row(i + 1)
		}
	}
	return a, r.err
}

func (n *redisSpace) Demote(ctx context.Context, p uint32, me string, epoch uint32, holds map[string]fallback.Row) (fallback.Demotion, error) {
	args := []any{"", me, epoch, "1"}
	for _, name := range slices.Sorted(maps.Keys(holds)) {
		args = append(args, name, holds[name].Encode())
	}
	return n.demote(ctx, p, args)
}

func (n *redisSpace) DemoteUnserved(ctx context.Context, p uint32, me string, epoch uint32) (fallback.Demotion, error) {
	return n.demote(ctx, p, []any{"", me, epoch, "0"})
}

func (n *redisSpace) demote(ctx context.Context, p uint32, args []any) (fallback.Demotion, error) {
	v, err := n.runWait(ctx, scriptDemote, []string{n.part(p)}, args...)
	if err != nil {
		return fallback.Demotion{}, err
	}
	r := reader{v: list(v)}
	return fallback.Demotion{Verdict: r.verdict(), Record: r.record()}, r.err
}

func (n *redisSpace) Revoke(ctx context.Context, p uint32, epoch uint32, _ string) error {
	_, err := n.run(ctx, scriptRevoke, []string{n.part(p)}, "", epoch, p)
	return err
}

// Holds.

func (n *redisSpace) Lock(ctx context.Context, q fallback.LockRequest) (fallback.LockAnswer, error) {
	c := call{scriptLock, n.partAndQueue(q.Partition, q.Key), []any{q.Key, q.Me.Encode(), q.Block, flag(q.Wait), q.Evict.Encode(), q.Gone}}
	v, err := n.runLock(ctx, c, q)
	if n.observer != nil && err == nil {
		v, err = n.settled(ctx, c, v, func(ctx context.Context, c call) (any, error) { return n.runLock(ctx, c, q) })
	}
	if err != nil {
		return fallback.LockAnswer{}, err
	}
	if text, ok := v.(string); ok {
		token, err := decodeToken(text)
		return fallback.LockAnswer{Verdict: fallback.Granted, Record: fallback.Record{Epoch: token.Epoch()}, Token: token}, err
	}
	r := reader{v: list(v)}
	a := fallback.LockAnswer{Verdict: r.verdict(), Record: r.record()}
	switch a.Verdict {
	case fallback.Granted:
		a.Token = fallback.MakeToken(r.epoch(recordLen), uint32(r.num(recordLen+1)))
		a.Contended = r.num(recordLen+2) > 0
	case fallback.Held:
		a.Holder, a.Size = r.row(recordLen), uint32(r.num(recordLen+1))
		if len(r.v) > recordLen+2 {
			a.Behind, a.Ahead = true, fallback.Release{Partition: q.Partition, Key: r.str(recordLen + 2), Identity: r.row(recordLen + 3).Identity}
		}
	case fallback.Promised:
		a.Retry, a.Holder = r.ms(recordLen), r.row(recordLen+1)
	}
	return a, r.err
}

func (n *redisSpace) Unlock(ctx context.Context, releases []fallback.Release) []error {
	batch := make([]call, len(releases))
	for i, r := range releases {
		batch[i] = call{scriptUnlock, n.partAndQueue(r.Partition, r.Key),
			[]any{r.Key, r.Identity.Encode()}}
	}
	var errs []error
	for i, o := range n.runAll(ctx, batch) {
		if o.err != nil {
			if errs == nil {
				errs = make([]error, len(releases))
			}
			errs[i] = o.err
		}
	}
	return errs
}
