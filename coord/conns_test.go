package coord_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/fallback/redisarbiter"
	"github.com/holdfast-go/holdfast/internal/await"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/takes"
)

// clientOf returns a client, closed when the test ends.
func clientOf(t *testing.T, o *redis.Options) *redis.Client {
	c := redis.NewClient(o)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

var coldStart = &redisarbiter.Options{ColdStart: true}

// A connection takes several round trips to make. With half a second for each, none is made within
// one CallTimeout.
func TestASlowServerGetsASession(t *testing.T) {
	takes.Seconds(t)
	t.Parallel()
	for _, heeds := range []bool{false, true} {
		t.Run(fmt.Sprintf("client heeds contexts %t", heeds), func(t *testing.T) {
			t.Parallel()
			s := redistest.Start(t)
			p := redistest.StartProxy(t, s.Addr)
			p.Delay(450 * time.Millisecond)
			client := clientOf(t, &redis.Options{Addr: p.Addr, ContextTimeoutEnabled: heeds})
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			begin := time.Now()
			// The session has room for many renewals that come late, as they do on a busy machine.
			c, err := coord.New(ctx, redisarbiter.New(client, coldStart), &coord.Options{
				SessionTTL: 40 * time.Second, Grace: 50 * time.Second, RenewEvery: 2 * time.Second, CallTimeout: time.Second,
			})
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("New took %v", time.Since(begin))
			defer func() {
				if err := c.Close(ctx); err != nil {
					t.Errorf("Close: %v", err)
				}
			}()
			for range 2 {
				l, err := c.Lock(ctx, "k")
				if err != nil {
					t.Fatal(err)
				}
				unlock(t, l)
				p.Break() // nor is a new one, once it is broken
			}
			n := c.Stats().Calls[coord.OpRenew] + 2
			await.Until(t, "two renewals", func() bool { return c.Stats().Calls[coord.OpRenew] >= n })
			if n := c.Stats().Sessions; n != 1 {
				t.Errorf("%d sessions", n)
			}
		})
	}
}

func TestAPoolThatTheApplicationHasUsedUp(t *testing.T) {
	takes.Seconds(t)
	t.Parallel()
	s := redistest.Start(t)
	client := clientOf(t, &redis.Options{Addr: s.Addr, PoolSize: 10})
	c := startDefault(t, redisarbiter.New(client, coldStart), &coord.Options{SessionTTL: 20 * time.Second, Grace: 40 * time.Second, RenewEvery: 500 * time.Millisecond})
	l := lock(t, c, "k")
	admin := s.Client(t)
	var work sync.WaitGroup
	defer work.Wait()
	defer admin.LPush(context.Background(), "nothing", 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12)
	for range 12 {
		work.Go(func() { client.BLPop(t.Context(), 0, "nothing") })
	}
	blocked := func() bool {
		text, _ := admin.Info(t.Context(), "clients").Result()
		return strings.Contains(text, "blocked_clients:10\r")
	}
	await.Until(t, "all connections are in use", blocked)
	_, err := c.TryLock(t.Context(), "other")
	for begin := time.Now(); strings.Contains(fmt.Sprint(err), "no answer yet") && time.Since(begin) < time.Minute; {
		_, err = c.TryLock(t.Context(), "other") // a loaded machine had not come to it
	}
	if !errors.Is(err, coord.ErrUnavailable) || !strings.Contains(fmt.Sprint(err), "all 10 connections") ||
		!strings.Contains(fmt.Sprint(err), "PoolSize") {
		t.Errorf("TryLock: %v, want an error that names PoolSize", err)
	}
	before := c.Stats()
	await.Until(t, "the session is renewed, and the lock is verified", func() bool {
		now := c.Stats()
		done := func(op coord.Op) uint64 { return now.Calls[op] - now.Failed[op] - before.Calls[op] + before.Failed[op] }
		return done(coord.OpRenew) > 2 && done(coord.OpVerify) > 2
	})
	if now := c.Stats(); now.Failed[coord.OpRenew] > 0 || now.Failed[coord.OpVerify] > 0 {
		t.Errorf("renewals or reads failed: %v", now.Failed)
	}
	if l.Context().Err() != nil {
		t.Errorf("lost: %v", context.Cause(l.Context()))
	}
	unlock(t, l)
}

// Lock calls queue for the client's connections. The renewals of the session do not queue behind
// them.
func TestAStormOfLockCallsKeepsTheSession(t *testing.T) {
	takes.Seconds(t)
	t.Parallel()
	s := redistest.Start(t)
	p := redistest.StartProxy(t, s.Addr)
	p.Delay(20 * time.Millisecond)
	for _, heeds := range []bool{false, true} {
		client := clientOf(t, &redis.Options{Addr: p.Addr, PoolSize: 4, ContextTimeoutEnabled: heeds})
		// A call at the end of the callers' queue takes 7 s, longer than a renewal may. The session
		// has time for many.
		c := startDefault(t, redisarbiter.New(client, coldStart), &coord.Options{
			Namespace: fmt.Sprint("storm", heeds), SessionTTL: 60 * time.Second, Grace: 120 * time.Second,
			RenewEvery: time.Second, CallTimeout: 4 * time.Second,
		})
		var callers sync.WaitGroup
		var failed atomic.Int64
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		for i := range 1500 {
			callers.Go(func() {
				for round := 0; ctx.Err() == nil; round++ {
					l, err := c.Lock(ctx, fmt.Sprintf("k%d %d", i, round))
					if err != nil {
						if ctx.Err() == nil {
							failed.Add(1)
						}
						return
					}
					_ = l.Unlock()
				}
			})
		}
		await.Until(t, "callers queue", func() bool { return c.Stats().Waiting > 1000 })
		renewed := func() uint64 { s := c.Stats(); return s.Calls[coord.OpRenew] - s.Failed[coord.OpRenew] }
		before := renewed()
		await.Until(t, "three renewals in the storm", func() bool { return renewed() >= before+3 })
		s := c.Stats()
		cancel()
		callers.Wait()
		if n := failed.Load(); n > 0 || s.Sessions != 1 || s.Failed[coord.OpRenew] > 0 {
			t.Errorf("client heeds contexts %t: %d callers failed, %d sessions, failed %v", heeds, n, s.Sessions, s.Failed)
		}
		if n := client.PoolStats().TotalConns; n > 3 { // one more than the limit may stand between two calls
			t.Errorf("%d connections of the client's 4 were made", n)
		}
	}
}

func TestACancelledLockReturnsWhileItsCallIsUnderWay(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	client := clientOf(t, &redis.Options{Addr: s.Addr, ContextTimeoutEnabled: true})
	// A call of the caller's own goroutine may take a twentieth of CallTimeout.
	c := startDefault(t, redisarbiter.New(client, coldStart), &coord.Options{SessionTTL: 100 * time.Second, Grace: 200 * time.Second})
	for i := range 10 {
		unlock(t, lock(t, c, fmt.Sprint("warm", i)))
	}
	if err := s.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(50*time.Millisecond, cancel)
	begin := time.Now()
	_, err := c.Lock(ctx, "k")
	took := time.Since(begin)
	if err := s.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if !errors.Is(err, context.Canceled) || !errors.Is(err, coord.ErrUnavailable) {
		t.Errorf("%v", err)
	}
	if took > 5*time.Second { // half of CallTimeout
		t.Errorf("it returned after %v", took)
	}
}

// A password that is changed at the server before it is at the client.
func TestAPasswordThatIsRotatedLate(t *testing.T) {
	takes.Seconds(t)
	t.Parallel()
	s := redistest.Start(t, "--requirepass", "old")
	var password atomic.Pointer[string]
	set := func(p string) { password.Store(&p) }
	set("old")
	client := clientOf(t, &redis.Options{Addr: s.Addr, CredentialsProvider: func() (string, string) { return "", *password.Load() }})
	c := startDefault(t, redisarbiter.New(client, coldStart), &coord.Options{SessionTTL: 20 * time.Second, RenewEvery: 5 * time.Second, Grace: 40 * time.Second})
	held := lock(t, c, "held")

	admin := clientOf(t, &redis.Options{Addr: s.Addr, Password: "old", PoolSize: 1})
	if err := admin.ConfigSet(t.Context(), "requirepass", "new").Err(); err != nil {
		t.Fatal(err)
	}
	for _, kind := range []string{"normal", "pubsub"} {
		if err := admin.ClientKillByFilter(t.Context(), "TYPE", kind, "SKIPME", "yes").Err(); err != nil {
			t.Fatal(err)
		}
	}
	errs := make(chan error, 200)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for i := range cap(errs) {
		go func() {
			l, err := c.Lock(ctx, fmt.Sprint("k", i))
			if err == nil {
				err = l.Unlock()
			}
			errs <- err
		}()
	}
	_, err := c.TryLock(t.Context(), "tried")
	if !errors.Is(err, coord.ErrUnavailable) || errors.Is(err, fallback.ErrRefused) || !strings.Contains(err.Error(), "password") {
		t.Errorf("TryLock: %v, want ErrUnavailable that names the password", err)
	}
	select {
	case err := <-errs:
		t.Fatalf("Lock did not wait: %v", err)
	case <-time.After(3 * time.Second):
	}
	stats, err := admin.Info(t.Context(), "errorstats").Result()
	if err != nil {
		t.Fatal(err)
	}
	var denied int
	for line := range strings.Lines(stats) {
		_, _ = fmt.Sscanf(line, "errorstat_WRONGPASS:count=%d", &denied)
	}
	t.Logf("%d passwords were refused in 3 s", denied)
	if denied == 0 || denied > 400 {
		t.Errorf("%d passwords were refused in 3 s, want some, and no storm", denied)
	}
	set("new")
	for range cap(errs) {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	unlock(t, held)
}

// A process whose password is changed at the server, or that has none where one is wanted now, says
// so in both records that the documents name: of a renewal that failed, and of a setting.
func TestLog_APasswordThatIsChanged(t *testing.T) {
	takes.Seconds(t)
	for before, says := range map[string]string{"old": "user name or password is wrong", "": "the server wants a password"} {
		t.Run(says, func(t *testing.T) {
			t.Parallel()
			s := redistest.Start(t, "--requirepass", before)
			var password atomic.Pointer[string]
			password.Store(&before)
			client := clientOf(t, &redis.Options{Addr: s.Addr, CredentialsProvider: func() (string, string) { return "", *password.Load() }})
			h := newRecords()
			o := &coord.Options{SessionTTL: 4 * time.Second, RenewEvery: 200 * time.Millisecond, Grace: 8 * time.Second, Logger: slog.New(h)}
			c := startDefault(t, redisarbiter.New(client, coldStart), o)

			admin := clientOf(t, &redis.Options{Addr: s.Addr, Password: before, PoolSize: 1})
			if err := admin.ConfigSet(t.Context(), "requirepass", "new").Err(); err != nil {
				t.Fatal(err)
			}
			for _, kind := range []string{"normal", "pubsub"} {
				if err := admin.ClientKillByFilter(t.Context(), "TYPE", kind, "SKIPME", "yes").Err(); err != nil {
					t.Fatal(err)
				}
			}
			for text, level := range map[string]slog.Level{
				"holdfast: renewal failed, trying again":        slog.LevelWarn,
				"holdfast: no session: a setting is wrong":      slog.LevelError,
				"holdfast: session lost, and all locks with it": slog.LevelWarn,
			} {
				await.Within(t, time.Minute, text, func() bool { return len(h.about(text)) > 0 })
				r := h.about(text)[0]
				if err := fmt.Sprint(r.attrs["error"]); r.level != level || !strings.Contains(err, says) {
					t.Errorf("%v, want %v, and %q", r, level, says)
				}
			}
			right := "new"
			password.Store(&right)
			await.Within(t, time.Minute, "a session", func() bool { return c.Stats().Session != "" })
		})
	}
}
