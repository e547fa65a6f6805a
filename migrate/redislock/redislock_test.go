package redislock_test

import (
	"context"
	"errors"
	"testing"
	"time"

	real "github.com/bsm/redislock"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/internal/leak"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/migrate/internal/shimtest"
	"github.com/holdfast-go/holdfast/migrate/redislock"
)

func TestMain(m *testing.M) { leak.Main(m) }

// A lock is the library's or the shim's.
type lock interface {
	Key() string
	Token() string
	Metadata() string
	TTL(ctx context.Context) (time.Duration, error)
	Release(ctx context.Context) error
}

// A backoff is a RetryStrategy of either side.
type backoff interface{ NextBackoff() time.Duration }

// A side is the library or the shim, with two processes.
type side struct {
	shimtest.Log
	obtain  func(process int, ctx context.Context, key string, ttl time.Duration, s backoff, token, metadata string) (lock, error)
	plain   func(key string) (lock, error) // without options, by the package's function
	refresh func(l lock, ttl time.Duration) error
	none    lock
	lose    func(key string) // process 0 loses the lock of key
	no      func() backoff
	linear  func(time.Duration) backoff
	limit   func(backoff, int) backoff
	double  func(least, most time.Duration) backoff
}

func library(t *testing.T, s *redistest.Server) *side {
	client := s.Client(t)
	clients := []*real.Client{real.New(client), real.New(client)}
	return &side{
		Log: shimtest.Log{Errors: map[string]error{"ErrNotObtained": real.ErrNotObtained, "ErrLockNotHeld": real.ErrLockNotHeld}},
		obtain: func(process int, ctx context.Context, key string, ttl time.Duration, s backoff, token, metadata string) (lock, error) {
			return clients[process].Obtain(ctx, key, ttl, &real.Options{RetryStrategy: s, Token: token, Metadata: metadata})
		},
		plain:   func(key string) (lock, error) { return real.Obtain(t.Context(), client, key, 10*time.Second, nil) },
		refresh: func(l lock, ttl time.Duration) error { return l.(*real.Lock).Refresh(t.Context(), ttl, nil) },
		none:    (*real.Lock)(nil),
		lose:    func(key string) { shimtest.Remove(t, client, key) },
		no:      func() backoff { return real.NoRetry() },
		linear:  func(d time.Duration) backoff { return real.LinearBackoff(d) },
		limit:   func(s backoff, n int) backoff { return real.LimitRetry(s, n) },
		double:  func(least, most time.Duration) backoff { return real.ExponentialBackoff(least, most) },
	}
}

func shim(t *testing.T, s *redistest.Server) *side {
	nodes := shimtest.Nodes(t, s, "b")
	return &side{
		Log: shimtest.Log{Errors: map[string]error{"ErrNotObtained": redislock.ErrNotObtained, "ErrLockNotHeld": redislock.ErrLockNotHeld}},
		obtain: func(process int, ctx context.Context, key string, ttl time.Duration, s backoff, token, metadata string) (lock, error) {
			return redislock.New(nodes[process]).Obtain(ctx, key, ttl, &redislock.Options{RetryStrategy: s, Token: token, Metadata: metadata})
		},
		plain: func(key string) (lock, error) {
			return redislock.Obtain(t.Context(), nodes[0], key, 10*time.Second, nil)
		},
		refresh: func(l lock, ttl time.Duration) error { return l.(*redislock.Lock).Refresh(t.Context(), ttl, nil) },
		none:    (*redislock.Lock)(nil),
		lose:    func(string) { shimtest.Close(nodes[0]) },
		no:      func() backoff { return redislock.NoRetry() },
		linear:  func(d time.Duration) backoff { return redislock.LinearBackoff(d) },
		limit:   func(s backoff, n int) backoff { return redislock.LimitRetry(s, n) },
		double:  func(least, most time.Duration) backoff { return redislock.ExponentialBackoff(least, most) },
	}
}

const long = 10 * time.Second

// The same calls of the library and of the shim return the same, but for the differences of the
// package's documentation.
func TestShim_DoesWhatTheLibraryDoes(t *testing.T) {
	shimtest.Run(t, map[string]shimtest.Scenario[*side]{
		"a lock's life": {Do: func(t *testing.T, s *side) {
			l, err := s.obtain(0, t.Context(), "k", long, nil, "mine", "who")
			s.Add("Obtain", l.Key(), l.Token(), l.Metadata(), err)
			left, err := l.TTL(t.Context())
			s.Add("TTL", left > long/2 && left <= long, err)
			s.Add("Refresh", s.refresh(l, 3*long))
			left, err = l.TTL(t.Context())
			s.Add("TTL", left > 2*long && left <= 3*long, err)
			s.over(t, l)
		}},
		"no options": {Do: func(t *testing.T, s *side) {
			a, err := s.plain("k")
			s.Add("Obtain", a.Metadata() == "", len(a.Token()) >= 20, err)
			b, err := s.plain("other")
			s.Add("Obtain", a.Token() != b.Token(), err)
			_, err = s.plain("k")
			s.Add("Obtain", err == s.Errors["ErrNotObtained"])
			s.Add("Release", a.Release(t.Context()), b.Release(t.Context()))
		}},
		"locked": {Do: func(t *testing.T, s *side) {
			_, err := s.obtain(0, t.Context(), "k", long, nil, "", "")
			s.Add("Obtain", err)
			for _, retry := range []backoff{nil, s.no(), s.limit(s.linear(time.Millisecond), 3), s.limit(s.double(0, 5*time.Millisecond), 2), s.limit(s.linear(1), 2)} {
				_, err = s.obtain(1, t.Context(), "k", long, retry, "", "")
				s.Add("Obtain of another", err, err == s.Errors["ErrNotObtained"])
			}
			ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
			defer cancel()
			_, err = s.obtain(1, ctx, "k", long, s.linear(time.Minute), "", "")
			s.Add("with a deadline", err)
			_, err = s.obtain(1, t.Context(), "k", 500*time.Millisecond, s.linear(time.Minute), "", "")
			s.Add("without a deadline", err)
		}},
		"a wait": {Do: func(t *testing.T, s *side) {
			l, err := s.obtain(0, t.Context(), "k", long, nil, "", "")
			s.Add("Obtain", err)
			waits := make(chan struct{})
			got := make(chan error)
			go func() {
				l, err := s.obtain(1, t.Context(), "k", long, told{s.linear(5 * time.Millisecond), waits}, "", "")
				if err == nil {
					err = l.Release(t.Context())
				}
				got <- err
			}()
			<-waits
			s.Add("Release", l.Release(t.Context()))
			s.Add("the one that waits", <-got)
		}},
		"the context has ended": {Do: func(t *testing.T, s *side) {
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			_, err := s.obtain(0, ctx, "k", long, s.linear(time.Millisecond), "", "")
			s.Add("Obtain", err)
		}},
		"no lock": {Do: func(t *testing.T, s *side) {
			s.over(t, s.none)
		}},
		"a lost lock": {Do: func(t *testing.T, s *side) {
			l, err := s.obtain(0, t.Context(), "k", long, nil, "", "")
			s.Add("Obtain", err)
			s.lose("k")
			left, err := l.TTL(t.Context())
			s.Add("TTL", left, err)
			s.Add("Refresh", s.refresh(l, long))
			s.Add("Release", l.Release(t.Context()))
		}},
		"strategies": {Do: func(_ *testing.T, s *side) {
			for _, retry := range []backoff{
				s.no(), s.linear(7), s.limit(s.linear(7), 3), s.limit(s.linear(7), 0), s.double(0, 0), s.double(10*time.Millisecond, 300*time.Millisecond),
			} {
				var pauses []time.Duration
				for range 30 {
					pauses = append(pauses, retry.NextBackoff())
				}
				s.Add("NextBackoff", pauses)
			}
		}},

		"the ttl is over": {Do: func(t *testing.T, s *side) {
			l, err := s.obtain(0, t.Context(), "k", 500*time.Millisecond, nil, "", "")
			s.Add("Obtain", err)
			time.Sleep(550 * time.Millisecond)
			_, err = s.obtain(1, t.Context(), "k", long, nil, "", "")
			s.Add("Obtain of another", err)
			s.Add("Refresh", s.refresh(l, long))
			s.Add("Release", l.Release(t.Context()))
		}, Differs: []string{"Obtain: <nil>", "Obtain of another: ErrNotObtained", "Refresh: <nil>", "Release: <nil>"}},
		"the same token": {Do: func(t *testing.T, s *side) {
			for process := range 2 {
				_, err := s.obtain(process, t.Context(), "k", long, nil, "mine", "")
				s.Add("Obtain", err)
			}
		}, Differs: []string{"Obtain: <nil>", "Obtain: ErrNotObtained"}},
		"no ttl": {Do: func(t *testing.T, s *side) {
			_, err := s.obtain(0, t.Context(), "k", 0, nil, "", "")
			s.Add("Obtain", err)
		}, Differs: []string{"Obtain: another error"}},
	}, library, shim)
}

// over releases the lock, and calls the methods of a lock that is over.
func (s *side) over(t *testing.T, l lock) {
	s.Add("Release", l.Release(t.Context()))
	s.Add("Release again", l.Release(t.Context()))
	left, err := l.TTL(t.Context())
	s.Add("TTL", left, err)
	s.Add("Refresh", s.refresh(l, long))
}

// told is a strategy that tells that the wait has begun.
type told struct {
	backoff
	waits chan struct{}
}

func (s told) NextBackoff() time.Duration {
	select {
	case s.waits <- struct{}{}:
	default:
	}
	return s.backoff.NextBackoff()
}

// A caller whose context is that of a lock of the key does not wait for itself.
func TestObtain_HeldByTheCaller(t *testing.T) {
	c := redislock.New(shimtest.Nodes(t, redistest.Start(t), "h")[0])
	l, err := c.Obtain(t.Context(), "k", long, nil)
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.Obtain(l.Context(), "k", long, &redislock.Options{RetryStrategy: redislock.LinearBackoff(time.Millisecond)})
	if !errors.Is(err, redislock.ErrNotObtained) || !errors.Is(err, coord.ErrHeld) {
		t.Errorf("Obtain: %v", err)
	}
	if l.Fence() == 0 {
		t.Error("no token")
	}
}

func ExampleNew() {
	sell := func(ctx context.Context, locks *coord.Coordinator, sku string) error {
		lock, err := redislock.New(locks).Obtain(ctx, "sku/"+sku, 10*time.Second, &redislock.Options{
			RetryStrategy: redislock.LimitRetry(redislock.LinearBackoff(50*time.Millisecond), 20),
		})
		if err != nil {
			return err
		}
		defer lock.Release(ctx)
		return nil
	}
	_ = sell
}
