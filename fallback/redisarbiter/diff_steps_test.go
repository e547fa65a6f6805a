package redisarbiter_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"regexp"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/fallback/redisarbiter"
	"github.com/holdfast-go/holdfast/internal/injure"
)

// The steps of the stories.

// inOrder takes one step after another. Random choices leave some out.
func inOrder(steps ...move) move {
	return func(x *twins, ctx context.Context) (string, error) {
		for _, step := range steps {
			if x.next()%8 == 7 {
				continue
			}
			if d, err := step(x, ctx); d != "" || err != nil {
				return d, err
			}
		}
		return "", nil
	}
}

// The other names that stories are about. The malformed ones are of a later version, as far as this
// one knows.
var (
	read1, read2, read3 = fallback.SharedName("k", "1"), fallback.SharedName("k", "2"), fallback.SharedName("k", "3")
	one3, two3          = fallback.PermitsName("k", 1, 3, "1"), fallback.PermitsName("k", 2, 3, "2")
	downgraded          = fallback.DowngradedName("k", "1")
	malformed           = func() (names []string) {
		for _, spec := range []string{"p0/3/", "p4/3/", "p1/4294967296/", "px/3/", "p1/", "q"} {
			names = append(names, "k\x00"+spec+"1\x00\xff", "k\x00"+spec+"2\x00\xff")
		}
		return names
	}()
)

// locks asks for a hold of partition 0, to wait for it. Each session has one request.
func locks(session, name string, evict ...string) move {
	return func(x *twins, ctx context.Context) (string, error) {
		q := fallback.LockRequest{Key: name, Me: id(session, 1), Block: 1, Wait: true}
		if len(evict) > 0 {
			q.Evict = id(evict[0], 1)
		}
		return both(x, fmt.Sprintf("Lock(%+v)", q), func(n fallback.Namespace) (fallback.LockAnswer, error) { return n.Lock(ctx, q) }, plainAnswer)
	}
}

// present is the epoch of partition 0, or one that the clock allows for if the record was lost.
func (x *twins) present() uint32 {
	if e := x.peek(0).Epoch; e > 1<<20 {
		return e
	}
	return uint32(time.Now().Unix() - redisarbiter.EpochZero)
}

func unlocks(session, name string) move {
	return func(x *twins, ctx context.Context) (string, error) {
		r := []fallback.Release{{Key: name, Identity: id(session, 1)}}
		return both(x, fmt.Sprintf("Unlock(%+v)", r), func(n fallback.Namespace) (struct{}, error) { return done(errors.Join(n.Unlock(ctx, r)...)) }, identity)
	}
}

// writes adopts a hold of partition 0, with a token above all.
func writes(session, name string) move {
	return func(x *twins, ctx context.Context) (string, error) {
		return x.write(ctx, session, name, max(fallback.MakeToken(x.present(), math.MaxUint32/2), x.peek(0).Rows[name].Token+1))
	}
}

// writesWithoutToken adopts one whose token is lower than any that was given out.
func writesWithoutToken(session, name string) move {
	return func(x *twins, ctx context.Context) (string, error) { return x.write(ctx, session, name, 0) }
}

func (x *twins) write(ctx context.Context, session, name string, token fallback.Token) (string, error) {
	row := fallback.Row{Identity: id(session, 1), Token: token}
	claims := []fallback.Claims{{Holds: []fallback.Claim{{Key: name, Row: row, Owned: x.present()}}}}
	return both(x, fmt.Sprintf("Restore(%+v)", claims), func(n fallback.Namespace) (fallback.Restored, error) {
		r := n.Restore(ctx, claims)[0]
		return r, r.Err
	}, plainRestored)
}

func acquires(session string) move {
	return func(x *twins, ctx context.Context) (string, error) {
		e := fallback.Expect{Epoch: x.peek(0).Epoch}
		return both(x, fmt.Sprintf("Acquire(0, %s, %+v)", session, e), func(n fallback.Namespace) (fallback.Acquisition, error) {
			return n.Acquire(ctx, 0, session, e)
		}, plainAcquisition)
	}
}

// witnesses tells of a token of so many epochs after the present one.
func witnesses(later int64, seq uint32) move {
	return func(x *twins, ctx context.Context) (string, error) {
		seen := fallback.MakeToken(uint32(min(int64(x.present())+later, math.MaxUint32)), seq)
		return both(x, fmt.Sprintf("Witness(0, %v)", seen), func(n fallback.Namespace) (fallback.Record, error) { return n.Witness(ctx, 0, seen) }, plainRecord)
	}
}

// promisedLate makes the promise for key k of partition 0 end at another time: 0 is before now.
func promisedLate(after time.Duration) move {
	return func(x *twins, ctx context.Context) (string, error) {
		till := int64(1)
		if after > 0 {
			till = time.Now().Add(after).UnixMilli()
		}
		x.log = append(x.log, fmt.Sprintf("the promise ends at %d", till))
		injure.State(x.store, "ns", func(_ *fallback.Sessions, parts []fallback.Partition) {
			if q := parts[0].Queues["k"]; len(q) > 0 && q[0].Promised != 0 {
				q[0].Promised = till
			}
		})
		q, err := x.client.ZRangeWithScores(ctx, queueKey(0, "k"), 0, 0).Result()
		if err != nil || len(q) == 0 || q[0].Score > 0 {
			return "", err
		}
		return "", x.client.ZAdd(ctx, queueKey(0, "k"), redis.Z{Score: -float64(till), Member: q[0].Member}).Err()
	}
}

// graceEnds moves the end of a Grace of a partition that there is. 0 is long ago.
func graceEnds(p uint32, after time.Duration) move {
	return func(x *twins, ctx context.Context) (string, error) {
		end := int64(1)
		if after > 0 {
			end = time.Now().Add(after).UnixMilli()
		}
		if x.peek(p).GraceEnd == 0 {
			return "", nil
		}
		anotherMillisecond()
		injure.State(x.store, "ns", func(_ *fallback.Sessions, parts []fallback.Partition) { parts[p].GraceEnd = end })
		m := strings.Split(x.client.HGet(ctx, recordKey(p), "m").Val(), " ")
		m[2] = fmt.Sprint(end)
		return "", x.client.HSet(ctx, recordKey(p), "m", strings.Join(m, " ")).Err()
	}
}

func sessionsGraceEnds(after time.Duration) move {
	return func(x *twins, ctx context.Context) (string, error) {
		return x.setSessionsGrace(ctx, time.Now().Add(after).UnixMilli())
	}
}

func opens(session string) move {
	return func(x *twins, ctx context.Context) (string, error) { return x.opened(ctx, session) }
}

func renews(session string) move {
	return func(x *twins, ctx context.Context) (string, error) { return x.renewed(ctx, session) }
}

func closes(session string) move {
	return func(x *twins, ctx context.Context) (string, error) {
		defer x.as(session)()
		return both(x, "CloseSession("+session+")", func(n fallback.Namespace) (struct{}, error) { return done(n.CloseSession(ctx, session)) }, identity)
	}
}

// asks whether a session is dead, for one that was told to live for so long.
func asks(session, by string, seen time.Duration) move {
	return func(x *twins, ctx context.Context) (string, error) {
		stamp := fallback.Stamp{Session: by}
		if seen != 0 {
			stamp.Seen = time.Now().Add(seen).UnixMilli()
		}
		return both(x, fmt.Sprintf("Dead(%s, %+v)", session, stamp), func(n fallback.Namespace) (fallback.Liveness, error) {
			return n.Dead(ctx, session, stamp)
		}, plainLiveness)
	}
}

// expires moves the expiry of a session.
func expires(session string, after time.Duration) move {
	return func(x *twins, ctx context.Context) (string, error) {
		return "", x.setExpiryOf(ctx, session, "expires", time.Now().Add(after).UnixMilli())
	}
}

// guarded opens session a with these guardians.
func (x *twins) guarded(ctx context.Context, g fallback.Guardians) (string, error) {
	return both(x, fmt.Sprint("Open with ", g), func(n fallback.Namespace) (bool, error) {
		_, err := n.Open(ctx, "a", fallback.Registration{TTL: time.Hour, Info: "addr a", Guardians: g})
		wait := errors.Is(err, fallback.ErrWait)
		if wait {
			err = nil
		}
		return wait, err
	}, identity)
}

// buries lets all sets of voters vote about a session with three guardians, which begins anew after
// each time.
func buries(x *twins, ctx context.Context) (string, error) {
	g := fallback.Guardians{Version: 5, Set: diffGuardians[1:4]}
	for which := range 2 << len(diffGuardians) {
		var voters []string
		for i, id := range diffGuardians {
			if which>>i&1 != 0 {
				voters = append(voters, id)
			}
		}
		if d, err := closes("a")(x, ctx); d != "" || err != nil {
			return d, err
		}
		if d, err := x.guarded(ctx, g); d != "" || err != nil {
			return d, err
		}
		version := g.Version + uint32(which>>len(diffGuardians))
		d, err := both(x, fmt.Sprintf("Bury(a, %d, %v)", version, voters), func(n fallback.Namespace) (fallback.Burial, error) {
			return n.(fallback.Burier).Bury(ctx, "a", version, voters)
		}, func(b fallback.Burial) fallback.Burial { b.Left, b.Grace = some(b.Left), some(b.Grace); return b })
		if d != "" || err != nil {
			return d, err
		}
	}
	return "", nil
}

// buried has a session buried, by all of its guardians.
func buried(x *twins, ctx context.Context) (string, error) {
	g := fallback.Guardians{Version: 9, Set: diffGuardians[1:]}
	if d, err := x.guarded(ctx, g); d != "" || err != nil {
		return d, err
	}
	return both(x, "Bury(a)", func(n fallback.Namespace) (bool, error) {
		b, err := n.(fallback.Burier).Bury(ctx, "a", g.Version, g.Set)
		return b.Dead, err
	}, identity)
}

// forgetsTerms makes the entry of a session one of a version that states no terms.
func forgetsTerms(session string) move {
	terms := regexp.MustCompile(`^(\d+ \d+)[;\d]+`)
	return func(x *twins, ctx context.Context) (string, error) {
		x.log = append(x.log, "no terms("+session+")")
		injure.State(x.store, "ns", func(s *fallback.Sessions, _ []fallback.Partition) {
			if m, ok := s.Members[session]; ok {
				m.Terms = fallback.Terms{}
				s.Members[session] = m
			}
		})
		text := x.client.HGet(ctx, sessionsKey, "s:"+session).Val()
		if text == "" {
			return "", nil
		}
		return "", x.client.HSet(ctx, sessionsKey, "s:"+session, terms.ReplaceAllString(text, "$1")).Err()
	}
}

// formattedLonger makes the namespace be formatted by a process that needs 90 minutes.
func formattedLonger(x *twins, ctx context.Context) (string, error) {
	mark := regexp.MustCompile(` grace=\S+( was=\S+ raised=\S+)?`)
	const longer = " grace=5400000ms"
	x.log = append(x.log, "formatted with"+longer)
	injure.State(x.store, "ns", func(s *fallback.Sessions, _ []fallback.Partition) { s.Format = mark.ReplaceAllString(s.Format, longer) })
	f := x.client.HGet(ctx, sessionsKey, "f").Val()
	if f == "" {
		return "", nil
	}
	return "", x.client.HSet(ctx, sessionsKey, "f", mark.ReplaceAllString(f, longer)).Err()
}

// loses makes the table of sessions be lost, so that the move finds it so.
func loses(first move) move {
	return func(x *twins, ctx context.Context) (string, error) {
		injure.State(x.store, "ns", func(s *fallback.Sessions, _ []fallback.Partition) { *s = fallback.Sessions{} })
		if err := x.client.Del(ctx, sessionsKey).Err(); err != nil {
			return "", err
		}
		if d, err := first(x, ctx); d != "" || err != nil {
			return d, err
		}
		return x.renewed(ctx, "z")
	}
}

// full makes an operation find Redis at maxmemory. It must be possible all the same.
func full(m move) move {
	return func(x *twins, ctx context.Context) (string, error) {
		if err := x.client.ConfigSet(ctx, "maxmemory", "1").Err(); err != nil {
			return "", err
		}
		x.log = append(x.log, "at maxmemory:")
		d, err := m(x, ctx)
		if e := x.client.ConfigSet(ctx, "maxmemory", "0").Err(); err == nil {
			err = e
		}
		if err != nil && d == "" && ctx.Err() == nil {
			d, err = "at maxmemory: "+err.Error(), nil
		}
		return d, err
	}
}

// anotherServer, and then at maxmemory: the move is the first that sees it.
func afterFailover(m move) move {
	return inOrder(moved(0), moved(1), (*twins).changeSessionsServer, full(m))
}

// moved makes another server have written the record of a partition.
func moved(p uint32) move {
	return func(x *twins, ctx context.Context) (string, error) {
		return x.writtenByAt(ctx, p, "another server", true)
	}
}

// renamed makes the server have had another name when it wrote the record.
func renamed(p uint32) move {
	return func(x *twins, ctx context.Context) (string, error) {
		return x.writtenByAt(ctx, p, "another name", false)
	}
}

// processUntold makes the record of a partition one of a server that does not tell its process.
func processUntold(p uint32) move {
	return func(x *twins, ctx context.Context) (string, error) {
		x.log = append(x.log, fmt.Sprintf("process untold(%d)", p))
		injure.State(x.store, "ns", func(_ *fallback.Sessions, parts []fallback.Partition) { parts[p].Process = "" })
		return "", x.client.HSet(ctx, recordKey(p), "u", "").Err()
	}
}

// saves keeps a result.
func saves(fence uint64, value string, ttl time.Duration) move {
	return func(x *twins, ctx context.Context) (string, error) {
		return both(x, fmt.Sprintf("SaveResult(%d, %s)", fence, value), func(n fallback.Namespace) (fallback.Verdict, error) {
			return n.(fallback.ResultStore).SaveResult(ctx, 0, "k", []byte(value), fence, ttl)
		}, identity)
	}
}

func loads(x *twins, ctx context.Context) (string, error) {
	return both(x, "LoadResult", func(n fallback.Namespace) (fallback.Result, error) {
		return n.(fallback.ResultStore).LoadResult(ctx, 0, "k")
	}, func(r fallback.Result) fallback.Result { r.Age = r.Age.Truncate(time.Minute); return r })
}

// resultExpires checks that the result that is kept goes by itself.
func (x *twins) resultExpires(ctx context.Context) (string, error) {
	if left := x.client.PTTL(ctx, recordKey(0)+":v:k").Val(); left == -1 || left > time.Hour { // -2: there is none
		return fmt.Sprintf("the result expires in %v", left), nil
	}
	return "", nil
}

// reads reads all names, and whether callers wait for them.
func reads(x *twins, ctx context.Context) (string, error) {
	return x.verifies(ctx, []fallback.Read{{Partition: 0, Keys: diffNames, Busy: len(diffNames)}})
}

// pairs asks for each two names, one beside the other.
func pairs(names []string) move {
	var steps []move
	for i := 0; i < len(names); i += 2 {
		steps = append(steps, locks("a", names[i]), locks("b", names[i+1]), unlocks("b", names[i+1]), unlocks("a", names[i]))
	}
	return inOrder(steps...)
}

// each asks for names one after another, and gives them back.
func each(names []string) move {
	var steps []move
	for _, name := range names {
		steps = append(steps, locks("b", name), unlocks("b", name))
	}
	return inOrder(steps...)
}

// revokeOwner asks the owner of partition 0, if there is one.
func (x *twins) revokeOwner(ctx context.Context) (string, error) {
	epoch := x.peek(0).Epoch
	return both(x, fmt.Sprintf("Revoke(0, %d)", epoch), func(n fallback.Namespace) (struct{}, error) { return done(n.Revoke(ctx, 0, epoch, "somebody")) }, identity)
}

func (x *twins) demoteOwner(ctx context.Context) (string, error) {
	now := x.peek(0)
	holds := map[string]fallback.Row{"k": {Identity: id("b", 1), Token: fallback.MakeToken(now.Epoch, 1)}, read1: {Identity: id("c", 1), Token: fallback.MakeToken(now.Epoch, 2)}}
	return both(x, "Demote", func(n fallback.Namespace) (fallback.Demotion, error) {
		return n.Demote(ctx, 0, now.Owner, now.Epoch, holds)
	}, plainDemotion)
}

// reclaimLater is of an owner of a later epoch than the record's.
func (x *twins) reclaimLater(ctx context.Context) (string, error) {
	owned := []fallback.Ownership{{Partition: 0, Epoch: x.present() + 1}}
	return both(x, fmt.Sprintf("ReclaimOwners(b, %v)", owned), func(n fallback.Namespace) (fallback.Verdict, error) {
		r := n.ReclaimOwners(ctx, "b", owned)[0]
		return r.Verdict, r.Err
	}, identity)
}

func (x *twins) readsMany(ctx context.Context) (string, error) {
	return x.verifies(ctx, []fallback.Read{{Partition: 1}, {Partition: 0}})
}

// readsMost is readsMany of so many that most are read by plain commands: the records that are
// neither the first nor the last one.
func (x *twins) readsMost(ctx context.Context) (string, error) {
	reads := make([]fallback.Read, 2*redisarbiter.PlainFrom)
	for i := range reads {
		reads[i].Partition = uint32(i % 2)
	}
	return x.verifies(ctx, reads)
}

// opensSeen begins a session with the expiry of another time, which says nothing then.
func (x *twins) opensSeen(ctx context.Context) (string, error) {
	r := fallback.Registration{TTL: time.Hour, Info: "addr b", Seen: time.Now().Add(50 * time.Minute).UnixMilli()}
	return both(x, "Open(b) with an expiry", func(n fallback.Namespace) (string, error) {
		a, err := n.Open(ctx, "b", r)
		if errors.Is(err, fallback.ErrWait) { // after one that needs a longer Grace
			return "waits", nil
		}
		return fmt.Sprint(a.Alive), err
	}, identity)
}

// stored checks that an entry that was looked at has no expiry that is later than a renewal now
// would give it.
func (x *twins) stored(ctx context.Context) (string, error) {
	if d, err := asks("a", "b", 0)(x, ctx); d != "" || err != nil || x.client.HGet(ctx, sessionsKey, "g").Val() != "0" {
		return d, err
	}
	var expiry int64
	text := x.client.HGet(ctx, sessionsKey, "s:a").Val()
	if _, err := fmt.Sscanf(text, "%d", &expiry); err == nil && expiry > time.Now().Add(time.Hour).UnixMilli() {
		return "the entry of a session stays late: " + text, nil
	}
	return "", nil
}

// buryUnseen asks to bury session a, without a vote.
func (x *twins) buryUnseen(ctx context.Context) (string, error) {
	return both(x, "Bury(a)", func(n fallback.Namespace) (bool, error) {
		b, err := n.(fallback.Burier).Bury(ctx, "a", 77, nil)
		return b.Dead, err
	}, identity)
}

func (x *twins) losesSecrets(ctx context.Context) (string, error) {
	injure.State(x.store, "ns", func(s *fallback.Sessions, _ []fallback.Partition) { s.Secrets = "" })
	return "", x.client.HDel(ctx, sessionsKey, "k").Err()
}

// exhausts leaves partition 0 no number at its epoch.
func exhausts(x *twins, ctx context.Context) (string, error) {
	injure.State(x.store, "ns", func(_ *fallback.Sessions, parts []fallback.Partition) { parts[0].Seq = math.MaxUint32 })
	m := strings.Split(x.client.HGet(ctx, recordKey(0), "m").Val(), " ")
	if len(m) < 2 {
		return "", nil // lost
	}
	m[1] = fmt.Sprint(uint32(math.MaxUint32))
	return "", x.client.HSet(ctx, recordKey(0), "m", strings.Join(m, " ")).Err()
}

// begins makes a session begin a round.
func begins(session, name, after string) move {
	return rounds(session, fallback.RoundCall{Begin: name, After: after})
}

// speaks makes a session speak for a round, and ask whether it is complete.
func speaks(session, name string) move {
	return rounds(session, fallback.RoundCall{Spoke: name, Ask: true})
}

func rounds(session string, c fallback.RoundCall) move {
	return func(x *twins, ctx context.Context) (string, error) {
		r := fallback.Registration{TTL: time.Hour, Info: "addr " + session, Round: c}
		defer x.as(session)()
		return both(x, fmt.Sprintf("Renew(%s, %v)", session, c), func(n fallback.Namespace) (fallback.Renewal, error) {
			return n.Renew(ctx, session, r)
		}, plainRenewal)
	}
}

// endsNamed is endNamed of a choice.
func endsNamed(how byte) move {
	return func(x *twins, ctx context.Context) (string, error) {
		rest := x.data
		x.data = []byte{how}
		defer func() { x.data = rest }()
		return x.endNamed(ctx)
	}
}

// loses0 makes the record of partition 0 be lost.
func loses0(x *twins, ctx context.Context) (string, error) { return "", x.loseOne(ctx, 0) }

// roundLapses makes the round of the table be an old one.
func (x *twins) roundLapses(ctx context.Context) (string, error) {
	return x.changeRound(ctx, func(r *fallback.SpokenRound) { r.Began = 1 }, 2, "1")
}

// roundOfBefore makes the round of the table be another server's: a process of a version without
// rounds leaves one as it notices another server.
func (x *twins) roundOfBefore(ctx context.Context) (string, error) {
	return x.changeRound(ctx, func(r *fallback.SpokenRound) { r.Server = "before" }, 1, "before")
}

// changeRound changes the round of the table, if there is one: in memory, and a part of the text
// that Redis has.
func (x *twins) changeRound(ctx context.Context, change func(*fallback.SpokenRound), part int, text string) (string, error) {
	injure.State(x.store, "ns", func(s *fallback.Sessions, _ []fallback.Partition) {
		if s.Round.Name != "" {
			change(&s.Round)
		}
	})
	f := strings.Fields(x.client.HGet(ctx, sessionsKey, "r").Val())
	if len(f) < 3 {
		return "", nil
	}
	f[part] = text
	return "", x.client.HSet(ctx, sessionsKey, "r", strings.Join(f, " ")).Err()
}
