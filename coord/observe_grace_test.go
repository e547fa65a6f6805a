package coord_test

import (
	"context"
	"crypto/tls"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/coordtest"
)

// On a store without results an observer is listed as a session. It takes a longer Grace over as
// nodes do, so that a process starts that needs one, and its own calls begin no shorter one.
func TestObserve_ALongerGraceWithoutResults(t *testing.T) {
	bubble(t, func(t *testing.T, _ *fallback.Memory) {
		store := new(coordtest.Store)
		a := fallback.NewRecords(store, &fallback.RecordsOptions{ColdStart: true})
		start(t, a, &coord.Options{Name: "anna"})
		op := start(t, a, &coord.Options{Name: "op", Observe: true})
		time.Sleep(time.Minute) // it renews
		start(t, a, &coord.Options{Name: "berta", SessionTTL: 20 * time.Second})
		if n := sessions(t, a); n != 3 {
			t.Errorf("%d sessions, want those of two nodes and the observer", n)
		}
		store.FailOver()
		beginsGraceOf(t, op, 24*time.Second) // that of berta
	})
}

// An observer that has stood still is no session any more, and a process has started meanwhile that
// needs a longer Grace: its calls begin no shorter one.
func TestObserve_ThatStoodStillTakesALongerGraceOver(t *testing.T) {
	bubble(t, func(t *testing.T, _ *fallback.Memory) {
		store := new(coordtest.Store)
		a := fallback.NewRecords(store, &fallback.RecordsOptions{ColdStart: true})
		start(t, a, &coord.Options{Name: "anna"})
		far := &farStore{Store: store}
		op := start(t, fallback.NewRecords(far, nil), &coord.Options{Name: "op", Observe: true})
		far.away.Store(true)
		time.Sleep(40 * time.Second)
		start(t, a, &coord.Options{Name: "berta", SessionTTL: 20 * time.Second})
		if n := sessions(t, a); n != 2 {
			t.Errorf("%d sessions, want those of the nodes", n)
		}
		store.FailOver()
		far.away.Store(false)
		beginsGraceOf(t, op, 24*time.Second) // that of berta
		if n := sessions(t, a); n != 3 {
			t.Errorf("%d sessions, want that of the observer as well", n)
		}
	})
}

// A node looks into no partition while its session is over, as the namespace may have a longer
// Grace by now.
func TestInspect_ThatStoodStillBeginsNoGrace(t *testing.T) {
	bubble(t, func(t *testing.T, _ *fallback.Memory) {
		store := new(coordtest.Store)
		a := fallback.NewRecords(store, &fallback.RecordsOptions{ColdStart: true})
		start(t, a, &coord.Options{Name: "anna"})
		far := &farStore{Store: store}
		clara := start(t, fallback.NewRecords(far, nil), &coord.Options{Name: "clara"})
		far.away.Store(true)
		time.Sleep(40 * time.Second)
		start(t, a, &coord.Options{Name: "berta", SessionTTL: 20 * time.Second})
		store.FailOver()
		far.away.Store(false)
		if _, err := clara.Inspect(t.Context(), "k"); !errors.Is(err, coord.ErrUnavailable) {
			t.Errorf("without a session: %v", err)
		}
		if _, err := clara.Partitions(t.Context()); !errors.Is(err, coord.ErrUnavailable) {
			t.Errorf("all, without a session: %v", err)
		}
	})
}

// Such an observer does not make the table of sessions anew where the server has lost it: nodes
// know the Grace for it.
func TestObserve_ThatStoodStillMakesNoTable(t *testing.T) {
	bubble(t, func(t *testing.T, _ *fallback.Memory) {
		store := new(coordtest.Store)
		a := fallback.NewRecords(store, &fallback.RecordsOptions{ColdStart: true})
		anna := start(t, a, &coord.Options{Name: "anna", SessionTTL: 20 * time.Second})
		far := &farStore{Store: store}
		op := start(t, fallback.NewRecords(far, nil), &coord.Options{Name: "op", Observe: true})
		far.away.Store(true)
		time.Sleep(40 * time.Second)
		if err := anna.Close(t.Context()); err != nil {
			t.Error(err)
		}
		store.Empty()
		far.away.Store(false)
		time.Sleep(time.Minute)
		if _, err := op.Processes(t.Context()); !errors.Is(err, coord.ErrUnavailable) {
			t.Error(err)
		}
		if _, err := op.Inspect(t.Context(), "k"); !errors.Is(err, fallback.ErrNoNamespace) {
			t.Error(err)
		}
		if err := op.RotateSecret(t.Context()); !errors.Is(err, fallback.ErrNoNamespace) {
			t.Error(err)
		}
		if err := op.Close(t.Context()); err != nil {
			t.Error(err)
		}
		if n := len(store.Sizes()); n > 0 {
			t.Errorf("the observer has made %d records", n)
		}
	})
}

// Nor does one that sees only after another failed call that the table may be lost.
func TestObserve_AFailedLookMakesNoTable(t *testing.T) {
	bubble(t, func(t *testing.T, _ *fallback.Memory) {
		store := new(coordtest.Store)
		a := fallback.NewRecords(store, &fallback.RecordsOptions{ColdStart: true})
		anna := start(t, a, &coord.Options{Name: "anna"})
		far := &farStore{Store: store}
		op := start(t, fallback.NewRecords(far, nil), &coord.Options{Name: "op", Observe: true})
		far.away.Store(true)
		time.Sleep(20 * time.Second)
		if err := anna.Close(t.Context()); err != nil {
			t.Error(err)
		}
		store.Empty()
		far.fails.Store(1)
		far.away.Store(false)
		time.Sleep(time.Minute)
		if err := op.Close(t.Context()); err != nil {
			t.Error(err)
		}
		if n := len(store.Sizes()); n > 0 || far.fails.Load() > 0 {
			t.Errorf("the observer has made %d records, %d calls are still to fail", n, far.fails.Load())
		}
	})
}

// farStore is a store that is away at times, or fails some calls.
type farStore struct {
	*coordtest.Store
	away  atomic.Bool
	fails atomic.Int32 // so many calls
}

func (s *farStore) Load(ctx context.Context, keys []string) (fallback.Look, error) {
	if n := s.fails.Load(); s.away.Load() || n > 0 && s.fails.CompareAndSwap(n, n-1) {
		return fallback.Look{}, errors.New("away")
	}
	return s.Store.Load(ctx, keys)
}

// An observer needs no Grace of its own: that of nodes is shorter again when none needs a longer
// one.
func TestObserve_NeedsNoGrace(t *testing.T) {
	bubble(t, func(t *testing.T, _ *fallback.Memory) {
		a := fallback.NewRecords(new(coordtest.Store), &fallback.RecordsOptions{ColdStart: true})
		start(t, a, &coord.Options{Name: "anna"})
		berta := start(t, a, &coord.Options{Name: "berta", SessionTTL: 20 * time.Second})
		start(t, a, &coord.Options{Name: "op", Observe: true})
		start(t, a, &coord.Options{Name: "page", Observe: true})
		if err := berta.Close(t.Context()); err != nil {
			t.Error(err)
		}
		time.Sleep(2 * time.Minute)
		found, err := a.(fallback.Describer).Describe(t.Context(), "holdfast")
		if err != nil || found.Grace != 12*time.Second {
			t.Errorf("Grace is %v, %v, want that of anna", found.Grace, err)
		}
	})
}

// An observer does not wait for sessions that use a shorter Grace than the longest that one needs.
func TestObserve_StartsBesideAShorterGrace(t *testing.T) {
	bubble(t, func(t *testing.T, _ *fallback.Memory) {
		a := fallback.NewRecords(new(coordtest.Store), &fallback.RecordsOptions{ColdStart: true})
		start(t, a, &coord.Options{Name: "anna"})
		process := func(grace time.Duration) fallback.Namespace {
			ns, err := a.Attach(t.Context(), fallback.Settings{Namespace: "holdfast", Partitions: 61, Grace: grace, Lease: grace - time.Second})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = ns.Close() })
			return ns
		}
		for range 2 { // anna is not asked to renew
			if _, err := process(24*time.Second).Open(t.Context(), "young", fallback.Registration{TTL: time.Minute}); !errors.Is(err, fallback.ErrWait) {
				t.Fatal(err)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		op, err := coord.New(ctx, a, withFew(&coord.Options{Name: "op", Observe: true}))
		if err != nil {
			t.Fatal(err)
		}
		if err := op.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// A crashed observer is in the way of a process that needs a longer Grace for no longer than a
// crashed node.
func TestObserve_ThatCrashedIsListedAsLongAsANode(t *testing.T) {
	bubble(t, func(t *testing.T, _ *fallback.Memory) {
		store := new(coordtest.Store)
		a := fallback.NewRecords(store, &fallback.RecordsOptions{ColdStart: true})
		start(t, a, &coord.Options{Name: "anna"})
		far := &farStore{Store: store}
		start(t, fallback.NewRecords(far, nil), &coord.Options{Name: "op", Observe: true})
		far.away.Store(true)
		time.Sleep(11 * time.Second) // SessionTTL + Margin
		if n := sessions(t, a); n != 1 {
			t.Errorf("%d sessions, want that of the node", n)
		}
	})
}

// An observer whose streams cannot start leaves nothing at the arbiter.
func TestObserve_ThatDoesNotStartIsNotListed(t *testing.T) {
	bubble(t, func(t *testing.T, _ *fallback.Memory) {
		a := fallback.NewRecords(new(coordtest.Store), &fallback.RecordsOptions{ColdStart: true})
		start(t, a, &coord.Options{Name: "anna"})
		old := &coord.Cluster{PeerTLS: &tls.Config{MaxVersion: tls.VersionTLS12}}
		if _, err := coord.New(t.Context(), a, withFew(&coord.Options{Name: "op", Observe: true, Cluster: old})); err == nil || errors.Is(err, coord.ErrUnavailable) {
			t.Fatal(err)
		}
		if n := sessions(t, a); n != 1 {
			t.Errorf("%d sessions, want that of the node", n)
		}
	})
}

// An observer that starts while others take a longer Grace over waits for them, as nodes do.
func TestObserve_StartsWhileGraceIsMadeLonger(t *testing.T) {
	bubble(t, func(t *testing.T, _ *fallback.Memory) {
		a := fallback.NewRecords(new(coordtest.Store), &fallback.RecordsOptions{ColdStart: true})
		start(t, a, &coord.Options{Name: "anna"})
		begun := make(chan *coord.Coordinator, 1)
		go func() {
			c, err := coord.New(context.Background(), a, withFew(&coord.Options{Name: "berta", SessionTTL: 20 * time.Second}))
			if err != nil {
				t.Error(err)
			}
			begun <- c
		}()
		time.Sleep(time.Millisecond) // berta has stated its need
		start(t, a, &coord.Options{Name: "op", Observe: true})
		if berta := <-begun; berta != nil {
			if err := berta.Close(context.Background()); err != nil {
				t.Error(err)
			}
		}
	})
}

// crowded is an arbiter that opens no session before a moment, as if its table were full until
// then.
type crowded struct {
	fallback.Arbiter
	opens time.Time
}

type crowdedSpace struct {
	fallback.Namespace
	a *crowded
}

func (a *crowded) Attach(ctx context.Context, s fallback.Settings) (fallback.Namespace, error) {
	n, err := a.Arbiter.Attach(ctx, s)
	return &crowdedSpace{n, a}, err
}

func (n *crowdedSpace) Open(ctx context.Context, id string, r fallback.Registration) (fallback.Renewal, error) {
	if time.Now().Before(n.a.opens) {
		return fallback.Renewal{}, fallback.ErrWait
	}
	return n.Namespace.Open(ctx, id, r)
}

// An observer waits as long as a node does until it is known which sessions of a full table are
// dead.
func TestObserve_WaitsForDeadSessions(t *testing.T) {
	bubble(t, func(t *testing.T, _ *fallback.Memory) {
		a := fallback.NewRecords(new(coordtest.Store), &fallback.RecordsOptions{ColdStart: true})
		start(t, a, &coord.Options{Name: "anna"})
		start(t, &crowded{a, time.Now().Add(13 * time.Second)}, &coord.Options{Name: "op", Observe: true})
		ctx, cancel := context.WithTimeout(t.Context(), 5500*time.Millisecond)
		defer cancel()
		began := time.Now()
		_, err := coord.New(ctx, &crowded{a, began.Add(13 * time.Second)}, withFew(&coord.Options{Name: "op", Observe: true}))
		if took := time.Since(began); !errors.Is(err, fallback.ErrWait) || took > 6*time.Second {
			t.Errorf("with a deadline: %v after %v", err, took)
		}
	})
}

// sessions returns how many the arbiter lists.
func sessions(t *testing.T, a fallback.Arbiter) int {
	t.Helper()
	found, err := a.(fallback.Describer).Describe(t.Context(), "holdfast")
	if err != nil {
		t.Fatal(err)
	}
	ns, err := a.Attach(t.Context(), found)
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Close()
	all, err := ns.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return len(all.Sessions)
}
