package fallback_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/injure"
	"github.com/holdfast-go/holdfast/internal/takes"
	"github.com/holdfast-go/holdfast/internal/virtual"
)

// A pair is a Memory and records. The same operations and injuries happen to both at the same
// moments, and must lead to the same answers and messages.
type pair struct {
	rand    *rand.Rand
	memory  *fallback.Memory
	ledger  *talkingLedger
	spaces  [2][2]fallback.Namespace // Memory's and the records', each of a process with a short and one with a long Grace
	heard   [2]map[string]*[]fallback.Message
	copies  []pairCopy
	dead    map[string]bool // sessions that are
	opts    *fallback.RecordsOptions
	seen    map[string]seenSince // with NoClock
	decoded map[string]fallback.Stored
	log     []string
	trouble string
}

type pairCopy struct {
	memory  *fallback.Snapshot
	records map[string]fallback.Versioned
}

var (
	pairSessions = []string{"a", "b", "c"}
	pairKeys     = []string{"k", "l \x00\xff"}
)

func newPair(ctx context.Context, seed uint64, opts *fallback.RecordsOptions) (*pair, func(), error) {
	x := &pair{
		rand: rand.New(rand.NewPCG(seed, 0)), memory: fallback.NewMemory(), ledger: newTalkingLedger(), dead: make(map[string]bool),
		opts: opts, seen: make(map[string]seenSince), decoded: make(map[string]fallback.Stored),
	}
	var stops []func()
	for side, a := range []fallback.Arbiter{x.memory, fallback.NewRecords(x.ledger, opts)} {
		for i, grace := range []time.Duration{12 * time.Second, 18 * time.Second} {
			n, err := a.Attach(ctx, fallback.Settings{Namespace: "ns", Partitions: 2, Grace: grace, Lease: grace - time.Second})
			if err != nil {
				return nil, nil, err
			}
			x.spaces[side][i] = n
		}
		x.heard[side] = make(map[string]*[]fallback.Message)
		for _, s := range pairSessions {
			heard := new([]fallback.Message)
			x.heard[side][s] = heard
			stop, err := x.spaces[side][0].Listen(ctx, s, func(m fallback.Message) { *heard = append(*heard, m) })
			if err != nil {
				return nil, nil, err
			}
			stops = append(stops, stop)
		}
	}
	return x, func() {
		for _, stop := range stops {
			stop()
		}
	}, nil
}

func choice[T any](x *pair, from ...T) T { return from[x.rand.IntN(len(from))] }

// both asks both, and compares.
func (x *pair) both(what string, session string, ask func(fallback.Namespace) (any, error)) {
	m, err := x.same(what, session, ask)
	x.log = append(x.log, fmt.Sprintf("%s: %+v, %v", what, m, err))
}

// same is both without a line in the log. It returns the Memory's answer.
func (x *pair) same(what string, session string, ask func(fallback.Namespace) (any, error)) (any, error) {
	process := 0
	if session == "c" {
		process = 1
	}
	x.observe()
	m, err := ask(x.spaces[0][process])
	r, err2 := ask(x.spaces[1][process])
	if !reflect.DeepEqual(m, r) || fmt.Sprint(err) != fmt.Sprint(err2) {
		x.trouble = fmt.Sprintf("%s: Memory answers\n\t%+v, %v, the records\n\t%+v, %v", what, m, err, r, err2)
	}
	return m, err
}

func (x *pair) identity() fallback.Identity {
	return id(choice(x, pairSessions...), 1+x.rand.Uint64N(2))
}

// present returns the Memory's record and rows of a partition.
func (x *pair) present(ctx context.Context, p uint32) (fallback.Record, map[string]fallback.Row) {
	all, _ := x.spaces[0][0].(fallback.Lister).Rows(ctx, []uint32{p})
	r, _ := x.spaces[0][0].Load(ctx, p)
	_, _ = x.spaces[1][0].Load(ctx, p)
	return r, all[0]
}

func (x *pair) step(ctx context.Context) {
	p, key, me := x.rand.Uint32N(2), choice(x, pairKeys...), x.identity()
	record, rows := x.present(ctx, p)
	epoch := choice(x, record.Epoch, record.Epoch, record.Epoch, max(record.Epoch, 1)-1, record.Epoch+1)
	row := fallback.Row{Identity: me, Token: fallback.MakeToken(epoch, 1+x.rand.Uint32N(3))}
	if old, ok := rows[key]; ok && x.rand.IntN(3) > 0 {
		row = old
	}
	switch n := x.rand.IntN(100); {
	case n < 18:
		q := fallback.LockRequest{Partition: p, Key: key, Me: me, Block: choice[uint32](x, 1, 1, 3, 1<<31), Wait: x.rand.IntN(3) > 0}
		if x.rand.IntN(3) == 0 {
			q.Evict = rows[key].Identity
		}
		if x.rand.IntN(8) == 0 {
			q.Gone = x.identity().Session
		}
		x.both(fmt.Sprintf("Lock(%+v)", q), me.Session, func(n fallback.Namespace) (any, error) { return n.Lock(ctx, q) })
	case n < 28:
		if x.rand.IntN(2) == 0 {
			me = row.Identity
		}
		all := []fallback.Release{{Partition: p, Key: key, Identity: me}, {Partition: p, Key: pairKeys[0], Identity: x.identity()}, {Partition: 1 - p, Key: key, Identity: me}}
		all = all[:1+x.rand.IntN(3)]
		x.both(fmt.Sprintf("Unlock(%+v)", all), me.Session, func(n fallback.Namespace) (any, error) { return n.Unlock(ctx, all), nil })
	case n < 36:
		e := fallback.Expect{Epoch: epoch, Owner: record.Owner, OwnerDead: x.rand.IntN(3) == 0}
		x.both(fmt.Sprintf("Acquire(%d, %s, %+v)", p, me.Session, e), me.Session, func(n fallback.Namespace) (any, error) {
			a, err := n.Acquire(ctx, p, me.Session, e)
			if len(a.Rows) == 0 {
				a.Rows = nil
			}
			return a, err
		})
	case n < 42:
		holds := map[string]fallback.Row{key: row}
		owner := choice(x, record.Owner, record.Owner, me.Session)
		x.both(fmt.Sprintf("Demote(%d, %s, %d, %v)", p, owner, epoch, holds), owner, func(n fallback.Namespace) (any, error) {
			return n.Demote(ctx, p, owner, epoch, holds)
		})
	case n < 44:
		x.both(fmt.Sprintf("DemoteUnserved(%d, %s, %d)", p, record.Owner, epoch), me.Session, func(n fallback.Namespace) (any, error) {
			return n.DemoteUnserved(ctx, p, record.Owner, epoch)
		})
	case n < 46:
		x.both(fmt.Sprintf("Revoke(%d, %d)", p, epoch), me.Session, func(n fallback.Namespace) (any, error) { return nil, n.Revoke(ctx, p, epoch, "x") })
	case n < 48:
		x.both(fmt.Sprintf("Witness(%d, %v)", p, row.Token), me.Session, func(n fallback.Namespace) (any, error) { return n.Witness(ctx, p, row.Token) })
	case n < 58:
		claims := []fallback.Claims{
			{Partition: p, Holds: []fallback.Claim{{Key: key, Row: row, Owned: choice(x, 0, epoch, row.Token.Epoch())}}}, {Partition: p}, {Partition: 1 - p},
		}[:1+x.rand.IntN(3)]
		x.both(fmt.Sprintf("Restore(%+v)", claims), me.Session, func(n fallback.Namespace) (any, error) { return n.Restore(ctx, claims), nil })
	case n < 62:
		owned := []fallback.Ownership{{Partition: p, Epoch: epoch}}
		x.both(fmt.Sprintf("ReclaimOwners(%s, %+v)", me.Session, owned), me.Session, func(n fallback.Namespace) (any, error) {
			return n.ReclaimOwners(ctx, me.Session, owned), nil
		})
	case n < 66:
		reads := []fallback.Read{{Partition: p, Keys: pairKeys, Busy: 1}, {Partition: 1 - p}, {Partition: p}}
		x.both("Verify", me.Session, func(n fallback.Namespace) (any, error) { return n.Verify(ctx, reads), nil })
	case n < 68:
		x.both("Waiters", me.Session, func(n fallback.Namespace) (any, error) { return n.(fallback.WaiterLister).Waiters(ctx, p, key, 2) })
	case n < 80:
		x.renew(ctx, me.Session)
	case n < 84:
		x.both("Dead("+me.Session+")", "a", func(n fallback.Namespace) (any, error) {
			l, err := n.Dead(ctx, me.Session, fallback.Stamp{})
			if l.Dead {
				x.declared(me.Session)
			}
			return l, err
		})
	case n < 85:
		x.both("CloseSession("+me.Session+")", "a", func(n fallback.Namespace) (any, error) { return nil, n.CloseSession(ctx, me.Session) })
	case n < 87:
		voters := []string{"a", "b", "c"}[:x.rand.IntN(4)]
		x.both(fmt.Sprintf("Bury(%s, %v)", me.Session, voters), "a", func(n fallback.Namespace) (any, error) {
			b, err := n.(fallback.Burier).Bury(ctx, me.Session, 1, voters)
			if b.Dead {
				x.declared(me.Session)
			}
			return b, err
		})
	case n < 89:
		x.injure()
	case n < 91:
		x.copies = append(x.copies, pairCopy{x.memory.Snapshot(), x.ledger.snapshot()})
	default:
		time.Sleep(choice(x, time.Millisecond, 300*time.Millisecond, 2*time.Second, 7*time.Second))
	}
}

// declared: the records remove a session that has expired when they say so, a Memory when the next
// one is opened.
func (x *pair) declared(session string) {
	x.dead[session] = true
	injure.State(x.memory, "ns", func(s *fallback.Sessions, _ []fallback.Partition) {
		if s.Members[session].TTL > 0 {
			delete(s.Members, session)
		}
	})
}

func (x *pair) renew(ctx context.Context, session string) {
	r := fallback.Registration{TTL: 5 * time.Second, Info: "info \xff of " + session, Guardians: fallback.Guardians{Version: 1, Set: []string{"a", "b"}}}
	how := choice(x, "Open", "Renew", "Renew")
	if how == "Open" && x.dead[session] {
		return // no session ID is used again
	}
	x.both(how+"("+session+")", session, func(n fallback.Namespace) (any, error) {
		call := n.Renew
		if how == "Open" {
			call = n.Open
		}
		a, err := call(ctx, session, r)
		a.Secrets = fallback.Secrets{} // are at random
		if x.opts.Durable {
			a.Server = "" // a Memory that is emptied is another one, a durable store is not
		}
		return a, err
	})
}

// injure makes it another server, with all data, earlier ones or none; or gives it earlier ones
// behind its back.
func (x *pair) injure() {
	if x.opts.Durable {
		x.injureDurable()
		return
	}
	c := pairCopy{x.memory.Snapshot(), x.ledger.snapshot()}
	if len(x.copies) > 0 && x.rand.IntN(2) == 0 {
		c = choice(x, x.copies...)
	}
	switch x.rand.IntN(6) {
	case 0:
		x.log = append(x.log, "all is lost")
		x.memory.Restore(nil)
		x.ledger.restore(nil)
	case 1, 2:
		x.log = append(x.log, "older data")
		x.memory.Rewind(c.memory)
		x.ledger.rewind(c.records)
	default:
		x.log = append(x.log, "another server")
		x.memory.Restore(c.memory)
		x.ledger.restore(c.records)
	}
	x.observe()
}

func TestRecords_AnswerAsMemoryDoes(t *testing.T) {
	for name, opts := range map[string]*fallback.RecordsOptions{
		"clock": {}, "Deposable": {Deposable: true}, "NoClock": {NoClock: true}, "Durable": {Durable: true, ColdStart: true}, "both": {NoClock: true, Durable: true, ColdStart: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			answerAsMemory(t, opts)
		})
	}
}

func answerAsMemory(t *testing.T, opts *fallback.RecordsOptions) {
	runs := 20
	if !testing.Short() {
		takes.Seconds(t)
		if runs = 150; *opts != (fallback.RecordsOptions{}) {
			runs = 30 // most options have five calls in a step
		}
	}
	for seed := range uint64(runs) {
		virtual.Test(t, func(t *testing.T) {
			ctx := t.Context()
			x, stop, err := newPair(ctx, seed, opts)
			if err != nil {
				t.Fatal(err)
			}
			defer stop()
			for range 150 {
				x.step(ctx)
				if opts.NoClock || opts.Durable {
					x.look(ctx)
				}
				synctest.Wait() // for the messages
				for _, s := range pairSessions {
					if m, r := *x.heard[0][s], *x.heard[1][s]; !slices.Equal(m, r) && x.trouble == "" {
						x.trouble = fmt.Sprintf("messages for %s: Memory's %v, the records' %v", s, m, r)
					}
				}
				if x.trouble != "" {
					t.Fatalf("seed %d: %s\nafter\n%s", seed, x.trouble, strings.Join(x.log, "\n"))
				}
			}
		})
		if t.Failed() {
			return
		}
	}
}
