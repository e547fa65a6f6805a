package redisarbiter_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/fallback/redisarbiter"
	"github.com/holdfast-go/holdfast/internal/injure"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/takes"
)

// The rules are written twice, in Go and in Lua. Here the same operations, and the same injuries,
// are applied to both, and must lead to the same answers, messages and states. Grace is an hour, so
// time does nothing by itself: it ends, and sessions expire, where the test says so. Both have the
// same clock, so as long as a run begins and ends within one second, even epochs and tokens must be
// equal. A longer run is not judged, but done again.

// twins are a Memory and a Redis that are treated alike.
type twins struct {
	client *redis.Client
	redis  fallback.Namespace
	heard  *redis.PubSub

	store  *fallback.Memory
	onAll  bool // sessions are opened on all replicas
	memory fallback.Namespace
	long   struct{ redis, memory fallback.Namespace } // of a process that needs a longer Grace
	taps   map[string]func() []fallback.Message

	stream
	deck   []move // nil: all
	looks  int    // at the partitions
	copies map[uint32]*replica
	log    []string
}

var (
	diffSessions = []string{"a", "b", "c"}
	diffKeys     = []string{"k", "l \x00{}"}
	diffNames    = []string{ // of holds: the keys, and holds of other modes
		"k", "l \x00{}", fallback.SharedName("k", "1"), fallback.SharedName("k", "2"), fallback.PermitsName("k", 1, 3, "1"),
		fallback.PermitsName("k", 2, 3, "2"), fallback.PermitsName("k", 1, 2, "3"), fallback.PermitsName("k", 1, 3, "4"), fallback.SharedName("l \x00{}", "1"), fallback.DowngradedName("k", "1"), "k\x00later\x00\xff",
		fallback.BlockName("k", 3, 3, "4", 1), fallback.BlockName("k", 2, 3, "4", 1), fallback.BlockName("k", 1, 3, "4", 1), fallback.BlockName("k", 2, 3, "5", 1),
		fallback.BlockName("k", 1, 2, "4", 1),
	}
	diffSettings = fallback.Settings{Namespace: "ns", Partitions: 2, Grace: time.Hour, Lease: time.Minute}
	longSettings = fallback.Settings{Namespace: "ns", Partitions: 2, Grace: 90 * time.Minute, Lease: time.Minute}
)

func newTwins(t testing.TB, opts *redisarbiter.Options) *twins {
	var args []string
	if opts.AllReplicas > 0 {
		args = always
	}
	s := redistest.Start(t, args...)
	x := &twins{client: s.Client(t), onAll: opts.AllReplicas > 0}
	for range opts.AllReplicas {
		follow(t, s, args...)
	}
	x.redis, x.long.redis = attachTo(t, x.client, opts, diffSettings), attachTo(t, x.client, opts, longSettings)
	x.heard = x.client.PSubscribe(t.Context(), "{ns:c}:*")
	t.Cleanup(func() { _ = x.heard.Close() })
	if _, err := x.heard.Receive(t.Context()); err != nil {
		t.Fatal(err)
	}
	return x
}

// check runs the operations that the bytes stand for, again if it took too long to be judged.
func (x *twins) check(t testing.TB, data []byte) {
	t.Helper()
	for range 50 {
		begin := time.Now()
		if _, err := x.hear(t.Context()); err != nil { // messages that a run left when it ended early
			t.Fatal(err)
		}
		difference, err := x.run(data)
		if err != nil {
			t.Fatalf("%v\n%s", err, strings.Join(x.log, "\n"))
		}
		if difference == "" {
			return
		}
		if end := time.Now(); end.Unix() == begin.Unix() && end.Sub(begin) < fallback.PromiseFor/2 {
			t.Fatalf("%s\nafter %q:\n%s", difference, data, strings.Join(x.log, "\n"))
		}
	}
	t.Log("the machine is too slow: not judged")
}

// run returns the first difference between the twins.
func (x *twins) run(data []byte) (difference string, err error) {
	ctx := context.Background()
	x.stream, x.copies, x.log = stream{data}, make(map[uint32]*replica), nil
	if err := x.client.FlushAll(ctx).Err(); err != nil {
		return "", err
	}
	if err := errors.Join(redisarbiter.Reformat(ctx, x.redis), redisarbiter.ResetGrace(ctx, x.long.redis)); err != nil {
		return "", err
	}
	x.store = fallback.NewMemory()
	if x.onAll {
		x.store.OpenOnReplicas()
	}
	if x.memory, err = x.store.Attach(ctx, diffSettings); err != nil {
		return "", err
	}
	if x.long.memory, err = x.store.Attach(ctx, longSettings); err != nil {
		return "", err
	}
	x.taps = make(map[string]func() []fallback.Message)
	for _, s := range diffSessions {
		tapped := injure.Tap(x.store, "ns", s)
		x.taps[s] = func() []fallback.Message { return tapped().([]fallback.Message) }
	}
	cards := x.deck
	if cards == nil {
		cards = deck
	}
	for n := 0; len(x.data) > 0 && n < 100; n++ {
		if d, err := choose(&x.stream, cards...)(x, ctx); d != "" || err != nil {
			return d, err
		}
	}
	for _, compare := range []move{(*twins).messages, (*twins).unread, (*twins).partitions, (*twins).sessions} {
		if d, err := compare(x, ctx); d != "" || err != nil {
			return d, err
		}
	}
	return "", nil
}

// as makes the process of a session make the calls, until the function that it returns is called. A
// lost table is for the first process: the other one may not know the secrets.
func (x *twins) as(session string) (undo func()) {
	redis, memory := x.redis, x.memory
	lost := false
	injure.State(x.store, "ns", func(s *fallback.Sessions, _ []fallback.Partition) { lost = s.Format == "" })
	if session == "c" && !lost {
		x.redis, x.memory = x.long.redis, x.long.memory
	}
	return func() { x.redis, x.memory = redis, memory }
}

// both runs an operation on both and compares the answers.
func both[T any](x *twins, what string, f func(fallback.Namespace) (T, error), normal func(T) T) (string, error) {
	m, err := f(x.memory)
	if err != nil {
		return "", fmt.Errorf("%s on Memory: %w", what, err)
	}
	r, err := f(x.redis)
	if err != nil {
		return "", fmt.Errorf("%s on Redis: %w", what, err)
	}
	m, r = normal(m), normal(r)
	x.log = append(x.log, fmt.Sprintf("%s: %+v", what, m))
	if !reflect.DeepEqual(m, r) {
		return fmt.Sprintf("%s: Memory answered\n\t%+v, Redis\n\t%+v", what, m, r), nil
	}
	return "", nil
}

func (x *twins) lock(ctx context.Context) (string, error) {
	at := x.target()
	q := fallback.LockRequest{Partition: at.p, Key: at.key, Me: at.Identity}
	q.Block = choose[uint32](&x.stream, 1, 1, 1, 1, 2, 5, 1<<31, math.MaxUint32)
	how := x.next()
	q.Wait = how&3 != 0
	switch how >> 5 {
	case 1, 2:
		q.Evict = x.peek(at.p).Rows[at.key].Identity
	case 3:
		q.Evict = x.target().Identity
	case 4:
		q.Gone = x.target().Session
	}
	return both(x, fmt.Sprintf("Lock(%+v)", q), func(n fallback.Namespace) (fallback.LockAnswer, error) {
		return n.Lock(ctx, q)
	}, plainAnswer)
}

func (x *twins) unlock(ctx context.Context) (string, error) {
	var releases []fallback.Release
	for range choose(&x.stream, 1, 1, 1, 3) {
		at := x.target()
		if holder := x.peek(at.p).Rows[at.key].Identity; holder.Session != "" && x.next()&1 == 0 {
			at.Identity = holder
		}
		releases = append(releases, fallback.Release{Partition: at.p, Key: at.key, Identity: at.Identity})
	}
	return both(x, fmt.Sprintf("Unlock(%+v)", releases), func(n fallback.Namespace) (struct{}, error) {
		return done(errors.Join(n.Unlock(ctx, releases)...))
	}, identity)
}

func (x *twins) acquire(ctx context.Context) (string, error) {
	at := x.target()
	how := x.next()
	q := fallback.Expect{Epoch: x.epoch(at.p), Owner: x.peek(at.p).Owner, OwnerDead: how&1 != 0}
	if how>>1&3 == 0 {
		q.Owner = choose(&x.stream, "a", "b", "c", "")
	}
	return both(x, fmt.Sprintf("Acquire(%d, %s, %+v)", at.p, at.Session, q), func(n fallback.Namespace) (fallback.Acquisition, error) {
		return n.Acquire(ctx, at.p, at.Session, q)
	}, plainAcquisition)
}

func (x *twins) demote(ctx context.Context) (string, error) {
	p := x.target().p
	me, epoch := x.owner(p), x.epoch(p)
	holds := make(map[string]fallback.Row)
	for range x.next() % 3 {
		at := x.target()
		at.p = p
		holds[at.key] = x.row(at)
	}
	return both(x, fmt.Sprintf("Demote(%d, %s, %d, %v)", p, me, epoch, holds), func(n fallback.Namespace) (fallback.Demotion, error) {
		return n.Demote(ctx, p, me, epoch, holds)
	}, plainDemotion)
}

func (x *twins) demoteUnserved(ctx context.Context) (string, error) {
	p := x.target().p
	me, epoch := x.owner(p), x.epoch(p)
	return both(x, fmt.Sprintf("DemoteUnserved(%d, %s, %d)", p, me, epoch), func(n fallback.Namespace) (fallback.Demotion, error) {
		return n.DemoteUnserved(ctx, p, me, epoch)
	}, plainDemotion)
}

func (x *twins) witness(ctx context.Context) (string, error) {
	at := x.target()
	seen := x.row(at).Token
	return both(x, fmt.Sprintf("Witness(%d, %v)", at.p, seen), func(n fallback.Namespace) (fallback.Record, error) {
		return n.Witness(ctx, at.p, seen)
	}, plainRecord)
}

func (x *twins) revoke(ctx context.Context) (string, error) {
	p := x.target().p
	epoch := x.epoch(p)
	return both(x, fmt.Sprintf("Revoke(%d, %d)", p, epoch), func(n fallback.Namespace) (struct{}, error) {
		return done(n.Revoke(ctx, p, epoch, "somebody"))
	}, identity)
}

// restoreRows is about one hold as often as about some.
func (x *twins) restoreRows(ctx context.Context) (string, error) {
	claims := make([]fallback.Claims, 2)
	for range choose(&x.stream, 1, 1, 2, 4) {
		at := x.target()
		c := fallback.Claim{Key: at.key, Row: x.row(at)}
		switch x.next() & 3 {
		case 0:
			c.Owned = c.Row.Token.Epoch()
		case 1:
			c.Owned = x.epoch(at.p)
		}
		claims[at.p].Partition = at.p
		claims[at.p].Holds = append(claims[at.p].Holds, c)
	}
	return both(x, fmt.Sprintf("Restore(%+v)", claims), func(n fallback.Namespace) ([]fallback.Restored, error) {
		var all []fallback.Restored
		for i, r := range n.Restore(ctx, claims) {
			if r.Err != nil {
				return nil, r.Err
			}
			if len(claims[i].Holds) > 0 {
				all = append(all, plainRestored(r))
			}
		}
		return all, nil
	}, identity)
}

func (x *twins) reclaimOwner(ctx context.Context) (string, error) {
	p := x.target().p
	me, epoch := x.owner(p), x.epoch(p)
	owned := []fallback.Ownership{{Partition: p, Epoch: epoch}}
	if x.next()&1 == 0 {
		owned = append(owned, fallback.Ownership{Partition: 1 - p, Epoch: x.epoch(1 - p)})
	}
	return both(x, fmt.Sprintf("ReclaimOwners(%s, %v)", me, owned), func(n fallback.Namespace) ([]fallback.Reclaimed, error) {
		all := n.ReclaimOwners(ctx, me, owned)
		for i, r := range all {
			if r.Err != nil {
				return nil, r.Err
			}
			all[i].Grace = some(r.Grace)
		}
		return all, nil
	}, identity)
}

func (x *twins) load(ctx context.Context) (string, error) {
	p := x.target().p
	return both(x, fmt.Sprintf("Load(%d)", p), func(n fallback.Namespace) (fallback.Record, error) { return n.Load(ctx, p) }, plainRecord)
}

func (x *twins) verify(ctx context.Context) (string, error) {
	reads := []fallback.Read{{Partition: 0, Keys: diffNames, Busy: len(diffNames)}, {Partition: 1, Keys: []string{"none", diffKeys[0], diffKeys[1]}}, {Partition: 0}}
	if x.next()&1 == 0 { // by one script
		reads = []fallback.Read{{Partition: 1}, {Partition: 0}}
	}
	return x.verifies(ctx, reads)
}

func (x *twins) verifies(ctx context.Context, reads []fallback.Read) (string, error) {
	return both(x, "Verify", func(n fallback.Namespace) ([]fallback.State, error) { return redisarbiter.Verify(ctx, n, reads) }, plainStates)
}

func (x *twins) open(ctx context.Context) (string, error) {
	return x.opened(ctx, x.target().Session)
}

// deploy changes Grace for session c, and back; often not to the end.
func (x *twins) deploy(ctx context.Context) (string, error) {
	renew := func(x *twins, ctx context.Context) (string, error) { return x.renewed(ctx, "a") }
	open := func(session string) move {
		return func(x *twins, ctx context.Context) (string, error) { return x.opened(ctx, session) }
	}
	steps := []move{(*twins).endSessionsGrace, open("a"), open("c"), open("c"), renew, open("c"), renew, open("c"), open("b"), (*twins).closeSession,
		renew, (*twins).raiseLapses, renew, renew, open("b")}
	for _, step := range steps {
		if x.next()%16 == 0 {
			break
		}
		if d, err := step(x, ctx); d != "" || err != nil {
			return d, err
		}
	}
	return "", nil
}

func (x *twins) opened(ctx context.Context, session string) (string, error) {
	r := fallback.Registration{TTL: time.Hour, Info: "addr " + session, Guardians: x.guardians(), Round: x.round()}
	defer x.as(session)()
	return both(x, fmt.Sprintf("Open(%s, %v, %v)", session, r.Guardians, r.Round), func(n fallback.Namespace) (fallback.Renewal, error) {
		a, err := n.Open(ctx, session, r)
		if errors.Is(err, fallback.ErrWait) {
			return fallback.Renewal{Sessions: -1, Length: n.Grace().Milliseconds()}, nil
		}
		return a, err
	}, plainRenewal)
}

func (x *twins) list(ctx context.Context) (string, error) {
	return both(x, "List", func(n fallback.Namespace) (fallback.Listing, error) { return n.List(ctx) }, plainListing)
}

func (x *twins) renew(ctx context.Context) (string, error) {
	return x.renewed(ctx, x.target().Session)
}

func (x *twins) renewed(ctx context.Context, session string) (string, error) {
	r := fallback.Registration{TTL: time.Hour, Info: "addr " + session, Guardians: x.guardians(), Seen: x.stamp(), Round: x.round()}
	defer x.as(session)()
	x.tell(ctx, session, r.Seen)
	return both(x, fmt.Sprintf("Renew(%s, %v, %d, %v)", session, r.Guardians, r.Seen, r.Round), func(n fallback.Namespace) (fallback.Renewal, error) {
		return n.Renew(ctx, session, r)
	}, plainRenewal)
}

// round is nothing, often; else mostly one that fits the present one.
func (x *twins) round() (c fallback.RoundCall) {
	now := ""
	injure.State(x.store, "ns", func(s *fallback.Sessions, _ []fallback.Partition) { now = s.Round.Name })
	how := x.next()
	if how&3 == 0 {
		return c
	}
	c.Ask = how&4 != 0
	if how&8 != 0 {
		c.Spoke = choose(&x.stream, now, now, now, "r1", "r%")
	}
	if how&16 != 0 {
		c.Begin, c.After = choose(&x.stream, "r1", "r%", "r.", "r"), choose(&x.stream, now, now, now, "r1", "")
	}
	return c
}

// named compares the names of Graces: that they are there, as they have times in them.
func (x *twins) named(ctx context.Context) (string, error) {
	if redisarbiter.HasObserver(x.redis) { // where no clock takes a Grace's name away
		return "", nil
	}
	return both(x, "Graces", func(n fallback.Namespace) (named [2]bool, err error) {
		for i, g := range n.(fallback.Rounder).Graces(ctx, []uint32{0, 1}) {
			if g.Err != nil {
				return named, g.Err
			}
			named[i] = g.Name != ""
		}
		return named, nil
	}, identity)
}

// endNamed ends Graces by their names, or by others. The server may take another name before.
func (x *twins) endNamed(ctx context.Context) (string, error) {
	if redisarbiter.HasObserver(x.redis) {
		return "", nil
	}
	how := x.next()
	graces := make(map[fallback.Namespace][]fallback.NamedGrace)
	for _, n := range []fallback.Namespace{x.memory, x.redis} {
		graces[n] = n.(fallback.Rounder).Graces(ctx, []uint32{0, 1})
	}
	if how&0x60 == 0x20 {
		if d, err := x.writtenByAt(ctx, 0, "another name", false); d != "" || err != nil {
			return d, err
		}
	}
	return both(x, fmt.Sprint("EndGraces ", how), func(n fallback.Namespace) (ended [2]bool, err error) {
		all := graces[n]
		for i := range all {
			switch how >> (2 * i) & 7 {
			case 4:
				all[i].Name = "x" + all[i].Name
			case 5:
				all[i].Name += "0"
			case 6:
				all[i].Name = ""
			}
		}
		for i, a := range n.(fallback.Rounder).EndGraces(ctx, all) {
			ended[i], err = a.Ended, errors.Join(err, a.Err)
		}
		return ended, err
	}, identity)
}

// guardians are none, often.
func (x *twins) guardians() (g fallback.Guardians) {
	if g.Version = choose[uint32](&x.stream, 0, 0, 0, 1, 2, 3, 10, math.MaxUint32); g.Version > 0 {
		g.Set = x.some(diffGuardians)
	}
	return g
}

var diffGuardians = []string{"a", "b", "c", "d%", "dd"}

func (x *twins) some(from []string) (s []string) {
	which := x.next()
	for i, id := range from {
		if which>>i&1 != 0 {
			s = append(s, id)
		}
	}
	return s
}

func (x *twins) bury(ctx context.Context) (string, error) {
	session, version := x.target().Session, choose[uint32](&x.stream, 0, 1, 2, 3, 10, math.MaxUint32)
	injure.State(x.store, "ns", func(s *fallback.Sessions, _ []fallback.Partition) {
		if x.next()&3 != 0 {
			version = s.Members[session].Guardians.Version
		}
	})
	voters := x.some(diffGuardians)
	return both(x, fmt.Sprintf("Bury(%s, %d, %v)", session, version, voters), func(n fallback.Namespace) (fallback.Burial, error) {
		return n.(fallback.Burier).Bury(ctx, session, version, voters)
	}, func(b fallback.Burial) fallback.Burial { b.Left, b.Grace = some(b.Left), some(b.Grace); return b })
}

// stamp is the expiry that a session says it was told: none; one that is over; one with 25 or 59
// minutes left; one that is later than the clock allows for.
func (x *twins) stamp() int64 {
	after := []time.Duration{0, -time.Minute, 25 * time.Minute, 59 * time.Minute, 2 * time.Hour}[x.next()%5]
	if after == 0 {
		return 0
	}
	return time.Now().Add(after).UnixMilli()
}

func (x *twins) dead(ctx context.Context) (string, error) {
	session, by := x.target().Session, fallback.Stamp{Session: x.target().Session, Seen: x.stamp()}
	x.tell(ctx, by.Session, by.Seen)
	return both(x, fmt.Sprintf("Dead(%s, %+v)", session, by), func(n fallback.Namespace) (fallback.Liveness, error) {
		return n.Dead(ctx, session, by)
	}, plainLiveness)
}

func (x *twins) rotate(ctx context.Context) (string, error) {
	return both(x, "Rotate", func(n fallback.Namespace) (struct{}, error) { return done(n.Rotate(ctx)) }, identity)
}

func (x *twins) closeSession(ctx context.Context) (string, error) {
	session := x.target().Session
	defer x.as(session)()
	return both(x, "CloseSession("+session+")", func(n fallback.Namespace) (struct{}, error) {
		return done(n.CloseSession(ctx, session))
	}, identity)
}

func TestMemoryAndRedisDoTheSame(t *testing.T) {
	takes.Seconds(t)
	t.Parallel()
	newTwins(t, cold).checkRandomly(t, nil)
}

func FuzzDifferential(f *testing.F) {
	x := newTwins(f, cold)
	f.Fuzz(func(t *testing.T, data []byte) { x.check(t, data) })
}
