package redisarbiter_test

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/fallback/redisarbiter"
	"github.com/holdfast-go/holdfast/internal/injure"
)

// A move is an operation on both, or the same injury to both. It returns the first difference.
type move func(x *twins, ctx context.Context) (difference string, err error)

// deck has the moves as often as they are to come.
var deck = func() (all []move) {
	for _, m := range []struct {
		weight int
		move   move
	}{
		{10, (*twins).lock}, {6, (*twins).unlock}, {5, (*twins).acquire}, {4, (*twins).demote}, {2, (*twins).demoteUnserved},
		{1, (*twins).revoke}, {2, (*twins).witness}, {8, (*twins).restoreRows}, {4, (*twins).reclaimOwner}, {1, (*twins).load}, {2, (*twins).verify},
		{3, (*twins).open}, {2, (*twins).renew}, {1, (*twins).list}, {2, (*twins).dead}, {2, (*twins).bury}, {1, (*twins).closeSession}, {1, (*twins).rotate},
		{3, (*twins).changeServer}, {2, (*twins).rename}, {2, (*twins).lose}, {3, (*twins).endGrace}, {2, (*twins).lapse}, {1, (*twins).exhaust},
		{1, (*twins).stepBack}, {1, (*twins).copy}, {2, (*twins).restore},
		{1, (*twins).changeSessionsServer}, {1, (*twins).renameSessionsServer}, {1, (*twins).loseSessions}, {1, (*twins).endSessionsGrace}, {2, (*twins).expire},
		{1, (*twins).stepBackSessions}, {1, (*twins).stepBackQueue}, {2, (*twins).raiseLapses}, {1, (*twins).deploy},
		{1, (*twins).named}, {3, (*twins).endNamed}, {1, (*twins).roundLapses},
	} {
		for range m.weight {
			all = append(all, m.move)
		}
	}
	return all
}()

// random chooses a sequence of operations. Half of them have few kinds of moves: a state that takes
// many of the same kind, as a queue of sessions, is rare where there are all. (That is swarm
// testing, by Groce and others.)
func (x *twins) random(choices *rand.Rand) []byte {
	all := slices.Clone(deck)
	for _, s := range stories { // which are about the server's clock
		if s.name != ballot && !redisarbiter.HasObserver(x.redis) {
			all = append(all, s.move)
		}
	}
	x.deck = all
	if choices.IntN(2) == 0 {
		x.deck = []move{(*twins).lock, (*twins).unlock}
		for range choices.IntN(6) {
			x.deck = append(x.deck, all[choices.IntN(len(all))])
		}
	}
	data := make([]byte, 20+choices.IntN(400))
	for i := range data {
		data[i] = byte(choices.Uint32())
	}
	return data
}

// checkRandomly runs random sequences for a while; three of four have the moves of a deck alone, if
// there is one.
func (x *twins) checkRandomly(t *testing.T, mostly []move) {
	t.Helper()
	seed := rand.Uint64()
	choices := rand.New(rand.NewPCG(seed, 0))
	begin, limit := time.Now(), 8*time.Second
	if testing.Short() {
		limit = time.Second
	}
	n := 0
	for ; n < 4000 && time.Since(begin) < limit; n++ {
		data := x.random(choices)
		if mostly != nil && n%4 != 0 {
			x.deck = mostly
		}
		x.check(t, data)
	}
	t.Logf("%d sequences, seed %d", n, seed)
}

// stream is where choices come from. When it has ended, all are 0.
type stream struct{ data []byte }

func (s *stream) next() (b byte) {
	if len(s.data) > 0 {
		b, s.data = s.data[0], s.data[1:]
	}
	return b
}

func choose[T any](s *stream, from ...T) T { return from[int(s.next())%len(from)] }

// target is the subject of most operations.
type target struct {
	p   uint32
	key string
	fallback.Identity
}

// target is mostly the same key, and often a session that holds it or waits for it.
func (x *twins) target() target {
	b, who := x.next(), x.next()
	at := target{0, diffKeys[0], id(diffSessions[int(who>>2)%3], uint64(1+who>>4&1))}
	if b&3 == 3 {
		at.p = 1
	}
	if b>>2&3 == 3 {
		at.key = diffKeys[1]
	}
	if b>>4&1 == 1 { // mostly some that fit
		at.key = diffNames[2+int(x.next())%(len(diffNames)-2)]
	}
	now := x.peek(at.p)
	if row, held := now.Rows[at.key]; held && who&3 == 0 {
		at.Identity = row.Identity
	}
	key, _ := fallback.Split(at.key)
	if q := now.Queues[key]; len(q) > 0 && who&3 == 1 {
		at.Identity = q[0].Identity
	}
	return at
}

// peek looks at a partition of the Memory, without an operation.
func (x *twins) peek(p uint32) (c *fallback.Partition) {
	injure.State(x.store, "ns", func(_ *fallback.Sessions, parts []fallback.Partition) { c = parts[p].Clone() })
	return c
}

// epoch is mostly the present one.
func (x *twins) epoch(p uint32) uint32 {
	now, soon := x.peek(p), uint32(time.Now().Unix()-redisarbiter.EpochZero)
	e := choose(&x.stream, now.Epoch, now.Epoch, now.Epoch, max(now.Epoch, 1)-1, now.Epoch+1, now.Epoch+1000, now.From, now.Rows[diffKeys[0]].Token.Epoch())
	if e > 0 && e < soon/2 { // of a record that was lost: the clock would be refused
		e += soon
	}
	return e
}

// owner is mostly the present one.
func (x *twins) owner(p uint32) string {
	now := x.peek(p).Owner
	if now == "" {
		now = "a"
	}
	return choose(&x.stream, now, now, now, "a", "b", "c")
}

func (x *twins) row(at target) fallback.Row {
	present := x.peek(at.p).Rows[at.key]
	made := fallback.Row{Identity: at.Identity, Token: fallback.MakeToken(x.epoch(at.p), choose[uint32](&x.stream, 1, 2, 3, 0, 1<<31, math.MaxUint32))}
	above := fallback.Row{Identity: at.Identity, Token: max(present.Token, fallback.MakeToken(x.peek(at.p).Epoch, 0)) + 1}
	if e := above.Token.Epoch(); e > 0 && e < 1<<20 { // of a record that was lost: see epoch
		above.Token = present.Token
	}
	same := fallback.Row{Identity: at.Identity, Token: present.Token}
	if present.Session == "" {
		present = made
	}
	return choose(&x.stream, made, made, made, present, above, same)
}
