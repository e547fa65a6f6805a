//go:build unix

package storetest

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
)

// To connects to a server.
type To = func(ctx context.Context) (net.Conn, error)

// A Route leads a process to one of several servers.
type Route struct {
	mu    sync.Mutex // protects the fields below
	to    To
	conns []net.Conn
}

// Dial is the dial function for a client library. It ignores the address.
func (r *Route) Dial(ctx context.Context, _, _ string) (net.Conn, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	conn, err := r.to(ctx)
	if err == nil {
		r.conns = append(r.conns, conn)
	}
	return conn, err
}

// lead leads the process to another server. Its connections break.
func (r *Route) lead(to To) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.conns {
		_ = c.Close()
	}
	r.to, r.conns = to, nil
}

// nowhere leads to no server.
func nowhere(context.Context) (net.Conn, error) { return nil, net.ErrClosed }

// BesideADeposed has three coordinators lock keys while a replica that lacks the last changes is
// promoted, and the server before goes on: one of the coordinators still uses that one, until it is
// killed. That is within Margin, and within Grace - SessionTTL - Margin. A fourth one holds a lock
// of the server before for as long as its session lasts without one, and a fifth one wants it. save
// makes the replica. promote promotes it, and returns the way to it, and a function that kills the
// server before.
func BesideADeposed(t *testing.T, first To, open func(*Route) fallback.Arbiter, save func(), promote func() (to To, kill func())) {
	t.Helper()
	const margin, beside = 3 * time.Second, time.Second
	opts := coord.Options{SessionTTL: 9 * time.Second, Margin: margin, Grace: 15 * time.Second, RenewEvery: 1500 * time.Millisecond}
	var routes []*Route
	start := func() fallback.Arbiter {
		r := &Route{to: first}
		routes = append(routes, r)
		return open(r)
	}
	holder, other := joined(t, start(), opts), joined(t, start(), opts)
	injuries := make([]func(), 0, 6)
	for i := range 3 {
		injuries = append(injuries, save, func() {
			_ = lock(t, holder, "warm").Unlock() // it has a session then
			to, kill := promote()
			began := time.Now()
			stays := 2 + i // of the routes
			for n, r := range routes[1:] {
				if n+1 != stays {
					r.lead(to)
				}
			}
			held := lock(t, holder, "long")
			time.Sleep(time.Until(began.Add(beside)))
			kill()
			if late := time.Since(began); late > margin {
				t.Skipf("the server before was killed after %v, and may answer for %v", late, margin)
			}
			routes[0].lead(nowhere)
			routes[stays].lead(to)
			next := lock(t, other, "long")
			if held.Context().Err() == nil {
				t.Errorf("round %d: two holders, with the tokens %d and %d", i, held.Fence(), next.Fence())
			}
			if next.Fence() <= held.Fence() {
				t.Errorf("round %d: token %d after %d", i, next.Fence(), held.Fence())
			}
			_, _ = next.Unlock(), held.Unlock() // the latter is lost
			routes[0].lead(to)
		})
	}
	NoTwoHoldersWith(t, opts, start, injuries...)
}

// joined is a coordinator beside the judge's, which the end of the test closes.
func joined(t *testing.T, a fallback.Arbiter, opts coord.Options) *coord.Coordinator {
	t.Helper()
	c, err := Join(t, a, judged(opts))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		end, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		_ = c.Close(end) // a hold that was lost is an error there
	})
	return c
}

func lock(t *testing.T, c *coord.Coordinator, key string) coord.Lock {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	l, err := c.Lock(ctx, key)
	if err != nil {
		t.Fatal(err)
	}
	return l
}
