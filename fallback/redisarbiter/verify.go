package redisarbiter

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/fallback"
)

func (n *redisSpace) Verify(ctx context.Context, reads []fallback.Read) []fallback.State {
	states := make([]fallback.State, len(reads))
	done := make([]bool, len(reads))
	if n.kind != unknown {
		n.readMany(ctx, reads, states, done)
	}
	at := n.verifyEach(ctx, reads, states, func(i int) bool { return !done[i] })
	// A slot that moves has no script for several keys (TRYAGAIN), as one may be at either server:
	// the look for waiters is left out then.
	open := make([]bool, len(reads))
	again := false
	alone := slices.Clone(reads)
	for _, i := range at {
		if err := states[i].Err; err != nil && reads[i].Busy > 0 && strings.Contains(err.Error(), "TRYAGAIN") {
			alone[i].Busy, open[i], again = 0, true, true
		}
	}
	if again {
		for _, i := range n.verifyEach(ctx, alone, states, func(i int) bool { return open[i] }) {
			states[i].Wanted = make([]bool, reads[i].Busy)
		}
	}
	return states
}

// verifyEach reads those that which chooses by a script each. It returns their indices.
func (n *redisSpace) verifyEach(ctx context.Context, reads []fallback.Read, states []fallback.State, which func(int) bool) (at []int) {
	var batch []call
	for i, q := range reads {
		if !which(i) {
			continue
		}
		keys, args := make([]string, 1, 1+q.Busy), make([]any, 1, 1+len(q.Keys))
		keys[0], args[0] = n.part(q.Partition), ""
		for j, k := range q.Keys {
			args = append(args, k)
			if j < q.Busy {
				keys = append(keys, n.queue(q.Partition, k))
			}
		}
		batch, at = append(batch, call{scriptVerify, keys, args}), append(at, i)
	}
	for i, o := range n.runAll(ctx, batch) {
		states[at[i]] = o.state(reads[at[i]])
	}
	return at
}

// readMany answers those reads that name no keys: those of an owner, and all after a failover. The
// rest, as something is unusual or fails, is read one by one.
func (n *redisSpace) readMany(ctx context.Context, reads []fallback.Read, states []fallback.State, done []bool) {
	x := &records{n: n, states: states, done: done}
	for i, q := range reads {
		if len(q.Keys) == 0 {
			x.names, x.at = append(x.names, n.part(q.Partition)), append(x.at, i)
		}
	}
	if c, ok := n.conns.work.(*redis.Client); ok && len(x.names) >= plainFrom {
		x.plainly(ctx, c)
		x.forget()
	}
	if len(x.names) > 1 {
		x.byScript(ctx)
	}
}

// plainFrom is from how many records on they are read by plain commands.
const plainFrom = 16

// records is a call of readMany: the names of records, the indices of their reads, and where the
// answers go.
type records struct {
	n      *redisSpace
	names  []string
	at     []int
	states []fallback.State
	done   []bool
}

// answer takes a record as it is stored, which was read at a moment by the server's clock.
func (x *records) answer(i int, text string, now int64) {
	if r, ok := decodeRecord(text, now, x.n.graceOf(x.names[i])); ok {
		k := x.at[i]
		x.states[k], x.done[k] = fallback.State{Record: r, Rows: []fallback.Row{}, Wanted: []bool{}}, true
	}
}

// forget drops the records that have an answer. A call that was given up may go on, and reads the
// slices of before.
func (x *records) forget() {
	var names []string
	var at []int
	for i, k := range x.at {
		if !x.done[k] {
			names, at = append(names, x.names[i]), append(at, k)
		}
	}
	x.names, x.at = names, at
}

// plainly reads the records by plain commands, which cost a server half as much as in a script. The
// first and the last one are read by the script, which tells the server's name and time. The server
// has had one name meanwhile if it has the same one at both ends, as none comes twice. Records of
// the usual kind have an answer then: this server has written them, and they are not in Grace or in
// the middle of it.
func (x *records) plainly(ctx context.Context, c *redis.Client) {
	n, names, last := x.n, x.names, len(x.names)-1
	all, err := paced(ctx, n, scriptMany, func(ctx context.Context) ([]redis.Cmder, error) { // it may outlive this method
		scripts := n.lengths.begin()
		defer scripts.calls.Add(-1)
		return c.Pipelined(ctx, func(pipe redis.Pipeliner) error {
			pipe.EvalSha(ctx, scripts.digest[scriptMany], names[:1])
			for _, name := range names[1:last] {
				pipe.HMGet(ctx, name, "i", "m")
			}
			pipe.EvalSha(ctx, scripts.digest[scriptMany], names[last:])
			return nil
		})
	})
	if err != nil || len(all) != len(names) {
		return
	}
	first, end := manyOf(all[0]), manyOf(all[last])
	if first.server != end.server || len(first.records) != 1 || len(end.records) != 1 {
		return
	}
	x.answer(0, first.records[0], first.now)
	x.answer(last, end.records[0], end.now)
	latest := end.now + n.Grace().Milliseconds()
	for i := 1; i < last; i++ {
		cmd, ok := all[i].(*redis.SliceCmd)
		if !ok || len(cmd.Val()) != 2 {
			continue
		}
		server, _ := cmd.Val()[0].(string)
		text, _ := cmd.Val()[1].(string)
		if server != end.server {
			continue
		}
		if isUsual(text, end.now, latest) || n.observer != nil {
			x.answer(i, text, end.now)
		}
	}
}

// isUsual reports whether a record's Grace is none, or one that goes on: it ends after now, and at
// the latest when one would that begins now. many.lua looks for the same.
func isUsual(text string, now, latest int64) bool {
	_, rest, _ := strings.Cut(text, " ")
	_, rest, _ = strings.Cut(rest, " ")
	grace, _, _ := strings.Cut(rest, " ")
	end, err := strconv.ParseInt(grace, 10, 64)
	return err == nil && (end == 0 || now < end && end <= latest)
}

// byScript reads the records by one script for each server of a cluster. They wait for each other
// no longer than for ctx.
func (x *records) byScript(ctx context.Context) {
	n := x.n
	var work sync.WaitGroup
	for _, g := range n.sameServer(ctx, x.names) {
		work.Go(func() {
			names, args := make([]string, len(g)), []any(nil)
			for i, k := range g {
				names[i] = x.names[k]
			}
			if n.kind == clustered {
				for _, name := range names {
					args = append(args, name)
				}
				names = names[:1]
			}
			v, err := n.run(ctx, scriptMany, names, args...)
			if many := asMany(v); err == nil && len(many.records) == len(g) {
				for i, text := range many.records {
					x.answer(g[i], text, many.now)
				}
			}
		})
	}
	work.Wait()
}

// many is the answer of many.lua.
type many struct {
	server  string
	now     int64
	records []string
}

func manyOf(c redis.Cmder) many {
	cmd, ok := c.(*redis.Cmd)
	if !ok {
		return many{}
	}
	return asMany(cmd.Val())
}

// asMany reads an answer. It returns no records of one that is malformed.
func asMany(v any) (x many) {
	all := list(v)
	if len(all) < 2 {
		return x
	}
	x.server, _ = all[0].(string)
	clock, _ := all[1].(string)
	now, err := strconv.ParseInt(clock, 10, 64)
	if err != nil {
		return x
	}
	x.now, x.records = now, make([]string, len(all)-2)
	for i, r := range all[2:] {
		x.records[i], _ = r.(string)
	}
	return x
}

// sameServer groups keys, by their indices, that one server has.
func (n *redisSpace) sameServer(ctx context.Context, keys []string) [][]int {
	batch := make([]call, len(keys))
	for i, k := range keys {
		batch[i] = call{scriptMany, []string{k}, nil}
	}
	if groups := n.byServer(ctx, batch); groups != nil {
		return groups
	}
	all := make([]int, len(keys))
	for i := range all {
		all[i] = i
	}
	return [][]int{all}
}

// decodeRecord reads a record as it is stored, at a moment by the server's clock. ok is false if it
// has to be read by itself: it has no epochs left, its Grace is to be ended, or it is malformed.
// graceOf returns the time left of Grace in a namespace without a clock.
func decodeRecord(text string, now int64, graceOf func(name int64) (left int64)) (r fallback.Record, ok bool) {
	epoch, rest, _ := strings.Cut(text, " ")
	_, rest, _ = strings.Cut(rest, " ") // seq
	grace, rest, _ := strings.Cut(rest, " ")
	_, rest, _ = strings.Cut(rest, " ") // from
	revoked, owner, ok := strings.Cut(rest, " ")
	e, err := strconv.ParseUint(epoch, 10, epochBits)
	end, err2 := strconv.ParseInt(grace, 10, 64)
	if !ok || err != nil || err2 != nil || e >= fallback.MaxEpoch {
		return fallback.Record{}, false
	}
	r = fallback.Record{Owner: owner, Epoch: uint32(e), Revoked: owner != "" && revoked == epoch}
	if end == 0 {
		return r, true
	}
	left := end - now
	if graceOf != nil {
		if left = graceOf(end); left <= 0 {
			return fallback.Record{}, false
		}
	}
	r.Grace = time.Duration(left) * time.Millisecond
	return r, true
}

func (o outcome) state(q fallback.Read) fallback.State {
	if o.err != nil {
		return fallback.State{Err: o.err}
	}
	r := reader{v: list(o.v)}
	s := fallback.State{Record: r.record(), Rows: make([]fallback.Row, len(q.Keys)), Wanted: make([]bool, q.Busy)}
	for i := range s.Rows {
		s.Rows[i] = r.row(recordLen + i)
	}
	for i := range s.Wanted {
		s.Wanted[i] = r.num(recordLen+len(q.Keys)+i) == 1
	}
	if r.err != nil {
		return fallback.State{Err: fmt.Errorf("partition %d: %w", q.Partition, r.err)}
	}
	return s
}
