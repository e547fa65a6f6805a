package redisarbiter_test

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/fallback/redisarbiter"
	"github.com/holdfast-go/holdfast/internal/injure"
)

// Injuries to both twins, and the comparison of their states. Fields are as in lua/state.lua and
// lua/sessions.lua.

func recordKey(p uint32) string            { return fmt.Sprintf("{ns:p%d}", p) }
func queueKey(p uint32, key string) string { return recordKey(p) + ":w:" + key }

const sessionsKey = "{ns:s}"

// onPartition injures a partition. Before that both look at it, so that a change that they have not
// noticed yet makes no difference. redis is told the record's numbers: epoch, seq, grace, from,
// revoked.
func (x *twins) onPartition(ctx context.Context, what string, memory func(*fallback.Partition), redis func(m []string)) (string, error) {
	p := x.target().p
	if d, err := both(x, fmt.Sprintf("%s(%d)", what, p), func(n fallback.Namespace) (fallback.Record, error) { return n.Load(ctx, p) }, plainRecord); d != "" || err != nil {
		return d, err
	}
	injure.State(x.store, "ns", func(_ *fallback.Sessions, parts []fallback.Partition) { memory(&parts[p]) })
	if redisarbiter.HasObserver(x.redis) && what == "end of Grace" {
		return x.finishGrace(ctx, recordKey(p), func(x *twins, ctx context.Context) (string, error) {
			return both(x, fmt.Sprintf("Load(%d)", p), func(n fallback.Namespace) (fallback.Record, error) { return n.Load(ctx, p) }, plainRecord)
		})
	}
	text, err := x.client.HGet(ctx, recordKey(p), "m").Result()
	if err != nil {
		return "", err
	}
	m := strings.Split(text, " ")
	redis(m)
	return "", x.client.HSet(ctx, recordKey(p), "m", strings.Join(m, " ")).Err()
}

// anotherMillisecond is waited for before a Grace gets another end. An end that is too late is
// replaced by one that is a whole Grace from now. Each twin has a clock of its own: in the
// millisecond in which Grace began, one of them may find the end it had.
func anotherMillisecond() { time.Sleep(2 * time.Millisecond) }

func (x *twins) endGrace(ctx context.Context) (string, error) {
	return x.onPartition(ctx, "end of Grace", func(p *fallback.Partition) {
		p.GraceEnd = min(p.GraceEnd, 1)
	}, func(m []string) {
		if m[2] != "0" {
			m[2] = "1"
		}
	})
}

// exhaust makes seq run out soon.
func (x *twins) exhaust(ctx context.Context) (string, error) {
	seq := 1<<32 - 1 - uint32(x.next()%4)
	return x.onPartition(ctx, "exhaust", func(p *fallback.Partition) { p.Seq = seq }, func(m []string) {
		m[1] = strconv.Itoa(int(seq))
	})
}

// stepBack makes the end of Grace be far in the future.
func (x *twins) stepBack(ctx context.Context) (string, error) {
	if redisarbiter.HasObserver(x.redis) {
		return "", nil
	}
	end := time.Now().Add(100 * time.Hour).UnixMilli()
	return x.onPartition(ctx, "clock steps back", func(p *fallback.Partition) {
		anotherMillisecond()
		if p.GraceEnd != 0 {
			p.GraceEnd = end
		}
	}, func(m []string) {
		if m[2] != "0" {
			m[2] = strconv.FormatInt(end, 10)
		}
	})
}

// stepBackQueue makes those that wait have come in an hour from now: the order stays the one in
// which they came. Memory's has no times.
func (x *twins) stepBackQueue(ctx context.Context) (string, error) {
	at := x.target()
	key, _ := fallback.Split(at.key)
	x.log = append(x.log, fmt.Sprintf("the queue of %q(%d) is of an hour from now", key, at.p))
	all, err := x.client.ZRangeWithScores(ctx, queueKey(at.p, key), 0, -1).Result()
	if err != nil {
		return "", err
	}
	for _, z := range all {
		if z.Score > 0 { // else it is promised
			z.Score += float64(time.Hour.Microseconds())
			if err := x.client.ZAddXX(ctx, queueKey(at.p, key), z).Err(); err != nil {
				return "", err
			}
		}
	}
	return "", nil
}

func (x *twins) changeServer(ctx context.Context) (string, error) {
	return x.writtenBy(ctx, "another server", true)
}

// rename makes the server have had another name when it wrote the record.
func (x *twins) rename(ctx context.Context) (string, error) {
	return x.writtenBy(ctx, "another name", false)
}

func (x *twins) writtenBy(ctx context.Context, what string, process bool) (string, error) {
	return x.writtenByAt(ctx, x.target().p, what, process)
}

func (x *twins) writtenByAt(ctx context.Context, p uint32, what string, process bool) (string, error) {
	x.log = append(x.log, fmt.Sprintf("%s(%d)", what, p))
	injure.State(x.store, "ns", func(_ *fallback.Sessions, parts []fallback.Partition) {
		if parts[p].Server == "" {
			return
		}
		parts[p].Server = "another"
		if process {
			parts[p].Process = "another"
		}
	})
	if x.client.Exists(ctx, recordKey(p)).Val() == 0 {
		return "", nil
	}
	fields := []any{"i", "another"}
	if process {
		fields = append(fields, "u", "another")
	}
	return "", x.client.HSet(ctx, recordKey(p), fields...).Err()
}

func (x *twins) lose(ctx context.Context) (string, error) {
	return "", x.loseOne(ctx, x.target().p)
}

func (x *twins) loseOne(ctx context.Context, p uint32) error {
	x.log = append(x.log, fmt.Sprintf("lost(%d)", p))
	injure.State(x.store, "ns", func(_ *fallback.Sessions, parts []fallback.Partition) { parts[p] = fallback.Partition{} })
	return x.client.Del(ctx, recordKey(p), queueKey(p, diffKeys[0]), queueKey(p, diffKeys[1])).Err()
}

// lapse lets the promise for a key lapse.
func (x *twins) lapse(ctx context.Context) (string, error) {
	at := x.target()
	at.key, _ = fallback.Split(at.key)
	x.log = append(x.log, fmt.Sprintf("promise lapses(%d, %q)", at.p, at.key))
	injure.State(x.store, "ns", func(_ *fallback.Sessions, parts []fallback.Partition) {
		if q := parts[at.p].Queues[at.key]; len(q) > 0 && q[0].Promised != 0 {
			q[0].Promised = 1
		}
	})
	q, err := x.client.ZRangeWithScores(ctx, queueKey(at.p, at.key), 0, 0).Result()
	if err != nil || len(q) == 0 || q[0].Score > 0 {
		return "", err
	}
	return "", x.client.ZAdd(ctx, queueKey(at.p, at.key), redis.Z{Score: -1, Member: q[0].Member}).Err()
}

// replica is a replica's state of a partition.
type replica struct {
	memory *fallback.Partition
	fields map[string]string
	queues map[string][]redis.Z
}

func (x *twins) copy(ctx context.Context) (string, error) {
	p := x.target().p
	x.log = append(x.log, fmt.Sprintf("copy(%d)", p))
	c := &replica{memory: x.peek(p), queues: make(map[string][]redis.Z)}
	if c.fields = x.client.HGetAll(ctx, recordKey(p)).Val(); len(c.fields) == 0 {
		return "", nil // lost
	}
	for _, key := range diffKeys {
		c.queues[key] = x.client.ZRangeWithScores(ctx, queueKey(p, key), 0, -1).Val()
	}
	x.copies[p] = c
	return "", nil
}

// restore makes another server take over, with the state of some time ago.
func (x *twins) restore(ctx context.Context) (string, error) {
	p := x.target().p
	c := x.copies[p]
	if c == nil {
		return "", nil
	}
	if err := x.loseOne(ctx, p); err != nil {
		return "", err
	}
	x.log = append(x.log, fmt.Sprintf("restored(%d)", p))
	injure.State(x.store, "ns", func(_ *fallback.Sessions, parts []fallback.Partition) {
		parts[p] = *c.memory.Clone()
		parts[p].Server, parts[p].Process = "another", "another"
	})
	pipe := x.client.Pipeline()
	pipe.HSet(ctx, recordKey(p), c.fields)
	pipe.HSet(ctx, recordKey(p), "i", "another", "u", "another")
	for key, q := range c.queues {
		if len(q) > 0 {
			pipe.ZAdd(ctx, queueKey(p, key), q...)
		}
	}
	_, err := pipe.Exec(ctx)
	return "", err
}

func (x *twins) changeSessionsServer(ctx context.Context) (string, error) {
	x.log = append(x.log, "another server(sessions)")
	injure.State(x.store, "ns", func(s *fallback.Sessions, _ []fallback.Partition) { s.Server, s.Process = "another", "another" })
	return "", x.client.HSet(ctx, sessionsKey, "i", "another", "u", "another its name").Err()
}

func (x *twins) renameSessionsServer(ctx context.Context) (string, error) {
	x.log = append(x.log, "another name(sessions)")
	injure.State(x.store, "ns", func(s *fallback.Sessions, _ []fallback.Partition) { s.Server = "another" })
	return "", x.client.HSet(ctx, sessionsKey, "i", "another").Err()
}

// loseSessions makes both format the namespace anew: Redis with the next Renew, Memory with any
// operation.
func (x *twins) loseSessions(ctx context.Context) (string, error) {
	x.log = append(x.log, "lost(sessions)")
	injure.State(x.store, "ns", func(s *fallback.Sessions, _ []fallback.Partition) { *s = fallback.Sessions{} })
	if err := x.client.Del(ctx, sessionsKey).Err(); err != nil {
		return "", err
	}
	if d, err := choose(&x.stream, (*twins).dead, (*twins).closeSession, (*twins).open)(x, ctx); d != "" || err != nil {
		return d, err
	}
	return x.renewed(ctx, "z")
}

func (x *twins) endSessionsGrace(ctx context.Context) (string, error) {
	return x.setSessionsGrace(ctx, 1)
}

func (x *twins) expire(ctx context.Context) (string, error) {
	if redisarbiter.HasObserver(x.redis) {
		return x.declared(ctx, x.target().Session)
	}
	return "", x.setExpiry(ctx, "expires", 1)
}

func (x *twins) stepBackSessions(ctx context.Context) (string, error) {
	if redisarbiter.HasObserver(x.redis) {
		return "", nil
	}
	end := time.Now().Add(100 * time.Hour).UnixMilli()
	if err := x.setExpiry(ctx, "clock steps back", end); err != nil {
		return "", err
	}
	return x.setSessionsGrace(ctx, end)
}

// raised is when the mark's Grace was raised.
var raised = regexp.MustCompile(` raised=[1-9]\d+$`)

// raiseLapses makes it long ago.
func (x *twins) raiseLapses(ctx context.Context) (string, error) {
	x.log = append(x.log, "raise lapses(sessions)")
	injure.State(x.store, "ns", func(s *fallback.Sessions, _ []fallback.Partition) {
		s.Format = raised.ReplaceAllString(s.Format, " raised=1")
	})
	mark := x.client.HGet(ctx, sessionsKey, "f").Val()
	if mark == "" {
		return "", nil // lost
	}
	return "", x.client.HSet(ctx, sessionsKey, "f", raised.ReplaceAllString(mark, " raised=1")).Err()
}

// setSessionsGrace moves the end of Grace, after both have looked at the server.
func (x *twins) setSessionsGrace(ctx context.Context, end int64) (string, error) {
	if d, err := x.dead(ctx); d != "" || err != nil {
		return d, err
	}
	if redisarbiter.HasObserver(x.redis) {
		if d, err := x.longLook(ctx); d != "" || err != nil {
			return d, err
		}
	}
	anotherMillisecond()
	x.log = append(x.log, fmt.Sprintf("end of Grace is %d(sessions)", end))
	injure.State(x.store, "ns", func(s *fallback.Sessions, _ []fallback.Partition) {
		if s.GraceEnd != 0 {
			s.GraceEnd = end
		}
	})
	if redisarbiter.HasObserver(x.redis) {
		return x.finishGrace(ctx, sessionsKey, (*twins).longLook)
	}
	if x.client.HGet(ctx, sessionsKey, "g").Val() == "0" {
		return "", nil
	}
	return "", x.client.HSet(ctx, sessionsKey, "g", end).Err()
}

func (x *twins) setExpiry(ctx context.Context, what string, expiry int64) error {
	return x.setExpiryOf(ctx, x.target().Session, what, expiry)
}

func (x *twins) setExpiryOf(ctx context.Context, session, what string, expiry int64) error {
	x.log = append(x.log, fmt.Sprintf("%s(%s)", what, session))
	injure.State(x.store, "ns", func(s *fallback.Sessions, _ []fallback.Partition) {
		if m, ok := s.Members[session]; ok {
			m.Expiry = expiry
			s.Members[session] = m
		}
	})
	text := x.client.HGet(ctx, sessionsKey, "s:"+session).Val()
	_, rest, ok := strings.Cut(text, " ")
	if !ok {
		return nil
	}
	return x.client.HSet(ctx, sessionsKey, "s:"+session, fmt.Sprintf("%d %s", expiry, rest)).Err()
}
