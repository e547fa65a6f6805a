package redisarbiter_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/fallback/redisarbiter"
	"github.com/holdfast-go/holdfast/internal/injure"
	"github.com/holdfast-go/holdfast/internal/takes"
)

// The differences of the differential test where the server's clock does not count. Time passes for
// a process by its sightings, and for Memory by its clock: where one has come to an end, so has the
// other.

// entry returns Redis's entry of a session.
func (x *twins) entry(ctx context.Context, session string) (beat, ttl int64) {
	f := strings.Fields(x.client.HGet(ctx, sessionsKey, "s:"+session).Val())
	if len(f) < 2 {
		return 0, 0
	}
	beat, _ = strconv.ParseInt(f[0], 10, 64)
	life, _, _ := strings.Cut(f[1], ";")
	life, _, _ = strings.Cut(life, ":")
	ttl, _ = strconv.ParseInt(life, 10, 64)
	return beat, ttl
}

// tell gives the process of a session the same evidence of older data as Memory's session has, or
// none. Sometimes there is evidence: Memory's session expires sooner than it was told.
func (x *twins) tell(ctx context.Context, session string, seen int64) {
	now := time.Now().UnixMilli()
	if !redisarbiter.HasObserver(x.redis) || seen <= now {
		return
	}
	older := x.next()%4 == 0
	evidence := false
	injure.State(x.store, "ns", func(s *fallback.Sessions, _ []fallback.Partition) {
		m, ok := s.Members[session]
		if ok && older && m.TTL > 0 {
			m.Expiry = now + 1000*60
			s.Members[session] = m
		}
		evidence = ok && seen <= now+m.TTL && 2*m.Expiry+m.TTL < 2*seen
	})
	beat, _ := x.entry(ctx, session)
	if evidence {
		beat++
	}
	redisarbiter.Told(x.redis, session, beat)
}

// finishGrace makes all processes have seen a Grace for long enough, and look.
func (x *twins) finishGrace(ctx context.Context, key string, look move) (string, error) {
	redisarbiter.AgeGrace(x.redis, key)
	redisarbiter.AgeGrace(x.long.redis, key)
	return look(x, ctx)
}

// longLook is a look by the process that counts the longest Grace.
func (x *twins) longLook(ctx context.Context) (string, error) {
	defer x.as("c")()
	return both(x, "Dead(z)", func(n fallback.Namespace) (fallback.Liveness, error) {
		return n.Dead(ctx, "z", fallback.Stamp{})
	}, plainLiveness)
}

// declared makes a session be declared dead.
func (x *twins) declared(ctx context.Context, session string) (string, error) {
	dead := func() (string, error) {
		return both(x, fmt.Sprintf("Dead(%s)", session), func(n fallback.Namespace) (fallback.Liveness, error) {
			return n.Dead(ctx, session, fallback.Stamp{})
		}, plainLiveness)
	}
	if d, err := dead(); d != "" || err != nil {
		return d, err
	}
	inGrace := false
	injure.State(x.store, "ns", func(s *fallback.Sessions, _ []fallback.Partition) {
		m, ok := s.Members[session]
		if inGrace = s.GraceEnd != 0; ok && !inGrace && m.TTL > 0 {
			s.Members[session] = fallback.Member{Expiry: time.Now().UnixMilli(), Terms: fallback.Terms{Uses: 1<<53 - 1}} // ENDED of sessions.lua
		}
	})
	if beat, ttl := x.entry(ctx, session); ttl > 0 && !inGrace {
		redisarbiter.AgeSession(x.redis, session, beat, ttl)
	}
	return dead()
}

func TestMemoryAndRedisWithoutItsClockDoTheSame(t *testing.T) {
	takes.Seconds(t)
	t.Parallel()
	newTwins(t, observed).checkRandomly(t, nil)
}
