package election

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"sync"
	"time"
)

// plan is the division of the shards: by shard, the member's ID.
type plan []string

// of returns the shards of a member.
func (p plan) of(id string) map[int]bool {
	mine := make(map[int]bool)
	for i, owner := range p {
		if owner == id {
			mine[i] = true
		}
	}
	return mine
}

// encodedPlan names each member once.
type encodedPlan struct {
	Members []string `json:"members"`
	Shards  []int    `json:"shards"` // index into Members
}

func (p plan) encode() string {
	x := encodedPlan{Members: p.members()}
	for _, owner := range p {
		i, _ := slices.BinarySearch(x.Members, owner)
		x.Shards = append(x.Shards, i)
	}
	b, _ := json.Marshal(x) // strings and integers can be marshalled
	return string(b)
}

func decodePlan(text []byte) (plan, bool) {
	var x encodedPlan
	if json.Unmarshal(text, &x) != nil || len(x.Shards) == 0 || len(x.Shards) > MaxShards {
		return nil, false
	}
	p := make(plan, len(x.Shards))
	for i, m := range x.Shards {
		if m < 0 || m >= len(x.Members) {
			return nil, false
		}
		p[i] = x.Members[m]
	}
	return p, true
}

func (p plan) members() []string {
	all := slices.Clone(p)
	slices.Sort(all)
	return slices.Compact(all)
}

// balance divides n shards among one or more members. Each shard stays where it was in the plan p,
// unless its member has gone or has too many.
func (p plan) balance(members []string, n int) plan {
	had := make(map[string]int)
	for i := range min(n, len(p)) {
		had[p[i]]++
	}
	// The members with the most shards get the remainder: that moves least.
	members = slices.Clone(members)
	slices.Sort(members)
	slices.SortStableFunc(members, func(a, b string) int { return had[b] - had[a] })
	quota := make(map[string]int)
	for i, m := range members {
		quota[m] = n / len(members)
		if i < n%len(members) {
			quota[m]++
		}
	}
	next := make(plan, n)
	for i := range min(n, len(p)) {
		if quota[p[i]] > 0 {
			next[i] = p[i]
			quota[p[i]]--
		}
	}
	for i := range next {
		if next[i] != "" {
			continue
		}
		for quota[members[0]] == 0 {
			members = members[1:]
		}
		next[i] = members[0]
		quota[members[0]]--
	}
	return next
}

// plan makes plans, in the term of the process that does it, until ctx ends.
func (s *members) plan(ctx context.Context, t *Term, n int) error {
	changed, stop := s.e.c.Watch(s.key)
	defer stop()
	var last plan     // that the term has taken, or that of a term before
	troubled := false // a record was written
	if k, err := s.e.look(ctx); err == nil {
		last, _ = decodePlan(k.Value)
	}
	known, gone := make(map[string]bool), make(chan string)
	ctx, cancel := context.WithCancel(ctx)
	var watchers sync.WaitGroup
	defer watchers.Wait()
	defer cancel()
	watch := func(id string) {
		if !known[id] {
			known[id] = true
			watchers.Go(func() {
				if s.awaitGone(ctx, id) {
					select {
					case gone <- id:
					case <-ctx.Done():
					}
				}
			})
		}
	}
	for _, id := range last.members() {
		watch(id)
	}
	// The first plan, and each change by new members, waits: processes often start together.
	// Members also announce that they are still there, which moves no plan that is due.
	due, timer := time.Now().Add(s.e.opts.Pause), time.NewTimer(s.e.opts.Pause)
	defer timer.Stop()
	wait := func(d time.Duration) {
		due = time.Now().Add(d)
		timer.Reset(d)
	}
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-changed:
			wait(min(s.e.opts.Pause, time.Until(due)))
			continue
		case id := <-gone:
			delete(known, id)
		case <-timer.C:
		}
		wait(s.e.opts.Keep / 3)
		if list, _, err := s.list(ctx); err == nil {
			for _, x := range list {
				watch(x.ID)
			}
		}
		if len(known) == 0 {
			continue
		}
		next := last.balance(slices.Sorted(maps.Keys(known)), n)
		text := next.encode()
		if slices.Equal(next, last) && t.published() == text {
			troubled = false
			continue
		}
		switch err := t.Publish(ctx, text); {
		case t.published() == text: // if it was not stored, it is with the next refreshment
			if last, troubled = next, false; err != nil {
				wait(s.e.opts.Pause)
			}
		case !troubled && t.Context().Err() == nil:
			troubled = true
			s.e.opts.Logger.Error("holdfast: a plan of shards is refused, and that of before stays", "election", s.e.name, "members", len(known), "error", err)
		}
	}
}

// published returns the value of the term.
func (t *Term) published() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.value
}
