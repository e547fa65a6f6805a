package redisarbiter

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/fallback"
)

// A variant is how a namespace was made: it is how its format mark begins. Versions that do not
// know one refuse it.
type variant string

const (
	usual    variant = "holdfast/1"
	observed variant = "holdfast/2 clock=observers" // the server's clock does not count: see Options.ObserverClock
	onAll    variant = "holdfast/2 openings=all"    // a session counts once all replicas have it: see Options.AllReplicas
)

// mark makes the usual mark that of the variant.
func (v variant) mark(mark string) string { return strings.Replace(mark, string(usual), string(v), 1) }

// cut takes the variant of a mark off, and returns the rest, as the usual one.
func cut(mark string) (v variant, rest string) {
	for _, v := range []variant{observed, onAll} {
		if rest, ok := strings.CutPrefix(mark, string(v)); ok {
			return v, string(usual) + rest
		}
	}
	return usual, mark
}

// asked is the variant that the options ask for.
func (o *Options) asked() (variant, error) {
	switch {
	case o.AllReplicas < 0:
		return usual, fmt.Errorf("%w: Options.AllReplicas is %d, must be 0 (not so) or how many replicas the server has", fallback.ErrRefused, o.AllReplicas)
	case o.AllReplicas > 0 && o.ObserverClock:
		return usual, fmt.Errorf("%w: Options.AllReplicas and Options.ObserverClock are set: a namespace has one of them", fallback.ErrRefused)
	case o.AllReplicas > 0:
		return onAll, nil
	case o.ObserverClock:
		return observed, nil
	}
	return usual, nil
}

// option names the option that asks for the variant, for people.
func (v variant) option() string {
	switch v {
	case observed:
		return "Options.ObserverClock"
	case onAll:
		return "Options.AllReplicas"
	}
	return "neither Options.ObserverClock nor Options.AllReplicas"
}

// madeAs goes by the variant of a mark, and returns the rest of it. With first, this process has
// not used the namespace yet.
func (n *redisSpace) madeAs(mark string, first bool) (string, error) {
	is, rest := cut(mark)
	switch {
	case is == n.variant:
	case first && n.variant == usual:
		n.use(is)
	case first:
		return rest, fmt.Errorf("%w: namespace %q was made with %s, this process has %s: leave it out, or use another Namespace",
			fallback.ErrMismatch, n.settings.Namespace, is.option(), n.variant.option())
	default:
		return rest, fmt.Errorf("%w: namespace %q was made with %s by another process, just now; this one has %s",
			fallback.ErrMismatch, n.settings.Namespace, is.option(), n.variant.option())
	}
	return rest, nil
}

// use makes this process one of a namespace of that variant.
func (n *redisSpace) use(v variant) {
	n.variant, n.observer = v, nil
	if v == observed {
		n.observer = newObserver()
	}
}

// Sessions that count once all replicas have them.

// fit refuses a process that would open a session which not all servers have that may take over.
func (n *redisSpace) fit() error {
	switch {
	case n.variant != onAll:
		return nil
	case n.opts.AllReplicas == 0:
		return fmt.Errorf("%w: namespace %q was made with Options.AllReplicas: set it to how many replicas the server has, or use another Namespace",
			fallback.ErrRefused, n.settings.Namespace)
	case n.kind == unknown || !n.guarded || n.slotsOfItsOwn():
		return fmt.Errorf("%w: Options.AllReplicas is for one server, with or without Sentinel, or for a client of a Redis Cluster (not that of NewFailoverClusterClient), and INFO must be permitted", fallback.ErrRefused)
	}
	return nil
}

// slotsOfItsOwn reports whether the client says by itself which server has a slot, as that of
// NewFailoverClusterClient does: that is no Redis Cluster.
func (n *redisSpace) slotsOfItsOwn() bool {
	c, ok := n.conns.of(scriptRenew).(*redis.ClusterClient)
	return ok && c.Options().ClusterSlots != nil
}

// enter makes a call that opens a session, or renews one that a server may not have known. It
// counts once the server's disk and all replicas have it: a server that starts again, and one that
// takes over, comes with all sessions.
func (n *redisSpace) enter(ctx context.Context, c call) (any, error) {
	return paced(ctx, n, c.script, func(ctx context.Context) (any, error) {
		x := n.lengths.begin()
		defer x.calls.Add(-1)
		v, err := n.enterOnce(ctx, c, redis.Pipeliner.EvalSha, x.digest[c.script])
		if isNoScript(err) {
			v, err = n.enterOnce(ctx, c, redis.Pipeliner.Eval, x.source[c.script])
		}
		return v, n.explain(refused(err), n.conns.of(c.script))
	})
}

func (n *redisSpace) enterOnce(ctx context.Context, x call,
	eval func(redis.Pipeliner, context.Context, string, []string, ...any) *redis.Cmd, script string) (any, error) {
	client := n.conns.of(x.script)
	server, isOne := client.(*redis.Client)
	cluster, isCluster := client.(*redis.ClusterClient)
	switch {
	case isCluster:
		m, err := cluster.MasterForKey(ctx, x.keys[0])
		if err != nil {
			return nil, err
		}
		server = m // follows no redirection: its answers are of the server that it has been told of
	case !isOne:
		return nil, fmt.Errorf("%w: Options.AllReplicas needs a *redis.Client or a *redis.ClusterClient, not %T", fallback.ErrRefused, client)
	}
	// WAIT is about the writes of its own connection, and all answers have to be of one server.
	c := server.Conn()
	defer c.Close()
	v, err := n.enterAt(ctx, c, isCluster, x, func(pipe redis.Pipeliner) *redis.Cmd { return eval(pipe, ctx, script, x.keys, x.args...) })
	if err != nil && isCluster && !isNoScript(err) {
		cluster.ReloadState(ctx) // in the background: the slot may have another server now
	}
	return v, err
}

// enterAt is enterOnce by a connection to the server that has the sessions, or had them.
func (n *redisSpace) enterAt(ctx context.Context, c *redis.Conn, isCluster bool, x call, eval func(redis.Pipeliner) *redis.Cmd) (any, error) {
	there, err := n.keepsAll(ctx, c, isCluster)
	if err != nil {
		return nil, err
	}
	want := max(n.opts.AllReplicas, n.opts.Replicas, there)
	pipe := c.Pipeline()
	v := eval(pipe)
	acks := pipe.Do(ctx, "WAIT", want, n.opts.ReplicaTimeout.Milliseconds())
	// After WAIT: a replica that came meanwhile may be about to get an earlier state.
	replicas := askReplicas(ctx, pipe, isCluster)
	var has *redis.SliceCmd
	if isCluster {
		// The slot may have gone to a server with other replicas: MOVED, ASK, or no such entry,
		// which is no error of HMGET.
		has = pipe.HMGet(ctx, x.keys[0], fmt.Sprint("s:", x.args[0]))
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return nil, err
	}
	got, err := acks.Int()
	if err != nil {
		return nil, err
	}
	if want = max(want, replicas()); got < want {
		return nil, fmt.Errorf("%w: %d of %d have it: bring the others back, or remove them from Sentinel, or from the Redis Cluster (CLUSTER FORGET), and lower the option",
			errAllReplicas, got, want)
	}
	if all := list(v.Val()); has != nil && has.Val()[0] == nil && len(all) > 0 && all[0] == "alive" {
		return nil, fmt.Errorf("%w: the table of sessions has gone to another server", errAllReplicas)
	}
	return v.Result()
}

// errAllReplicas says that a session does not count yet.
var errAllReplicas = fmt.Errorf("%w: not all have the session (redisarbiter.Options.AllReplicas)", fallback.ErrReplicas)

// askReplicas asks a server how many replicas it has. In a Redis Cluster those count as well that
// are away: each may take over that the cluster lists.
func askReplicas(ctx context.Context, pipe redis.Pipeliner, isCluster bool) func() int {
	info := pipe.Info(ctx, "replication")
	var nodes *redis.StringCmd
	if isCluster {
		nodes = pipe.ClusterNodes(ctx)
	}
	return func() int {
		n, _ := strconv.Atoi(parseInfo(info.Val())["connected_slaves"])
		if nodes != nil {
			n = max(n, listed(nodes.Val()))
		}
		return n
	}
}

// listed returns how many replicas CLUSTER NODES lists of the server that was asked: each line has
// a server's name, its address, its flags, and its primary's name.
func listed(nodes string) int {
	replicas := make(map[string]int)
	me := ""
	for line := range strings.Lines(nodes) {
		if f := strings.Fields(line); len(f) > 3 {
			replicas[f[3]]++
			if slices.Contains(strings.Split(f[2], ","), "myself") {
				me = f[0]
			}
		}
	}
	return replicas[me]
}

// keepsAll refuses a server with a disk that may lack acknowledged writes: it would start again
// without the session. It returns the number of replicas.
func (n *redisSpace) keepsAll(ctx context.Context, c redis.Cmdable, isCluster bool) (replicas int, err error) {
	pipe := c.Pipeline()
	config := pipe.ConfigGet(ctx, "*append*")
	there, disk := askReplicas(ctx, pipe, isCluster), pipe.Info(ctx, "persistence")
	if _, err := pipe.Exec(ctx); err != nil {
		return 0, fmt.Errorf("fallback: Options.AllReplicas asks whether the server's disk keeps each write, and for its replicas (CONFIG GET, INFO, in a Redis Cluster CLUSTER NODES): %w", err)
	}
	for name, must := range map[string]string{"appendonly": "yes", "appendfsync": "always", "no-appendfsync-on-rewrite": "no"} {
		if is := config.Val()[name]; is != must {
			return 0, fmt.Errorf("%w: Options.AllReplicas needs a server that keeps each write on its disk: %s is %q, must be %s, on its replicas, too", fallback.ErrRefused, name, is, must)
		}
	}
	info := parseInfo(disk.Val())
	// After a first start, and after it got all data of a primary, the file is complete once it
	// has been written anew.
	if info["aof_rewrite_in_progress"] != "0" || info["aof_rewrite_scheduled"] != "0" || info["aof_last_bgrewrite_status"] != "ok" {
		return 0, fmt.Errorf("%w: the server writes its append-only file anew, or failed to (aof_last_bgrewrite_status is %q): it may not have all yet", errAllReplicas, info["aof_last_bgrewrite_status"])
	}
	return there(), nil
}

// madeAnew is the error of a process in a namespace where sessions count in another way than when
// it began.
func (n *redisSpace) madeAnew() error {
	now := onAll
	if n.variant == onAll {
		now = usual
	}
	return fmt.Errorf("%w: namespace %q was deleted or lost, and made anew with %s, this process has %s: give all processes the same, and start this one again",
		fallback.ErrMismatch, n.settings.Namespace, now.option(), n.variant.option())
}

// Openings implements [fallback.Rounder].
func (n *redisSpace) Openings() bool { return n.variant == onAll }
