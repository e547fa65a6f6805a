package fallback_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/virtual"
)

// A durable store loses no record, but an operator may delete one. Holders of the partition get
// their keys back, and no other caller gets one before: I1. Tokens go on rising: I2.
func TestDurable_ADeletedRecordIsInGrace(t *testing.T) {
	for name, opts := range map[string]*fallback.RecordsOptions{"clock": {Durable: true, ColdStart: true}, "NoClock": {Durable: true, ColdStart: true, NoClock: true}} {
		t.Run(name, func(t *testing.T) {
			virtual.Test(t, func(t *testing.T) {
				l := newLedger()
				n := attachRecords(t, l, opts)
				held := lock(t, n, 1, "k", id("alice", 1)).Token
				free := lock(t, n, 1, "free", id("alice", 2)).Token
				other := attachRecords(t, l, opts)
				time.Sleep(time.Hour)
				for i := range uint64(3) {
					delete(l.records, "ns/p1")
					if i == 1 {
						other = attachRecords(t, l, opts) // one that knows nothing
					}
					for _, x := range []fallback.Namespace{other, n} {
						a := lock(t, x, 1, "k", id("bob", i))
						want(t, "verdict", a.Verdict, fallback.InGrace)
						want(t, "Grace", a.Record.Grace, quiet)
						want(t, "Grace of another partition", loaded(t, x, 0).Grace, 0)
						want(t, "Grace of the table", deadSession(t, x, "carol").Grace, 0)
					}
					claims := []fallback.Claims{{Partition: 1, Holds: []fallback.Claim{{Key: "k", Row: fallback.Row{Identity: id("alice", 1), Token: held}}}}}
					restored := n.Restore(t.Context(), claims)[0]
					if restored.Err != nil || restored.Verdicts[0] != fallback.Granted {
						t.Fatalf("Restore: %+v", restored)
					}
					time.Sleep(quiet)
					want(t, "verdict after Grace", lock(t, other, 1, "k", id("bob", i)).Verdict, fallback.Held)
					a := lock(t, other, 1, "free", id("bob", i))
					if a.Verdict != fallback.Granted || a.Token <= free {
						t.Errorf("a free key after Grace: %+v, want a token after %v", a, free)
					}
					free = a.Token
					if err := errors.Join(other.Unlock(t.Context(), []fallback.Release{{Partition: 1, Key: "free", Identity: id("bob", i)}})...); err != nil {
						t.Fatal(err)
					}
				}
			})
		})
	}
}

// A record is written before the table tells of it. So a partition that another process uses for
// the first time is not taken for lost.
func TestDurable_ANewRecordIsNotTakenForLost(t *testing.T) {
	for seed := range uint64(300) {
		steps := []byte("aaaaaaabbbbbbbe")
		rand.New(rand.NewPCG(seed, 0)).Shuffle(len(steps), func(i, j int) { steps[i], steps[j] = steps[j], steps[i] })
		order := string(steps)
		virtual.Test(t, func(t *testing.T) {
			r := newRace()
			opts := &fallback.RecordsOptions{Durable: true, ColdStart: true, NoClock: true}
			n, other, third := attachRecords(t, r.ledger, opts), attachRecords(t, r.ledger, opts), attachRecords(t, r.ledger, opts)
			var answers [2]fallback.LockAnswer
			var errs [2]error
			call := func(i int, n fallback.Namespace) func(context.Context) {
				return func(ctx context.Context) {
					answers[i], errs[i] = n.Lock(ctx, fallback.LockRequest{Partition: 1, Key: fmt.Sprint("k", i), Me: id("alice", 1), Block: 1})
				}
			}
			r.run(t.Context(), order, call(0, n), call(1, other), func() { lock(t, third, 1, "third", id("carol", 1)) })
			for i, a := range answers {
				if errs[i] != nil || a.Verdict != fallback.Granted {
					t.Errorf("order %s: call %d: %+v, %v", order, i, a, errs[i])
				}
			}
		})
	}
}

// A lock in a record that the table does not tell of is not granted yet. The next call, of any
// process, has the table tell of it.
func TestDurable_ALockIsGrantedWhenItsRecordIsToldOf(t *testing.T) {
	virtual.Test(t, func(t *testing.T) {
		l := newLedger()
		opts := &fallback.RecordsOptions{Durable: true, ColdStart: true}
		n, other := attachRecords(t, l, opts), attachRecords(t, l, opts)
		steps := 0
		l.before = func(ctx context.Context) { // the fourth is the write of the record
			if ctx.Value(caller{}) != nil {
				if steps++; steps > 4 {
					l.fail = fmt.Errorf("%w: no leader", fallback.ErrNotSent)
				}
			}
		}
		call := context.WithValue(t.Context(), caller{}, "")
		a, err := n.Lock(call, fallback.LockRequest{Partition: 1, Key: "k", Me: id("alice", 1), Block: 1})
		if err == nil || errors.Is(err, fallback.ErrNotSent) || len(l.records["ns/p1"].Value) == 0 {
			t.Fatalf("Lock where only the record can be written: %+v, %v", a, err)
		}
		l.fail = nil
		want(t, "holder for another process", lock(t, other, 1, "k", id("bob", 1)).Holder.Identity, id("alice", 1))
		delete(l.records, "ns/p1")
		want(t, "verdict where the record was deleted", lock(t, other, 1, "k", id("bob", 1)).Verdict, fallback.InGrace)
	})
}

// Processes that share an arbiter tell the table of new records in one write.
func TestDurable_RecordsAreToldOfTogether(t *testing.T) {
	virtual.Test(t, func(t *testing.T) {
		l := newLedger()
		n := attachRecords(t, l, &fallback.RecordsOptions{Durable: true, ColdStart: true})
		before := l.writes
		l.before = func(context.Context) { time.Sleep(time.Millisecond) }
		done := make(chan error)
		for p := range uint32(plain.Partitions) {
			go func() {
				_, err := n.Acquire(t.Context(), p, "alice", fallback.Expect{Epoch: loaded(t, n, p).Epoch})
				done <- err
			}()
		}
		for range plain.Partitions {
			if err := <-done; err != nil {
				t.Fatal(err)
			}
		}
		if writes := l.writes - before; writes > plain.Partitions+2 {
			t.Errorf("%d writes for %d partitions", writes, plain.Partitions)
		}
	})
}

// A call has seen that the partition has no record, then one that another process has written, and
// then it is deleted.
func TestDurable_ARecordIsDeletedDuringACall(t *testing.T) {
	virtual.Test(t, func(t *testing.T) {
		l := newLedger()
		opts := &fallback.RecordsOptions{Durable: true, ColdStart: true}
		n, other := attachRecords(t, l, opts), attachRecords(t, l, opts)
		steps := 0
		l.before = func(ctx context.Context) {
			if ctx.Value(caller{}) == nil {
				return
			}
			switch steps++; steps {
			case 3: // after its look at the record, and at the table
				lock(t, n, 1, "k", id("alice", 1))
			case 5: // after its look at the record of the other, and at the table
				delete(l.records, "ns/p1")
			}
		}
		a, err := other.Lock(context.WithValue(t.Context(), caller{}, ""), fallback.LockRequest{Partition: 1, Key: "k", Me: id("bob", 1), Block: 1})
		if err != nil || a.Verdict != fallback.InGrace || steps < 5 {
			t.Errorf("Lock: %+v, %v, in %d steps", a, err, steps)
		}
	})
}
