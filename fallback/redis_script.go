package fallback

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

//go:embed lua/*.lua
var lua embed.FS

// script is one operation.
type script int

const (
	scriptLock script = iota
	scriptUnlock
	scriptVerify
	scriptAcquire
	scriptDemote
	scriptRevoke
	scriptRow
	scriptOwner
	scriptFormat
	scriptRenew
	scriptDead
	scriptClose
	scriptMark
	scriptCount
)

// sources names the files that make up each script.
var sources = [scriptCount][]string{
	scriptLock:    {"state", "quick", "rules", "queue", "lock"},
	scriptUnlock:  {"state", "rules", "queue", "unlock"},
	scriptVerify:  {"state", "rules", "verify"},
	scriptAcquire: {"state", "rules", "acquire"},
	scriptDemote:  {"state", "rules", "demote"},
	scriptRevoke:  {"state", "rules", "revoke"},
	scriptRow:     {"state", "rules", "row"},
	scriptOwner:   {"state", "rules", "owner"},
	scriptFormat:  {"state", "rules", "fresh", "format"},
	scriptRenew:   {"sessions", "renew"},
	scriptDead:    {"sessions", "dead"},
	scriptClose:   {"sessions", "close"},
	scriptMark:    {"sessions", "fresh", "mark"},
}

func (s script) source() string {
	var b strings.Builder
	for _, name := range sources[s] {
		text, err := lua.ReadFile("lua/" + name + ".lua")
		if err != nil {
			panic(err) // the files are embedded: a wrong name cannot get past any test
		}
		b.Write(text)
	}
	return b.String()
}

// scripts knows the digests, which the server tells: we compute none, because SHA-1 is not available everywhere.
type scripts struct {
	digest [scriptCount]atomic.Pointer[string]
}

func newScripts() *scripts { return new(scripts) }

// load makes the server (each one of a cluster) know the script.
func (x *scripts) load(ctx context.Context, c redis.UniversalClient, s script) (string, error) {
	d, err := c.ScriptLoad(ctx, s.source()).Result()
	if err != nil {
		return "", err
	}
	x.digest[s].Store(&d)
	return d, nil
}

func (x *scripts) get(ctx context.Context, c redis.UniversalClient, s script) (string, error) {
	if d := x.digest[s].Load(); d != nil {
		return *d, nil
	}
	return x.load(ctx, c, s)
}

// call is one execution of a script.
type call struct {
	script script
	keys   []string
	args   []any
}

func (n *redisSpace) args(c call) []any {
	return append(append(make([]any, 0, len(n.common)+len(c.args)), n.common...), c.args...)
}

// run executes one script.
func (n *redisSpace) run(ctx context.Context, s script, keys []string, args ...any) (any, error) {
	v, err := n.runAll(ctx, []call{{s, keys, args}})
	if err != nil {
		return nil, err
	}
	return v[0], nil
}

// runAll executes scripts in one go. On an error any of them may have been executed.
func (n *redisSpace) runAll(ctx context.Context, batch []call) ([]any, error) {
	if len(batch) == 0 {
		return nil, nil
	}
	return bounded(ctx, n, func() ([]any, error) {
		v, err := n.attempt(ctx, batch)
		if isNoScript(err) { // the server restarted, or another one took over
			for _, s := range distinct(batch) {
				if _, err := n.scripts.load(ctx, n.client, s); err != nil {
					return nil, err
				}
			}
			v, err = n.attempt(ctx, batch)
		}
		return v, err
	})
}

func (n *redisSpace) attempt(ctx context.Context, batch []call) ([]any, error) {
	if len(batch) == 1 {
		d, err := n.scripts.get(ctx, n.client, batch[0].script)
		if err != nil {
			return nil, err
		}
		v, err := n.client.EvalSha(ctx, d, batch[0].keys, n.args(batch[0])...).Result()
		return []any{v}, err
	}
	pipe := n.client.Pipeline()
	cmds := make([]*redis.Cmd, len(batch))
	for i, c := range batch {
		d, err := n.scripts.get(ctx, n.client, c.script)
		if err != nil {
			return nil, err
		}
		cmds[i] = pipe.EvalSha(ctx, d, c.keys, n.args(c)...)
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return nil, err
	}
	answers := make([]any, len(batch))
	for i, cmd := range cmds {
		answers[i] = cmd.Val()
	}
	return answers, nil
}

// errReplicas says that a change is not as safe as the options ask for.
var errReplicas = errors.New("fallback: too few replicas acknowledged (RedisOptions.Replicas)")

// runWait executes a script whose change must reach the replicas that the options ask for.
func (n *redisSpace) runWait(ctx context.Context, s script, keys []string, args ...any) (any, error) {
	if n.opts.Replicas <= 0 {
		return n.run(ctx, s, keys, args...)
	}
	v, err := bounded(ctx, n, func() ([]any, error) {
		for again := false; ; again = true {
			v, err := n.attemptWait(ctx, s, keys, args)
			if !isNoScript(err) || again {
				return []any{v}, err
			}
			if _, err := n.scripts.load(ctx, n.client, s); err != nil {
				return nil, err
			}
		}
	})
	if err != nil {
		return nil, err
	}
	return v[0], nil
}

// attemptWait sends the script and WAIT over one connection, because WAIT is about what its own connection wrote.
func (n *redisSpace) attemptWait(ctx context.Context, s script, keys []string, args []any) (any, error) {
	d, err := n.scripts.get(ctx, n.client, s)
	if err != nil {
		return nil, err
	}
	var c redis.Cmdable = n.client
	if cluster, ok := n.client.(*redis.ClusterClient); ok {
		if c, err = cluster.MasterForKey(ctx, keys[0]); err != nil {
			return nil, err
		}
	}
	pipe := c.Pipeline()
	v := pipe.EvalSha(ctx, d, keys, n.args(call{s, keys, args})...)
	w := pipe.Do(ctx, "WAIT", n.opts.Replicas, n.opts.ReplicaTimeout.Milliseconds())
	if _, err := pipe.Exec(ctx); err != nil {
		return nil, err
	}
	if acks, err := w.Int(); err != nil || acks < n.opts.Replicas {
		return nil, fmt.Errorf("%w: %d of %d", errReplicas, acks, n.opts.Replicas)
	}
	return v.Result()
}

// bounded runs f and gives up waiting when ctx ends. The client library does not by itself: by default it reads until
// its own timeout, and then tries again. What is given up goes on by itself; Close waits for it.
func bounded(ctx context.Context, n *redisSpace, f func() ([]any, error)) ([]any, error) {
	if _, limited := ctx.Deadline(); ctx.Done() == nil || limited && honoursDeadline(n.client) {
		v, err := f()
		return v, refused(err)
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	type result struct {
		v   []any
		err error
	}
	ch := make(chan result, 1)
	n.calls.Go(func() {
		v, err := f()
		ch <- result{v, err}
	})
	select {
	case r := <-ch:
		return r.v, refused(r.err)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// honoursDeadline tells whether the client was told to heed a context's deadline. What it never heeds is a cancellation:
// a call goes on until its deadline then.
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

func distinct(batch []call) []script {
	var seen [scriptCount]bool
	var all []script
	for _, c := range batch {
		if !seen[c.script] {
			seen[c.script] = true
			all = append(all, c.script)
		}
	}
	return all
}

// encode is the text of a row.
func (r Row) encode() string {
	b := make([]byte, 0, 64)
	b = append(append(b, r.Session...), ' ')
	b = append(strconv.AppendUint(b, r.Request, 10), ' ')
	b = append(strconv.AppendUint(b, uint64(r.Token.Epoch()), 10), ' ')
	return string(strconv.AppendUint(b, uint64(r.Token.Seq()), 10))
}

// decodeRow is the inverse of encode. The empty text is the zero row.
func decodeRow(text string) (r Row, err error) {
	if text == "" {
		return Row{}, nil
	}
	f := strings.Split(text, " ")
	if len(f) != 4 || f[0] == "" {
		return Row{}, fmt.Errorf("fallback: %q is not a row", text)
	}
	r.Session = f[0]
	var n [3]uint64
	for i, bits := range [3]int{64, 32, 32} {
		if n[i], err = strconv.ParseUint(f[i+1], 10, bits); err != nil {
			return Row{}, fmt.Errorf("fallback: %q is not a row", text)
		}
	}
	r.Request, r.Token = n[0], MakeToken(uint32(n[1]), uint32(n[2]))
	return r, nil
}

// recordLen is the length of a verdict and a record in an answer.
const recordLen = 5

// reader takes an answer apart. It keeps the first error.
type reader struct {
	v   []any
	err error
}

func list(v any) []any {
	l, _ := v.([]any)
	return l
}

func (r reader) str(i int) string {
	if i < len(r.v) {
		if s, ok := r.v[i].(string); ok {
			return s
		}
	}
	return ""
}

func (r *reader) num(i int) int64 {
	if i < len(r.v) {
		if n, ok := r.v[i].(int64); ok {
			return n
		}
	}
	if r.err == nil {
		r.err = fmt.Errorf("fallback: a script's answer has no number at %d: %v", i, r.v)
	}
	return 0
}

func (r *reader) ms(i int) time.Duration { return time.Duration(r.num(i)) * time.Millisecond }

func (r *reader) verdict() Verdict {
	s := r.str(0)
	for i, text := range verdicts {
		if i != 0 && text == s {
			return Verdict(i)
		}
	}
	if r.err == nil {
		r.err = fmt.Errorf("fallback: a script answered %v", r.v)
	}
	return 0
}

func (r *reader) record() Record {
	return Record{Owner: r.str(1), Epoch: uint32(r.num(2)), Grace: r.ms(3), Revoked: r.num(4) == 1}
}

func (r *reader) row(i int) Row {
	row, err := decodeRow(r.str(i))
	if err != nil && r.err == nil {
		r.err = err
	}
	return row
}
