package coord_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/fallback/redisarbiter"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/takes"
)

func overRedis(t *testing.T, s *redistest.Server) fallback.Arbiter {
	return redisarbiter.New(s.Client(t), &redisarbiter.Options{ColdStart: true})
}

// leftovers lists the entries at the arbiter besides the records of partitions and the table of
// sessions.
func leftovers(t *testing.T, c *redis.Client) (left []string) {
	t.Helper()
	for _, key := range must(c.Keys(t.Context(), "*").Result()) {
		if strings.Contains(key, ":w:") {
			left = append(left, key)
			continue
		}
		for _, field := range must(c.HKeys(t.Context(), key).Result()) {
			if strings.HasPrefix(field, "r:") || strings.HasPrefix(field, "s:") {
				left = append(left, key+" "+field)
			}
		}
	}
	return left
}

// A process that starts in a failover may be sent to a server that is the primary no more, or not
// yet.
func TestStartOnAReplica(t *testing.T) {
	primary, replica := redistest.Start(t), redistest.Start(t)
	if err := replica.Replicate(t.Context(), primary); err != nil {
		t.Fatal(err)
	}
	if c, err := coord.New(context.Background(), overRedis(t, replica), nil); !errors.Is(err, coord.ErrUnavailable) || !strings.Contains(err.Error(), "replica") {
		t.Fatalf("got %v, %v, want ErrUnavailable that says why", c, err)
	}
	c, err := coord.New(context.Background(), overRedis(t, replica), &coord.Options{StartUnavailable: true, RetryEvery: 10 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := c.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}()
	if err := replica.Replicate(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	l, err := c.Lock(t.Context(), "k")
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Unlock(); err != nil {
		t.Error(err)
	}
}

// Each wait that is given up is withdrawn (rule 11).
func TestTenThousandWaitersThatGiveUpLeaveNothingBehind(t *testing.T) {
	takes.Seconds(t)
	s := redistest.Start(t)
	client := s.Client(t)
	var cs []*coord.Coordinator
	for range 3 {
		c, err := coord.New(context.Background(), overRedis(t, s), nil)
		if err != nil {
			t.Fatal(err)
		}
		cs = append(cs, c)
	}
	want := int64(10_000)
	if testing.Short() {
		want = 1000
	}
	var gaveUp, got atomic.Int64
	var work sync.WaitGroup
	for i := range 96 {
		work.Go(func() {
			for gaveUp.Load() < want {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(rand.IntN(3000))*time.Microsecond)
				l, err := cs[i%3].Lock(ctx, fmt.Sprint("k", rand.IntN(4)))
				cancel()
				switch {
				case errors.Is(err, context.DeadlineExceeded):
					gaveUp.Add(1)
				case err != nil:
					t.Error(err)
					return
				default:
					got.Add(1)
					if rand.IntN(2) == 0 {
						<-time.After(time.Duration(rand.IntN(300)) * time.Microsecond)
					}
					if err := l.Unlock(); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	work.Wait()
	if got.Load() == 0 {
		t.Error("nobody got a lock")
	}
	for i := range 4 { // no wake-up was lost
		for _, c := range cs {
			unlock(t, lock(t, c, fmt.Sprint("k", i)))
		}
	}
	for _, c := range cs {
		if err := c.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if left := leftovers(t, client); len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}
	t.Logf("%d gave up, %d got the lock", gaveUp.Load(), got.Load())
}

// counter counts the commands that a client sends. It can keep them waiting.
type counter struct {
	n    atomic.Int64
	gate sync.RWMutex // locked for writing: nothing is sent
}

func (c *counter) add(n int) {
	c.gate.RLock()
	defer c.gate.RUnlock()
	c.n.Add(int64(n))
}

func (c *counter) DialHook(next redis.DialHook) redis.DialHook { return next }
func (c *counter) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error { c.add(1); return next(ctx, cmd) }
}
func (c *counter) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error { c.add(len(cmds)); return next(ctx, cmds) }
}

func TestAnUncontendedLockIsOneRoundTripAndItsUnlockNone(t *testing.T) {
	s := redistest.Start(t)
	client := s.Client(t)
	given := make(chan int, 1) // releases acknowledged
	c := startDefault(t, redisarbiter.New(client, &redisarbiter.Options{ColdStart: true, Background: client}), &coord.Options{
		SessionTTL: time.Hour, RenewEvery: 15 * time.Minute, Grace: 2 * time.Hour, // no renewal while commands are counted
		Trace: &coord.Trace{
			Call: func(x coord.CallInfo) {
				if x.Op == coord.OpUnlock {
					given <- 1
				}
			},
		},
	})
	unlock(t, lock(t, c, "warm")) // the scripts are loaded at first use
	<-given
	var sent counter
	client.AddHook(&sent)
	for i := range 20 {
		before := sent.n.Load()
		l := lock(t, c, fmt.Sprint("k", i))
		if n := sent.n.Load() - before; n != 1 {
			t.Errorf("%d commands to lock", n)
		}
		sent.gate.Lock() // if Unlock waited for a command, it would not return
		unlock(t, l)
		sent.gate.Unlock()
		<-given
		if n := sent.n.Load() - before; n != 2 {
			t.Errorf("%d commands to lock and unlock", n)
		}
	}
}

// no server listens there, and none that is started on any free port will.
const nobody = "127.0.0.1:1"

func TestNewNamesTheSettingThatIsWrong(t *testing.T) {
	t.Parallel()
	primary := redistest.Start(t)
	replica := redistest.Start(t)
	if err := replica.Replicate(t.Context(), primary); err != nil {
		t.Fatal(err)
	}
	password := redistest.Start(t, "--requirepass", "secret")
	evicting := redistest.Start(t, "--maxmemory-policy", "allkeys-lru")
	startDefault(t, overRedis(t, primary), nil)

	for name, x := range map[string]struct {
		redis redis.Options
		opts  coord.Options
		is    error
		text  string
	}{
		"unreachable":     {redis.Options{Addr: nobody}, coord.Options{}, coord.ErrUnavailable, "refused"},
		"no password":     {redis.Options{Addr: password.Addr}, coord.Options{}, fallback.ErrRefused, "password"},
		"wrong password":  {redis.Options{Addr: password.Addr, Password: "x"}, coord.Options{}, fallback.ErrRefused, "password"},
		"replica":         {redis.Options{Addr: replica.Addr}, coord.Options{}, coord.ErrUnavailable, "read-only replica"},
		"eviction":        {redis.Options{Addr: evicting.Addr}, coord.Options{}, fallback.ErrRefused, "maxmemory-policy"},
		"partitions":      {redis.Options{Addr: primary.Addr}, coord.Options{Partitions: 64}, fallback.ErrMismatch, "Partitions 1021, this process 64: set Partitions"},
		"renewal":         {redis.Options{Addr: primary.Addr}, coord.Options{RenewEvery: 8 * time.Second}, nil, "Options.RenewEvery"},
		"short grace":     {redis.Options{Addr: primary.Addr}, coord.Options{SessionTTL: time.Minute, Grace: time.Minute}, nil, "Options.Grace"},
		"negative":        {redis.Options{Addr: primary.Addr}, coord.Options{Margin: -1}, nil, "Options.Margin"},
		"long call":       {redis.Options{Addr: primary.Addr}, coord.Options{CallTimeout: 7 * time.Second}, nil, "Options.CallTimeout"},
		"many partitions": {redis.Options{Addr: primary.Addr}, coord.Options{Partitions: 1 << 20}, nil, "Options.Partitions"},
		"namespace":       {redis.Options{Addr: primary.Addr}, coord.Options{Namespace: "{a}"}, fallback.ErrRefused, "Namespace"},
	} {
		t.Run(name, func(t *testing.T) {
			client := redis.NewClient(&x.redis)
			defer client.Close()
			_, err := coord.New(context.Background(), redisarbiter.New(client, &redisarbiter.Options{ColdStart: true}), &x.opts)
			if err == nil || x.is != nil && !errors.Is(err, x.is) || !strings.Contains(err.Error(), x.text) {
				t.Errorf("%v", err)
			}
		})
	}
	if _, err := coord.New(context.Background(), redisarbiter.New(nil, nil), nil); !errors.Is(err, fallback.ErrRefused) {
		t.Errorf("nil client: %v", err)
	}
	if _, err := coord.New(context.Background(), redisarbiter.New((*redis.Client)(nil), nil), nil); !errors.Is(err, fallback.ErrRefused) {
		t.Errorf("nil client: %v", err)
	}
}

func TestAtMaxmemoryNewLocksAreRefusedAndOldOnesLast(t *testing.T) {
	takes.Seconds(t)
	s := redistest.Start(t)
	client := s.Client(t)
	c := startDefault(t, overRedis(t, s), &coord.Options{SessionTTL: 4 * time.Second})
	l := lock(t, c, "before")
	if err := client.ConfigSet(t.Context(), "maxmemory", "1mb").Err(); err != nil {
		t.Fatal(err)
	}
	_, err := c.Lock(t.Context(), "after")
	if !errors.Is(err, coord.ErrUnavailable) || !errors.Is(err, fallback.ErrRefused) || !strings.Contains(err.Error(), "maxmemory") {
		t.Errorf("Lock at maxmemory: %v", err)
	}
	select {
	case <-l.Context().Done():
		t.Errorf("lost: %v", context.Cause(l.Context()))
	case <-time.After(5 * time.Second): // longer than without a renewal
	}
	unlock(t, l)
	if err := client.ConfigSet(t.Context(), "maxmemory", "0").Err(); err != nil {
		t.Fatal(err)
	}
	unlock(t, lock(t, c, "after"))
}
