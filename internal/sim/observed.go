package sim

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/fallback"
)

// A book is a server that keeps records, with a clock that tells nothing. Processes are observers:
// see docs/protocol.md, A store without a clock.
type book struct {
	name    string
	ahead   time.Duration // by how much its clock is
	records map[string]fallback.Versioned
}

func (b *book) copied() *book { return &book{b.name, b.ahead, maps.Clone(b.records)} }

// books are the server, and the one before, for nodes that still believe in it.
type books struct {
	mu       sync.Mutex // protects the fields below
	now, old *book
	servers  int
	writes   int
}

func newBooks() *books {
	return &books{now: &book{name: "book 0", records: make(map[string]fallback.Versioned)}}
}

// copied returns the data of a replica that stops following now.
func (b *books) copied() *book {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.now.copied()
}

// failover makes it another server, with the data given; with none for nil.
func (b *books) failover(to *book) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.old = b.now
	b.servers++
	b.now = &book{name: fmt.Sprint("book ", b.servers), records: make(map[string]fallback.Versioned)}
	if to != nil {
		b.now.records = maps.Clone(to.records)
	}
}

// failoverBook is failover of a server with observers.
func (s *server) failoverBook(to *book) {
	s.swap.Lock()
	defer s.swap.Unlock()
	s.before, s.since = s.since, time.Now()
	s.books.failover(to)
	s.books.now.ahead = s.next
	s.another()
}

// A view is the store as a process sees it, or the judge.
type view struct {
	s *server
	c *client // nil: the judge
}

// executed is the time of a call's last execution, and its server.
type executed struct {
	at, since time.Time // since: when that became the server
	old       bool      // it is the one before
}

type executedKey struct{}

// observedIn returns a context in which an executed is told.
func observedIn(ctx context.Context) context.Context {
	return context.WithValue(ctx, executedKey{}, &executed{})
}

func executedIn(ctx context.Context) *executed {
	e, _ := ctx.Value(executedKey{}).(*executed)
	return e
}

// orOld returns e.old for a call with observers, else old.
func (e *executed) orOld(old bool) bool {
	if e == nil {
		return old
	}
	return e.old
}

// at returns the server that the process believes in.
func (v view) at(ctx context.Context) *book {
	b, e := v.s.books.now, executed{at: time.Now(), since: v.s.since}
	if v.c != nil {
		v.c.mu.Lock()
		e.old = v.c.weather.deposed && v.s.books.old != nil
		v.c.mu.Unlock()
	}
	if e.old {
		b, e.since = v.s.books.old, v.s.before
	}
	if x := executedIn(ctx); x != nil {
		*x = e
	}
	return b
}

func (v view) Open(context.Context) error { return nil }
func (v view) Close() error               { return nil }

func (v view) Load(ctx context.Context, keys []string) (fallback.Look, error) {
	v.s.swap.RLock()
	defer v.s.swap.RUnlock()
	v.s.books.mu.Lock()
	defer v.s.books.mu.Unlock()
	b := v.at(ctx)
	v.s.mu.Lock()
	steps := time.Duration(v.s.rng.Int64N(int64(2*time.Hour))) - time.Hour
	v.s.mu.Unlock()
	look := fallback.Look{Now: time.Now().Add(b.ahead + steps).UnixMilli(), Server: b.name}
	for _, k := range keys {
		look.Values = append(look.Values, b.records[k])
	}
	return look, nil
}

// Swap comes some time after Load, rarely much later.
func (v view) Swap(ctx context.Context, server string, changes []fallback.Change) ([]bool, error) {
	if v.c != nil {
		v.s.mu.Lock()
		late := usual
		if v.s.rng.IntN(20) == 0 {
			late = v.c.w.t(3 * time.Second)
		}
		late = latency(v.s.rng, late)
		v.s.mu.Unlock()
		time.Sleep(late)
	}
	v.s.swap.RLock()
	defer v.s.swap.RUnlock()
	v.s.books.mu.Lock()
	defer v.s.books.mu.Unlock()
	b := v.at(ctx)
	done := make([]bool, len(changes))
	for i, c := range changes {
		if done[i] = server == b.name && b.records[c.Key].Version == c.Version; done[i] {
			v.s.books.writes++
			b.records[c.Key] = fallback.Versioned{Version: fmt.Sprint(v.s.books.writes), Value: c.Value}
		}
	}
	return done, nil
}

// observe attaches a process, or the judge, to a server with observers.
func (s *server) observe(ctx context.Context, c *client, settings fallback.Settings, isNew bool) (fallback.Namespace, error) {
	return fallback.NewRecords(view{s, c}, &fallback.RecordsOptions{NoClock: true, ColdStart: isNew}).Attach(ctx, settings)
}
