package redsync_test

import (
	"context"
	"errors"
	"testing"
	"time"

	real "github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/internal/leak"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/migrate/internal/shimtest"
	"github.com/holdfast-go/holdfast/migrate/redsync"
)

func TestMain(m *testing.M) { leak.Main(m) }

// A mutex is the library's or the shim's.
type mutex interface {
	Name() string
	Value() string
	Until() time.Time
	Lock() error
	LockContext(ctx context.Context) error
	TryLock() error
	TryLockContext(ctx context.Context) error
	Unlock() (bool, error)
	UnlockContext(ctx context.Context) (bool, error)
	Extend() (bool, error)
	ExtendContext(ctx context.Context) (bool, error)
	Valid() (bool, error)
	ValidContext(ctx context.Context) (bool, error)
}

// Settings are those of a mutex. Zero means the default.
type settings struct {
	expiry time.Duration
	tries  int // negative: none
	delay  func(tries int) time.Duration
	value  func() (string, error)
}

// A side is the library or the shim, with two processes.
type side struct {
	shimtest.Log
	mutex func(process int, x settings) mutex // of the key k
	lose  func()                              // process 0 loses the lock
}

func library(t *testing.T, s *redistest.Server) *side {
	client := s.Client(t)
	processes := [2]*real.Redsync{real.New(goredis.NewPool(client)), real.New(goredis.NewPool(client))}
	return &side{
		Log: shimtest.Log{
			Errors: map[string]error{
				"ErrFailed": real.ErrFailed, "ErrExtendFailed": real.ErrExtendFailed, "ErrLockAlreadyExpired": real.ErrLockAlreadyExpired,
			},
			Types: map[string]func(error) bool{"ErrTaken": is[*real.ErrTaken], "RedisError": is[*real.RedisError]},
		},
		mutex: func(process int, x settings) mutex {
			var opts []real.Option
			if x.expiry > 0 {
				opts = append(opts, real.WithExpiry(x.expiry))
			}
			if x.tries != 0 {
				opts = append(opts, real.WithTries(max(x.tries, 0)))
			}
			if x.delay != nil {
				opts = append(opts, real.WithRetryDelayFunc(x.delay))
			}
			if x.value != nil {
				opts = append(opts, real.WithGenValueFunc(x.value))
			}
			return processes[process].NewMutex("k", append(opts, real.WithDriftFactor(0.01), real.WithTimeoutFactor(0.5),
				real.WithFailFast(false), real.WithShufflePools(true))...)
		},
		lose: func() { shimtest.Remove(t, client, "k") },
	}
}

func is[E error](err error) bool { return errors.As(err, new(E)) }

func shim(t *testing.T, s *redistest.Server) *side {
	nodes := shimtest.Nodes(t, s, "b")
	return &side{
		Log: shimtest.Log{
			Errors: map[string]error{
				"ErrFailed": redsync.ErrFailed, "ErrExtendFailed": redsync.ErrExtendFailed, "ErrLockAlreadyExpired": redsync.ErrLockAlreadyExpired,
			},
			Types: map[string]func(error) bool{"ErrTaken": is[*redsync.ErrTaken], "RedisError": is[*redsync.RedisError]},
		},
		mutex: func(process int, x settings) mutex {
			var opts []redsync.Option
			if x.expiry > 0 {
				opts = append(opts, redsync.WithExpiry(x.expiry))
			}
			if x.tries != 0 {
				opts = append(opts, redsync.WithTries(max(x.tries, 0)))
			}
			if x.delay != nil {
				opts = append(opts, redsync.WithRetryDelayFunc(x.delay))
			}
			if x.value != nil {
				opts = append(opts, redsync.WithGenValueFunc(x.value))
			}
			return redsync.New(nodes[process]).NewMutex("k", append(opts, redsync.WithDriftFactor(0.01), redsync.WithTimeoutFactor(0.5),
				redsync.WithFailFast(false), redsync.WithShufflePools(true))...)
		},
		lose: func() { shimtest.Close(nodes[0]) },
	}
}

var errValue = errors.New("no value")

// After returns a delay that is always the same.
func after(d time.Duration) func(int) time.Duration { return func(int) time.Duration { return d } }

// The same calls of the library and of the shim return the same, but for the differences of the
// package's documentation.
func TestShim_DoesWhatTheLibraryDoes(t *testing.T) {
	shimtest.Run(t, map[string]shimtest.Scenario[*side]{
		"a lock's life": {Do: func(t *testing.T, s *side) {
			m := s.mutex(0, settings{value: func() (string, error) { return "mine", nil }})
			s.Add("before", m.Name(), m.Value() == "", m.Until().IsZero())
			s.Add("Lock", m.Lock())
			left := time.Until(m.Until())
			s.Add("locked", m.Value(), left > 5*time.Second && left <= 8*time.Second)
			s.valid(t, m)
			s.extend(t, m)
			s.over(m)
			s.Add("Value", m.Value())
			s.Add("Lock anew", m.TryLockContext(t.Context()))
			s.Add("Unlock", m.Value() == "mine")
			ok, err := m.UnlockContext(t.Context())
			s.Add("UnlockContext", ok, err)
		}},
		"values": {Do: func(t *testing.T, s *side) {
			m := s.mutex(0, settings{})
			s.Add("Lock", m.LockContext(t.Context()))
			first := m.Value()
			s.Add("Lock again", m.TryLock(), m.Value() == first) // with a value of its own: the library would free the key otherwise
			ok, err := m.Unlock()
			s.Add("Unlock", ok, err, m.Lock(), len(first) >= 20, m.Value() != first)
			broken := s.mutex(1, settings{value: func() (string, error) { return "", errValue }})
			s.Add("no value", broken.Lock() == errValue, broken.TryLock() == errValue)
		}},
		"never locked": {Do: func(t *testing.T, s *side) {
			m := s.mutex(0, settings{})
			ok, err := m.Unlock()
			s.Add("Unlock", ok, err)
			s.valid(t, m)
		}},
		"locked": {Do: func(t *testing.T, s *side) {
			s.Add("Lock", s.mutex(0, settings{}).Lock())
			s.Add("TryLock", s.mutex(1, settings{}).TryLock())
			for _, tries := range []int{-1, 1, 3} {
				m := s.mutex(1, settings{tries: tries, delay: after(time.Millisecond)})
				s.Add("Lock", m.Lock(), m.Value() == "", m.Until().IsZero())
			}
			var seen []int
			m := s.mutex(1, settings{tries: 4, delay: func(n int) time.Duration { seen = append(seen, n); return time.Millisecond }})
			s.Add("Lock", m.Lock(), seen)
			s.Add("without delays", s.mutex(1, settings{tries: 3, delay: after(0)}).Lock())
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			m = s.mutex(1, settings{tries: 1000, delay: after(time.Minute)})
			s.Add("with a deadline", m.LockContext(ctx), m.Value() == "")
		}},
		"a wait": {Do: func(t *testing.T, s *side) {
			m := s.mutex(0, settings{})
			s.Add("Lock", m.Lock())
			waits, got := make(chan struct{}, 1000), make(chan error)
			other := s.mutex(1, settings{tries: 1000, delay: func(int) time.Duration { waits <- struct{}{}; return 10 * time.Millisecond }})
			go func() {
				err := other.LockContext(t.Context())
				got <- err
			}()
			<-waits
			ok, err := m.Unlock()
			s.Add("Unlock", ok, err)
			s.Add("the one that waits", <-got)
			ok, err = other.Unlock()
			s.Add("Unlock", ok, err)
		}},
		"the context has ended": {Do: func(t *testing.T, s *side) {
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			s.Add("LockContext", s.mutex(0, settings{delay: after(time.Minute)}).LockContext(ctx))
			s.Add("TryLockContext", s.mutex(0, settings{}).TryLockContext(ctx))
		}},
		"a lost lock": {Do: func(t *testing.T, s *side) {
			m := s.mutex(0, settings{})
			s.Add("Lock", m.Lock())
			s.lose()
			s.valid(t, m)
			ok, err := m.Extend()
			s.Add("Extend", ok, err)
			ok, err = m.Unlock()
			s.Add("Unlock", ok, err)
		}},

		"the expiry is over": {Do: func(t *testing.T, s *side) {
			m := s.mutex(0, settings{expiry: time.Second})
			s.Add("Lock", m.Lock())
			time.Sleep(1100 * time.Millisecond)
			s.Add("Until", m.Until().After(time.Now()))
			s.valid(t, m)
			s.Add("TryLock of another", s.mutex(1, settings{}).TryLock())
			ok, err := m.Unlock()
			s.Add("Unlock", ok, err)
		}, Differs: []string{
			"Lock: <nil>", "Until: true", "Valid: true <nil>", "ValidContext: true <nil>", "TryLock of another: ErrTaken", "Unlock: true <nil>",
		}},
		"Until after Unlock": {Do: func(_ *testing.T, s *side) {
			m := s.mutex(0, settings{})
			s.Add("Lock", m.Lock())
			ok, err := m.Unlock()
			s.Add("Unlock", ok, err, m.Until().After(time.Now()))
		}, Differs: []string{"Lock: <nil>", "Unlock: true <nil> false"}},
		"another mutex": {Do: func(_ *testing.T, s *side) {
			s.Add("Lock", s.mutex(0, settings{}).Lock())
			ok, err := s.mutex(1, settings{}).Unlock()
			s.Add("Unlock", ok, err)
		}, Differs: []string{"Lock: <nil>", "Unlock: false ErrLockAlreadyExpired"}},
	}, library, shim)
}

func (s *side) valid(t *testing.T, m mutex) {
	ok, err := m.Valid()
	s.Add("Valid", ok, err)
	ok, err = m.ValidContext(t.Context())
	s.Add("ValidContext", ok, err)
}

func (s *side) extend(t *testing.T, m mutex) {
	ok, err := m.Extend()
	s.Add("Extend", ok, err)
	ok, err = m.ExtendContext(t.Context())
	s.Add("ExtendContext", ok, err, m.Until().After(time.Now()))
}

// over unlocks the mutex, and calls the methods of one that is over.
func (s *side) over(m mutex) {
	for range 2 {
		ok, err := m.Unlock()
		s.Add("Unlock", ok, err)
	}
	ok, err := m.Valid()
	s.Add("Valid", ok, err)
	ok, err = m.Extend()
	s.Add("Extend", ok, err)
}

// The errors of Unlock and Held for a lost lock are coord's as well.
func TestMutex_Held(t *testing.T) {
	nodes := shimtest.Nodes(t, redistest.Start(t), "h")
	m := redsync.New(nodes[0]).NewMutex("k")
	if err := m.Lock(); err != nil {
		t.Fatal(err)
	}
	l := m.Held()
	if l.Fence() == 0 {
		t.Error("no token")
	}
	if err := m.LockContext(l.Context()); !is[*redsync.ErrTaken](err) {
		t.Errorf("the caller has the lock: %v", err)
	}
	shimtest.Close(nodes[0])
	if err := context.Cause(l.Context()); !errors.Is(err, coord.ErrLost) {
		t.Errorf("cause: %v", err)
	}
	if _, err := m.Unlock(); !errors.Is(err, redsync.ErrLockAlreadyExpired) || !errors.Is(err, coord.ErrLost) {
		t.Errorf("Unlock: %v", err)
	}
	if err := m.TryLock(); !is[*redsync.RedisError](err) || !errors.Is(err, coord.ErrClosed) {
		t.Errorf("closed: %v", err)
	}
}

// The errors that are not returned have the texts of the library's, for code that names them.
func TestErrNodeTaken(t *testing.T) {
	want, got := real.ErrNodeTaken{Node: 3}, redsync.ErrNodeTaken{Node: 3}
	if got.Error() != want.Error() {
		t.Errorf("got %q, want %q", got.Error(), want.Error())
	}
}

func ExampleNew() {
	sell := func(locks *coord.Coordinator, sku string) error {
		mutex := redsync.New(locks).NewMutex("sku/"+sku, redsync.WithTries(20))
		if err := mutex.Lock(); err != nil {
			return err
		}
		defer mutex.Unlock()
		return nil
	}
	_ = sell
}
