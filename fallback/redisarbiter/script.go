package redisarbiter

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/workers"
)

//go:embed lua/*.lua
var lua embed.FS

// readLua reads a file. Tests replace it, to run scripts without some guard.
var readLua = lua.ReadFile

// script is one operation.
type script int

const (
	scriptLock script = iota
	scriptUnlock
	scriptVerify
	scriptAcquire
	scriptDemote
	scriptRevoke
	scriptWitness
	scriptRestore
	scriptOwner
	scriptFormat
	scriptRenew
	scriptDead
	scriptBury
	scriptClose
	scriptMark
	scriptSecret
	scriptList
	scriptSweep
	scriptOver
	scriptEnd
	scriptMany
	scriptLoadResult
	scriptSaveResult
	scriptCount
)

// sources names the files that make up each script.
var sources = [scriptCount][]string{
	scriptLock:    {"server", "state", "quick", "process", "rules", "mode", "contended", "channel", "queue", "lock"},
	scriptUnlock:  {"server", "state", "quick_unlock", "process", "rules", "mode", "channel", "queue", "unlock"},
	scriptVerify:  {"server", "state", "process", "rules", "mode", "contended", "verify"},
	scriptAcquire: {"server", "state", "process", "rules", "acquire"},
	scriptDemote:  {"server", "state", "process", "rules", "mode", "demote"},
	scriptRevoke:  {"server", "state", "process", "rules", "channel", "revoke"},
	scriptWitness: {"server", "state", "process", "rules", "witness"},
	scriptRestore: {"server", "state", "process", "rules", "mode", "restore"},
	scriptOwner:   {"server", "state", "process", "rules", "owner"},
	scriptFormat:  {"server", "state", "process", "rules", "fresh", "format"},
	scriptRenew:   {"server", "process", "sessions", "round", "renew"},
	scriptDead:    {"server", "process", "sessions", "dead"},
	scriptBury:    {"server", "process", "sessions", "bury"},
	scriptClose:   {"server", "process", "sessions", "close"},
	scriptSecret:  {"server", "process", "sessions", "secret"},
	scriptMark:    {"server", "process", "sessions", "fresh", "mark"},
	scriptList:    {"server", "process", "sessions", "list"},
	scriptSweep:   {"server", "process", "sessions", "sweep"},
	scriptOver:    {"server", "state", "process", "rules", "over"},
	scriptEnd:     {"server", "state", "process", "rules", "end"},
	scriptMany:    {"server", "none", "process", "rules", "many"},

	scriptLoadResult: {"load_result"},
	scriptSaveResult: {"save_result"},
}

// scripts are the scripts for one namespace, and the digests that the servers know them by: they
// tell them, we compute none, because SHA-1 is not available everywhere.
type scripts struct {
	source [scriptCount]string
	digest [scriptCount]string
	grace  time.Duration // that is in them
	calls  atomic.Int64  // that use them and are on their way
}

// newScripts puts the scripts together. A value that is the same in every call is a constant in the
// text, which costs a call nothing. A namespace's own values are none: namespaces with the same
// Grace share their scripts. A server keeps the text of each script for good.
func newScripts(guarded, observed bool, grace time.Duration) *scripts {
	// Live waiters ask again well within Q; a queue that is older than that has no waiter behind
	// it.
	life := 2*grace.Milliseconds() + 60_000
	constants := fmt.Sprintf("local GUARDED, OBSERVED, Q, PROMISE, LIFE = %t, %t, %d, %d, %d\n",
		guarded, observed, grace.Milliseconds(), fallback.PromiseFor.Milliseconds(), life)
	x := &scripts{grace: grace}
	for i, names := range sources {
		x.source[i] = constants
		for _, name := range names {
			text, err := readLua("lua/" + name + ".lua")
			if err != nil {
				panic(err) // the files are embedded: a wrong name cannot get past any test
			}
			x.source[i] += string(text)
		}
	}
	return x
}

// load makes the server know the scripts, so that none has to be sent when something else is going
// wrong.
func (x *scripts) load(ctx context.Context, c redis.Cmdable) (digests [scriptCount]string, err error) {
	var told [scriptCount]*redis.StringCmd
	_, err = c.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		for i, source := range x.source {
			told[i] = pipe.ScriptLoad(ctx, source)
		}
		return nil
	})
	for i, cmd := range told {
		digests[i] = cmd.Val()
	}
	return digests, err
}

// call is one execution of a script.
type call struct {
	script script
	keys   []string
	args   []any
}

// outcome is the result of a call. With an error it may have been executed all the same, unless
// that is ErrRefused.
type outcome struct {
	v   any
	err error
}

// run executes one script.
func (n *redisSpace) run(ctx context.Context, s script, keys []string, args ...any) (any, error) {
	c := call{s, keys, args}
	v, err := n.runOnce(ctx, c)
	if n.observer != nil && err == nil {
		v, err = n.settled(ctx, c, v, n.runOnce)
	}
	return v, err
}

func (n *redisSpace) runOnce(ctx context.Context, c call) (any, error) {
	v, err := paced(ctx, n, c.script, func(ctx context.Context) (any, error) { return n.one(ctx, c) })
	return v, n.explain(refused(err), n.conns.of(c.script))
}

// one executes a script by its digest, or sends its text to a server that does not know it.
func (n *redisSpace) one(ctx context.Context, c call) (any, error) {
	x := n.lengths.begin()
	defer x.calls.Add(-1)
	client := n.conns.of(c.script)
	v, err := client.EvalSha(ctx, x.digest[c.script], c.keys, c.args...).Result()
	if isNoScript(err) {
		v, err = client.Eval(ctx, x.source[c.script], c.keys, c.args...).Result()
	}
	lookAgain(ctx, client, err)
	return v, err
}

// lookAgain has the client of a cluster ask, in the background, which server has which slots, after
// an error that is no server's answer. By itself it does so once a minute, and when a server tells
// it that a slot has moved. A server that is down does not.
func lookAgain(ctx context.Context, c redis.UniversalClient, err error) {
	var answer redis.Error
	if err == nil || errors.As(err, &answer) || errors.Is(err, context.Canceled) {
		return
	}
	if cluster, ok := c.(*redis.ClusterClient); ok {
		cluster.ReloadState(ctx)
	}
}

// runAll executes scripts in one go. The outcomes are in the order of the batch.
func (n *redisSpace) runAll(ctx context.Context, batch []call) []outcome {
	return n.settleAll(ctx, batch, n.runAllOnce(ctx, batch))
}

func (n *redisSpace) runAllOnce(ctx context.Context, batch []call) []outcome {
	all := make([]outcome, len(batch))
	groups := n.byServer(ctx, batch)
	if groups == nil {
		n.runGroup(ctx, batch, all)
		return all
	}
	// Each server by itself: one that does not answer must not hold up the answers of the others.
	var work sync.WaitGroup
	for _, g := range groups {
		work.Go(func() {
			part := make([]call, len(g))
			for i, at := range g {
				part[i] = batch[at]
			}
			to := make([]outcome, len(g))
			n.runGroup(ctx, part, to)
			for i, at := range g {
				all[at] = to[i]
			}
		})
	}
	work.Wait()
	return all
}

// byServer returns the indices of the calls for each server of a cluster, or nil if one server gets
// them all.
func (n *redisSpace) byServer(ctx context.Context, batch []call) [][]int {
	if len(batch) < 2 {
		return nil
	}
	cluster, ok := n.conns.of(batch[0].script).(*redis.ClusterClient)
	if !ok {
		return nil
	}
	servers := make(map[*redis.Client][]int)
	for i, c := range batch {
		m, _ := cluster.MasterForKey(ctx, c.keys[0]) // nil: the client will find out, or have the error
		servers[m] = append(servers[m], i)
	}
	return slices.Collect(maps.Values(servers))
}

func (n *redisSpace) runGroup(ctx context.Context, batch []call, to []outcome) {
	if len(batch) == 0 {
		return
	}
	client := n.conns.of(batch[0].script)
	got, err := paced(ctx, n, batch[0].script, func(ctx context.Context) ([]outcome, error) { return n.attempt(ctx, batch), nil })
	for i := range to {
		if err != nil {
			to[i] = outcome{err: n.explain(err, client)}
			continue
		}
		to[i] = outcome{got[i].v, n.explain(refused(got[i].err), client)}
	}
}

// attempt executes scripts by their digests, and sends the text of those that the server does not
// know: it restarted, or another one took over.
func (n *redisSpace) attempt(ctx context.Context, batch []call) []outcome {
	if len(batch) == 1 {
		v, err := n.one(ctx, batch[0])
		return []outcome{{v, err}}
	}
	x := n.lengths.begin()
	defer x.calls.Add(-1)
	all := make([]outcome, len(batch))
	n.pipeline(ctx, x, batch, all, func(int) bool { return true }, [scriptCount]bool{})
	var unknown [scriptCount]bool
	again := make([]bool, len(batch))
	for i, o := range all {
		if isNoScript(o.err) {
			again[i], unknown[batch[i].script] = true, true
		}
	}
	if slices.Contains(again, true) {
		n.pipeline(ctx, x, batch, all, func(i int) bool { return again[i] }, unknown)
	}
	return all
}

// pipeline executes those that which chooses. The first call of each script in text sends its text.
func (n *redisSpace) pipeline(ctx context.Context, x *scripts, batch []call, to []outcome, which func(int) bool, text [scriptCount]bool) {
	pipe := n.conns.of(batch[0].script).Pipeline() // as for all the others
	cmds := make([]*redis.Cmd, len(batch))
	for i, c := range batch {
		switch {
		case !which(i):
		case text[c.script]:
			text[c.script] = false
			cmds[i] = pipe.Eval(ctx, x.source[c.script], c.keys, c.args...)
		default:
			cmds[i] = pipe.EvalSha(ctx, x.digest[c.script], c.keys, c.args...)
		}
	}
	_, err := pipe.Exec(ctx)
	lookAgain(ctx, n.conns.of(batch[0].script), err)
	for i, cmd := range cmds {
		if cmd == nil {
			continue
		}
		to[i].v, to[i].err = cmd.Result()
		if to[i].v == nil && to[i].err == nil {
			to[i].err = err // there was no connection: the commands do not know
		}
	}
}

// errReplicas says that a change is not as safe as the options ask for.
var errReplicas = fmt.Errorf("%w (redisarbiter.Options.Replicas)", fallback.ErrReplicas)

// runWait executes a script with a change that must reach the replicas that the options ask for.
func (n *redisSpace) runWait(ctx context.Context, s script, keys []string, args ...any) (any, error) {
	if n.opts.Replicas <= 0 {
		return n.run(ctx, s, keys, args...)
	}
	c := call{s, keys, args}
	v, err := n.runWaitOnce(ctx, c)
	if n.observer != nil && err == nil {
		v, err = n.settled(ctx, c, v, n.runWaitOnce)
	}
	return v, err
}

func (n *redisSpace) runWaitOnce(ctx context.Context, c call) (any, error) {
	s := c.script
	v, err := paced(ctx, n, s, func(ctx context.Context) (any, error) {
		x := n.lengths.begin()
		defer x.calls.Add(-1)
		v, err := n.attemptWait(ctx, c, redis.Pipeliner.EvalSha, x.digest[s])
		if isNoScript(err) {
			v, err = n.attemptWait(ctx, c, redis.Pipeliner.Eval, x.source[s])
		}
		return v, err
	})
	return v, n.explain(refused(err), n.conns.of(s))
}

// attemptWait sends the script and WAIT to the server that has the key.
func (n *redisSpace) attemptWait(ctx context.Context, x call,
	eval func(redis.Pipeliner, context.Context, string, []string, ...any) *redis.Cmd, script string) (any, error) {
	c := n.conns.of(x.script)
	send := func(pipe redis.Pipeliner) *redis.Cmd { return eval(pipe, ctx, script, x.keys, x.args...) }
	cluster, isCluster := c.(*redis.ClusterClient)
	if !isCluster {
		return n.sendWait(ctx, c.Pipeline(), send)
	}
	m, err := cluster.MasterForKey(ctx, x.keys[0])
	if err != nil {
		return nil, err
	}
	v, err := n.sendWait(ctx, m.Pipeline(), send)
	if addr, moves := redis.IsAskError(err); moves {
		v, err = n.askWait(ctx, cluster, m, addr, send)
	}
	if err != nil && !isNoScript(err) && !errors.Is(err, errReplicas) {
		cluster.ReloadState(ctx) // in the background: the slot may have another server now
	}
	return v, err
}

// sendWait sends the script and WAIT over one connection, because WAIT is about the writes of its
// own connection.
func (n *redisSpace) sendWait(ctx context.Context, pipe redis.Pipeliner, send func(redis.Pipeliner) *redis.Cmd) (any, error) {
	v := send(pipe)
	w := pipe.Do(ctx, "WAIT", n.opts.Replicas, n.opts.ReplicaTimeout.Milliseconds())
	if _, err := pipe.Exec(ctx); err != nil {
		return nil, err
	}
	if acks, err := w.Int(); err != nil || acks < n.opts.Replicas {
		return nil, fmt.Errorf("%w: %d of %d", errReplicas, acks, n.opts.Replicas)
	}
	return v.Result()
}

// askWait is sendWait at the server that a master names whose slot moves: it has the key already.
// The client of a cluster follows that only for calls of its own. It gives out no client of a
// server that has no slot yet: so there is one for this call.
func (n *redisSpace) askWait(ctx context.Context, cluster *redis.ClusterClient, m *redis.Client, addr string,
	send func(redis.Pipeliner) *redis.Cmd) (any, error) {
	o := ownOptions(*m.Options(), 1)
	o.Addr, o.NodeAddress = addr, ""
	if i := strings.LastIndexByte(addr, ':'); i >= 0 { // IPv6 has no brackets there
		o.Addr = net.JoinHostPort(strings.Trim(addr[:i], "[]"), addr[i+1:])
	}
	c := cluster.Options().NewClient(o)
	defer c.Close()
	pipe := c.Pipeline()
	pipe.Do(ctx, "ASKING")
	return n.sendWait(ctx, pipe, send)
}

// patience is for how many times as long as its caller waits a call goes on.
const patience = 3

// outlive runs f and returns when ctx ends at the latest. f goes on for a while then, with a
// context of its own: to make a connection to a slow server takes several round trips, and the next
// call needs it as well. A client that does not heed contexts goes on until its own timeouts.
func outlive[T any](ctx context.Context, calls *workers.Pool, f func(context.Context) (T, error)) (T, error) {
	if err := ctx.Err(); err != nil {
		var none T
		return none, err
	}
	return goOn(ctx, 0, calls, f)
}

// paced is outlive for a script. While the server answers fast, it spares the other goroutine.
func paced[T any](ctx context.Context, n *redisSpace, s script, f func(context.Context) (T, error)) (T, error) {
	last := n.conns.pace(s)
	timed := func(ctx context.Context) (T, error) {
		begin := time.Now()
		defer func() { last.Store(int64(time.Since(begin)) + 1) }()
		return f(ctx)
	}
	d, limited := ctx.Deadline()
	if t := last.Load(); limited && t != 0 && t < int64(time.Until(d)/8) && honoursDeadline(n.conns.of(s)) {
		if err := ctx.Err(); err != nil {
			var none T
			return none, err
		}
		return timed(ctx)
	}
	return outlive(ctx, &n.calls, timed)
}

// goOn is outlive that calls f in any case, and returns after limit at the latest. 0: when ctx
// ends.
func goOn[T any](ctx context.Context, limit time.Duration, calls *workers.Pool, f func(context.Context) (T, error)) (T, error) {
	if ctx.Done() == nil {
		return f(ctx)
	}
	on, cancel := context.WithoutCancel(ctx), context.CancelFunc(func() {})
	var over <-chan time.Time
	if limit > 0 {
		timer := time.NewTimer(limit) // cheaper than a context
		defer timer.Stop()
		over = timer.C
	} else if d, limited := ctx.Deadline(); limited {
		limit = max(time.Until(d), 1)
	}
	if limit > 0 {
		on, cancel = context.WithTimeout(on, patience*limit)
	}
	type result struct {
		v   T
		err error
	}
	ch := make(chan result, 1)
	calls.Go(func() {
		defer cancel()
		v, err := f(on)
		ch <- result{v, err}
	})
	select {
	case r := <-ch:
		return r.v, r.err
	case <-over:
		var none T
		return none, context.DeadlineExceeded
	case <-ctx.Done():
		var none T
		return none, ctx.Err()
	}
}

// honoursDeadline reports whether the client was told to heed a context's deadline. The client
// never heeds a cancellation: a call goes on until its deadline then.
func honoursDeadline(c redis.UniversalClient) bool {
	switch c := c.(type) {
	case *redis.Client:
		return c.Options().ContextTimeoutEnabled
	case *redis.ClusterClient:
		return c.Options().ContextTimeoutEnabled
	}
	return false
}

func isNoScript(err error) bool {
	return err != nil && strings.Contains(err.Error(), "NOSCRIPT")
}
