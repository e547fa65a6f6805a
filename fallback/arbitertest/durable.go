package arbitertest

import (
	"context"
	"crypto/rand"
	"fmt"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/fallback"
)

// A Cluster is a store of several members, or one, that serves one test only, and that the test
// injures. Tests that need a hook are skipped where it is nil. The store never loses an
// acknowledged write: [fallback.Durable].
type Cluster struct {
	// New returns an arbiter on the store, as of another process, which takes a namespace that is
	// missing for a new one: [fallback.RecordsOptions.ColdStart].
	New func(t *testing.T) fallback.Arbiter

	// Kill ends the leader (or the only member) at once, as kill -9 does. Calls answer again
	// without it, soon after Kill has returned: another member leads, or the same one was started
	// again with its data. Kill may be called again.
	Kill func(t *testing.T)

	// Restart kills all members, and starts them again with their data.
	Restart func(t *testing.T)

	// Old cuts the leader off from the other members, which choose another one. It returns an
	// arbiter that leads to the old leader only, where one can be made, and heal, which ends the
	// cut.
	Old func(t *testing.T) (old fallback.Arbiter, heal func())

	// Cut cuts off a minority without the leader. heal ends the cut.
	Cut func(t *testing.T) (heal func())

	// Empty deletes all records in one step, or that of the sessions first. Careful is New without
	// ColdStart.
	Empty   func(t *testing.T)
	Careful func(t *testing.T) fallback.Arbiter

	// Delete deletes one record, as an operator may do. The key is the one that [fallback.Records]
	// is told.
	Delete func(t *testing.T, key string)
}

// RunDurable checks that a store loses no acknowledged write, and begins no Grace, over the
// injuries of its Cluster. Each of the parallel subtests has a Cluster of its own. It comes beside
// [Run].
func RunDurable(t *testing.T, start func(t *testing.T) Cluster) {
	t.Helper()
	for _, x := range []struct {
		name   string
		needed func(Cluster) bool
		run    func(s *space, c Cluster)
	}{
		{"a namespace that is said to be new is used at once", func(Cluster) bool { return true }, durableStart},
		{"a store that was emptied begins with Grace", func(c Cluster) bool { return c.Empty != nil && c.Careful != nil }, emptied},
		{"a partition whose record was deleted begins with Grace", func(c Cluster) bool { return c.Delete != nil }, deleted},
		{"a kill of the leader loses nothing", func(c Cluster) bool { return c.Kill != nil }, func(s *space, c Cluster) {
			nothingLost(s, c.New(s.t), c.Kill)
		}},
		{"a restart of all members loses nothing", func(c Cluster) bool { return c.Restart != nil }, func(s *space, c Cluster) {
			nothingLost(s, c.New(s.t), c.Restart)
		}},
		{"what is acknowledged while the leader is killed is there", func(c Cluster) bool { return c.Kill != nil }, locksUnderKills},
		{"an old leader refuses", func(c Cluster) bool { return c.Old != nil }, oldLeader},
		{"a minority that is cut off is not missed, and has caught up when it is back", func(c Cluster) bool { return c.Cut != nil }, minority},
	} {
		t.Run(x.name, func(t *testing.T) {
			t.Parallel()
			c := start(t)
			if !x.needed(c) {
				t.Skip("the cluster cannot do that")
			}
			x.run(newSpace(t, c.New(t), time.Hour), c)
		})
	}
}

// soon calls f until it has no error: a cluster that chooses a leader may answer none for a while.
func soon[T any](s *space, what string, f func(context.Context) (T, error)) (x T) {
	s.t.Helper()
	var last error
	eventually(s, what, func() bool {
		ctx, cancel := context.WithTimeout(s.ctx, patience/6)
		defer cancel()
		x, last = f(ctx)
		return last == nil
	})
	return x
}

func lockSoon(s *space, n fallback.Namespace, r fallback.LockRequest) fallback.LockAnswer {
	s.t.Helper()
	r.Block = max(r.Block, 1)
	return soon(s, fmt.Sprintf("Lock(%q)", r.Key), func(ctx context.Context) (fallback.LockAnswer, error) { return n.Lock(ctx, r) })
}

func durableStart(s *space, _ Cluster) {
	want(s, "durability", fallback.DurabilityOf(s.Namespace), fallback.Durable)
	want(s, "Grace of the sessions", s.open("alice", time.Hour).Grace, 0)
	for p := range uint32(s.settings.Partitions) {
		want(s, "Grace", must(s.Load(s.ctx, p))(s).Grace, 0)
	}
	s.take(id("alice", 1), "k")
}

// emptied has a process attach to a store that an operator has emptied, before the processes that
// use it notice. They get back their holds and partitions.
func emptied(s *space, c Cluster) {
	first := s.open("alice", time.Hour)
	row := s.take(id("alice", 1), "k")
	owned := must(s.Acquire(s.ctx, 1, "alice", fallback.Expect{Epoch: must(s.Load(s.ctx, 1))(s).Epoch}))(s).Record
	never := must(s.Load(s.ctx, 2))(s) // has no record
	for i := range 2 {
		c.Empty(s.t)
		n := soon(s, "Attach", func(ctx context.Context) (fallback.Namespace, error) { return c.Careful(s.t).Attach(ctx, s.settings) })
		defer n.Close()
		for p := range uint32(3) {
			r := fallback.LockRequest{Partition: p, Key: "k", Me: id("bob", uint64(i+1))}
			want(s, "verdict for a process that came first", lockSoon(s, n, r).Verdict, fallback.InGrace)
			want(s, "verdict for one that was there", lockSoon(s, s.Namespace, r).Verdict, fallback.InGrace)
		}
		want(s, "dead", must(n.Dead(s.ctx, "alice", fallback.Stamp{}))(s).Dead, false)
		r := must(s.Renew(s.ctx, "alice", fallback.Registration{TTL: time.Hour, Info: "addr of alice", Seen: first.Expiry}))(s)
		if !r.Alive || r.Grace == 0 {
			s.t.Errorf("Renew: %+v, want alive, in Grace", r)
		}
		want(s, "owner reclaimed", s.ReclaimOwners(s.ctx, "alice", []fallback.Ownership{{Partition: 1, Epoch: owned.Epoch}})[0].Verdict, fallback.Granted)
		restored := s.Restore(s.ctx, []fallback.Claims{{Holds: []fallback.Claim{{Key: "k", Row: row}}}})[0]
		if restored.Err != nil || restored.Verdicts[0] != fallback.Granted {
			s.t.Errorf("Restore: %+v", restored)
		}
		states := must(verify(s.ctx, n, []fallback.Read{{Partition: 0, Keys: []string{"k"}}, {Partition: 1}, {Partition: 2}}))(s)
		want(s, "rows for the other process", states[0].Rows, []fallback.Row{row})
		want(s, "owner for the other process", states[1].Record.Owner, "alice")
		for p, x := range states {
			if x.Record.Grace == 0 {
				s.t.Errorf("partition %d is not in Grace", p)
			}
		}
		if states[2].Record.Epoch > never.Epoch {
			s.t.Errorf("the epoch of a partition without a record is %d in Grace, %d before", states[2].Record.Epoch, never.Epoch)
		}
	}
}

// deleted has an operator delete records of partitions alone. Their holders and owners get back
// their holds and partitions.
func deleted(s *space, c Cluster) {
	row := s.take(id("alice", 1), "k")
	owned := must(s.Acquire(s.ctx, 1, "alice", fallback.Expect{Epoch: must(s.Load(s.ctx, 1))(s).Epoch}))(s).Record
	others := []fallback.Namespace{s.Namespace, s.attach()}
	for i := range 2 {
		for p := range 2 {
			c.Delete(s.t, fmt.Sprintf("%s/p%d", s.settings.Namespace, p))
		}
		if i == 1 {
			n := must(c.New(s.t).Attach(s.ctx, s.settings))(s)
			defer n.Close()
			others = append([]fallback.Namespace{n}, others...)
		}
		for _, n := range others {
			for p, verdict := range []fallback.Verdict{fallback.InGrace, fallback.InGrace, fallback.Granted} {
				r := fallback.LockRequest{Partition: uint32(p), Key: "k", Me: id("bob", 1)}
				want(s, "verdict", lockSoon(s, n, r).Verdict, verdict)
			}
			want(s, "Grace of the sessions", must(n.Dead(s.ctx, "alice", fallback.Stamp{}))(s).Grace, 0)
		}
		want(s, "owner reclaimed", s.ReclaimOwners(s.ctx, "alice", []fallback.Ownership{{Partition: 1, Epoch: owned.Epoch}})[0].Verdict, fallback.Granted)
		restored := s.Restore(s.ctx, []fallback.Claims{{Holds: []fallback.Claim{{Key: "k", Row: row}}}})[0]
		if restored.Err != nil || restored.Verdicts[0] != fallback.Granted {
			s.t.Errorf("Restore: %+v", restored)
		}
		states := must(verify(s.ctx, others[0], []fallback.Read{{Partition: 0, Keys: []string{"k"}}, {Partition: 1}}))(s)
		want(s, "rows for another process", states[0].Rows, []fallback.Row{row})
		want(s, "owner for another process", states[1].Record.Owner, "alice")
	}
}

// nothingLost compares the state before an injury with that after it, here and for a process that
// comes later.
func nothingLost(s *space, later fallback.Arbiter, injure func(*testing.T)) {
	first := s.open("alice", time.Hour)
	if err := s.CloseSession(s.ctx, "bob"); err != nil {
		s.t.Fatal(err)
	}
	row := s.take(id("alice", 1), "k")
	gone := s.take(id("alice", 2), "gone")
	s.unlock(id("alice", 2), "gone")
	owned := must(s.Acquire(s.ctx, 1, "alice", fallback.Expect{Epoch: must(s.Load(s.ctx, 1))(s).Epoch}))(s).Record
	for i := range 2 {
		injure(s.t)
		n := s.Namespace
		if i == 1 {
			n = soon(s, "Attach", func(ctx context.Context) (fallback.Namespace, error) { return later.Attach(ctx, s.settings) })
			defer n.Close()
		}
		states := soon(s, "Verify", func(ctx context.Context) ([]fallback.State, error) {
			return verify(ctx, n, []fallback.Read{{Partition: 0, Keys: []string{"k", "gone"}}, {Partition: 1}})
		})
		want(s, "Grace", states[0].Record.Grace, 0)
		want(s, "rows", states[0].Rows, []fallback.Row{row, {}})
		want(s, "record of an owner", states[1].Record, owned)
		r := soon(s, "Renew", func(ctx context.Context) (fallback.Renewal, error) {
			return n.Renew(ctx, "alice", fallback.Registration{TTL: time.Hour, Info: "addr of alice", Seen: first.Expiry})
		})
		if !r.Alive || r.Grace != 0 || r.Server != first.Server {
			s.t.Errorf("Renew: got %+v, want as before: %+v", r, first)
		}
		want(s, "verdict for another", lockSoon(s, n, fallback.LockRequest{Key: "k", Me: id("bob", 1)}).Verdict, fallback.Held)
		next := lockSoon(s, n, fallback.LockRequest{Key: "gone", Me: id("bob", uint64(i+1))})
		if next.Verdict != fallback.Granted || next.Token <= gone.Token {
			s.t.Errorf("a lock after the injury: got %+v, want a token after %v", next, gone.Token)
		}
		gone.Token = next.Token
		soon(s, "Unlock", func(ctx context.Context) (int, error) {
			for _, err := range n.Unlock(ctx, []fallback.Release{{Key: "gone", Identity: id("bob", uint64(i+1))}}) {
				if err != nil {
					return 0, err
				}
			}
			return 0, nil
		})
	}
}

// locksUnderKills takes one key after another. Each lock that was granted has to be there.
func locksUnderKills(s *space, c Cluster) {
	granted, first := make(chan map[string]fallback.Row, 1), make(chan struct{})
	running, stop := context.WithCancel(s.ctx)
	defer stop()
	go func() {
		all := make(map[string]fallback.Row)
		defer func() { granted <- all }()
		for i := 0; running.Err() == nil; i++ {
			key := rand.Text()
			ctx, cancel := context.WithTimeout(running, patience/6)
			a, err := s.Lock(ctx, fallback.LockRequest{Key: key, Me: id("alice", uint64(i)), Block: 1})
			cancel()
			if err == nil && a.Verdict == fallback.Granted {
				all[key] = fallback.Row{Identity: id("alice", uint64(i)), Token: a.Token}
				if len(all) == 1 {
					close(first)
				}
			}
			if len(all) == 2000 { // a record has all rows of a partition
				return
			}
		}
	}()
	select {
	case <-first:
	case <-s.ctx.Done():
	}
	for range 3 {
		lockSoon(s, s.Namespace, fallback.LockRequest{Partition: 1, Key: rand.Text(), Me: id("bob", 1)})
		c.Kill(s.t)
	}
	lockSoon(s, s.Namespace, fallback.LockRequest{Partition: 1, Key: rand.Text(), Me: id("bob", 1)})
	stop()
	all := <-granted
	if len(all) == 0 {
		s.t.Error("nothing was granted")
	}
	tokens := make(map[fallback.Token]bool, len(all))
	for key, row := range all {
		state := soon(s, "Verify", func(ctx context.Context) ([]fallback.State, error) {
			return verify(ctx, s, []fallback.Read{{Keys: []string{key}}})
		})[0]
		want(s, "row", state.Rows[0], row)
		want(s, "Grace", state.Record.Grace, 0)
		if tokens[row.Token] {
			s.t.Errorf("token %v was given out twice", row.Token)
		}
		tokens[row.Token] = true
		if s.t.Failed() {
			return
		}
	}
}

// oldLeader asks a leader that others have replaced. It may not know that yet: it must not answer
// before it does.
func oldLeader(s *space, c Cluster) {
	row := s.take(id("alice", 1), "k")
	s.open("alice", time.Hour)
	old, heal := c.Old(s.t)
	healed := false
	defer func() {
		if !healed {
			heal()
		}
	}()
	taken := lockSoon(s, s.Namespace, fallback.LockRequest{Key: "new", Me: id("bob", 1)})
	want(s, "verdict of the new leader", taken.Verdict, fallback.Granted)
	if old != nil {
		ctx, cancel := context.WithTimeout(s.ctx, patience/6)
		n, err := old.Attach(ctx, s.settings)
		if err == nil {
			defer n.Close()
			for _, key := range []string{"new", "other"} {
				if a, err := n.Lock(ctx, fallback.LockRequest{Key: key, Me: id("carol", 1), Block: 1}); err == nil && a.Verdict != fallback.Held {
					s.t.Errorf("Lock(%q) at the old leader: %+v", key, a)
				}
			}
			if l, err := n.Dead(ctx, "nobody", fallback.Stamp{}); err == nil && l.Dead {
				s.t.Error("Dead at the old leader: dead")
			}
		}
		cancel()
	}
	heal()
	healed = true
	for key, want := range map[string]fallback.Row{"k": row, "new": {Identity: id("bob", 1), Token: taken.Token}} {
		if a := lockSoon(s, s.Namespace, fallback.LockRequest{Key: key, Me: id("carol", 1)}); a.Verdict != fallback.Held || a.Holder != want {
			s.t.Errorf("Lock(%q) after the cut: %+v, want held by %+v", key, a, want)
		}
	}
}

func minority(s *space, c Cluster) {
	row := s.take(id("alice", 1), "k")
	for range 2 {
		heal := c.Cut(s.t)
		a := lockSoon(s, s.Namespace, fallback.LockRequest{Key: "k", Me: id("bob", 1)})
		want(s, "holder", a.Holder, row)
		want(s, "Grace", a.Record.Grace, 0)
		a = lockSoon(s, s.Namespace, fallback.LockRequest{Key: rand.Text(), Me: id("bob", 1)})
		want(s, "verdict", a.Verdict, fallback.Granted)
		heal()
		want(s, "holder", lockSoon(s, s.Namespace, fallback.LockRequest{Key: "k", Me: id("bob", 1)}).Holder, row)
	}
}
