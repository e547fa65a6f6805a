package fallback

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestRecords_ASlowStoreIsAdvisedALongerSession(t *testing.T) {
	const lease = 11 * time.Second
	var x slowness
	for range 100 {
		x.note(50 * time.Millisecond)
	}
	for range 6 { // of the last 64
		x.note(5 * time.Second)
	}
	if all := x.advice(lease); len(all) > 0 {
		t.Errorf("few calls are slow: %v", all)
	}
	for range 10 {
		x.note(600 * time.Millisecond)
	}
	if all := x.advice(lease); len(all) != 1 || !strings.Contains(all[0], "600ms") || !strings.Contains(all[0], "SessionTTL to 20s") {
		t.Errorf("many calls are slow: %v", all)
	}
	for _, long := range []time.Duration{0, 22 * time.Second} {
		if all := x.advice(long); len(all) > 0 {
			t.Errorf("with SessionTTL + Margin of %v: %v", long, all)
		}
	}
	var fresh slowness
	fresh.note(time.Hour)
	if all := fresh.advice(lease); len(all) > 0 {
		t.Errorf("of one call: %v", all)
	}
}

// A lateStore answers after a while, and has nothing.
type lateStore struct {
	Records
	late time.Duration
}

func (lateStore) Open(context.Context) error { return nil }
func (lateStore) Close() error               { return nil }

func (s lateStore) Load(_ context.Context, keys []string) (Look, error) {
	time.Sleep(s.late)
	return Look{Server: "s", Values: make([]Versioned, len(keys))}, nil
}

func (s lateStore) Swap(_ context.Context, _ string, changes []Change) ([]bool, error) {
	time.Sleep(s.late)
	return nil, errors.New("it is lost")
}

func TestRecords_CallsOfASlowStoreAreTimed(t *testing.T) {
	for _, slow := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			n := &recordsSpace{store: lateStore{late: time.Second}, settings: Settings{Namespace: "ns", Partitions: 4, Lease: 11 * time.Second},
				opts: RecordsOptions{Durable: true, Slow: slow}}
			for range 10 {
				_ = n.on(t.Context(), 0, func(Moment, *Partition, Sender) {})
			}
			all, err := n.Advise(t.Context())
			if err != nil || (len(all) == 1) != slow {
				t.Errorf("Slow %t: %v, %v", slow, all, err)
			}
		})
	}
}

func TestRecords_AStoreMayWantALongSession(t *testing.T) {
	a := NewRecords(lateStore{}, &RecordsOptions{MinLease: 22 * time.Second, Durable: true})
	s := Settings{Namespace: "ns", Partitions: 4, Grace: 12 * time.Second, Lease: 11 * time.Second}
	if _, err := a.Attach(t.Context(), s); !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), "SessionTTL") {
		t.Errorf("with SessionTTL + Margin of %v: %v", s.Lease, err)
	}
	for _, lease := range []time.Duration{0, 22 * time.Second} {
		s.Lease, s.Grace = lease, 30*time.Second
		if _, err := a.Attach(t.Context(), s); err == nil || errors.Is(err, ErrRefused) {
			t.Errorf("with SessionTTL + Margin of %v: %v, want the store's error", lease, err)
		}
	}
}
