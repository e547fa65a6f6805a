package redisarbiter

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/fallback"
)

func (n *redisSpace) Verify(ctx context.Context, reads []fallback.Read) []fallback.State {
	states := make([]fallback.State, len(reads))
	done := make([]bool, len(reads))
	if n.kind != unknown {
		n.readMany(ctx, reads, states, done)
	}
	at := n.verifyEach(ctx, reads, states, func(i int) bool { return !done[i] })
	// A slot that moves has no script for several keys (TRYAGAIN), as one may be at either server: what tells of waiters is
	// left out then.
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

// readMany answers, by one script, those reads that name no keys: those of an owner, and all after a failover. If the script
// fails, they are read one by one.
func (n *redisSpace) readMany(ctx context.Context, reads []fallback.Read, states []fallback.State, done []bool) {
	var keys []string
	var at []int
	for i, q := range reads {
		if len(q.Keys) == 0 {
			keys, at = append(keys, n.part(q.Partition)), append(at, i)
		}
	}
	if len(keys) < 2 {
		return
	}
	// One script per server of a cluster, which wait for each other no longer than for ctx.
	var work sync.WaitGroup
	for _, g := range n.sameServer(ctx, keys) {
		work.Go(func() {
			names, args := make([]string, len(g)), []any(nil)
			for i, k := range g {
				names[i] = keys[k]
			}
			if n.kind == clustered {
				for _, name := range names {
					args = append(args, name)
				}
				names = names[:1]
			}
			v, err := n.run(ctx, scriptMany, names, args...)
			all := list(v)
			if err != nil || len(all) != 1+len(g) {
				return
			}
			clock, _ := all[0].(string)
			now, err := strconv.ParseInt(clock, 10, 64)
			if err != nil {
				return
			}
			for i, x := range all[1:] {
				text, _ := x.(string)
				k := at[g[i]]
				if r, ok := decodeRecord(text, now, n.graceOf(keys[g[i]])); ok {
					states[k], done[k] = fallback.State{Record: r, Rows: []fallback.Row{}, Wanted: []bool{}}, true
				}
			}
		})
	}
	work.Wait()
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

// decodeRecord reads a record as it is stored, at a moment by the server's clock. ok is false if it has
// to be read by itself: it has no epochs left, its Grace is to be ended, or it is malformed. graceOf says what is left of Grace in a namespace
// without a clock.
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
