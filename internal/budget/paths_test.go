package budget

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/handoff"
	"github.com/holdfast-go/holdfast/middleware"
	"github.com/holdfast-go/holdfast/peer"
	"github.com/holdfast-go/holdfast/ring"
	"github.com/holdfast-go/holdfast/singleflight"
)

// path is a hot path: work for each lock, or for each request, and not once in a while.
type path struct {
	name string
	// turns is how many operations a call of the function is that setup returns: 1 if it is 0.
	turns int
	// calls is how many calls of a round are stepped through: 8 if it is 0. An unlock in 64 of an
	// owner's takes a longer way.
	calls int
	setup func(t testing.TB) func()
}

func (p path) each() int { return max(p.turns, 1) }

const contenders = 16 // more make a turn no dearer, only the counting

// paths are all of them, from the lowest rung to the highest.
var paths = []path{
	{name: "handoff/grant", setup: func(testing.TB) func() {
		q, w := new(handoff.Queue[int]), new(handoff.Waiter[int])
		const now = time.Hour
		return func() {
			q.Join(w)
			q.Take(1, 1, false, now)
			q.Done(now, handoff.Limits{})
		}
	}},
	{name: "handoff/handover", setup: func(testing.TB) func() {
		q := new(handoff.Queue[int])
		const now = time.Hour
		q.Join(new(handoff.Waiter[int]))
		q.Join(new(handoff.Waiter[int]))
		w := q.Take(1, 1<<62, false, now)
		return func() {
			q.Join(w)
			w, _ = q.Done(now, handoff.Limits{})
		}
	}},
	{name: "singleflight/do", setup: func(t testing.TB) func() {
		g, ctx := new(singleflight.Group[string, int]), t.Context()
		one := func(context.Context) (int, error) { return 1, nil }
		return func() { _, _, _ = g.Do(ctx, "key", one) }
	}},
	{name: "singleflight/join", setup: func(t testing.TB) func() {
		g, ctx := new(singleflight.Group[string, int]), t.Context()
		wait := func(ctx context.Context) (int, error) { <-ctx.Done(); return 0, ctx.Err() }
		first := g.Join(ctx, "key", wait)
		t.Cleanup(func() { first.Leave(); <-first.Done() })
		return func() { g.Join(ctx, "key", wait).Leave() }
	}},
	{name: "ring/owner", setup: func(t testing.TB) func() {
		p, err := ring.Place(strings.Fields("a b c d e f g h"), 1021)
		if err != nil {
			t.Fatal(err)
		}
		i := uint32(0)
		return func() { p.Owner(i % 1021); i++ }
	}},
	{name: "peer/encode", setup: func(testing.TB) func() {
		f, b := request(), make([]byte, 0, 128)
		return func() { b = peer.AppendFrame(b[:0], f) }
	}},
	{name: "peer/decode", setup: func(t testing.TB) func() {
		b, f := peer.AppendFrame(nil, request()), new(peer.Frame)
		return func() {
			if err := f.Decode(b); err != nil {
				t.Error(err)
			}
		}
	}},
	{name: "peer/roundtrip", setup: roundTrip},
	{name: "coord/own/lock", calls: 64, setup: func(t testing.TB) func() { return pair(t, nodes(t, 1, nil)[0], "order-4711") }},
	{name: "coord/own/lock/watched", calls: 64, setup: func(t testing.TB) func() { // as with metrics/prometheus, or metrics/otel
		return pair(t, nodes(t, 1, watch)[0], "order-4711")
	}},
	{name: "coord/own/fresh", calls: 16, setup: func(t testing.TB) func() {
		c, ctx := nodes(t, 1, nil)[0], t.Context()
		keys := make([]string, 1<<14)
		for i := range keys {
			keys[i] = "order-" + strconv.Itoa(i)
		}
		i := 0
		return func() { unlock(t)(c.Lock(ctx, keys[i%len(keys)])); i++ }
	}},
	{name: "coord/own/trylock", calls: 64, setup: func(t testing.TB) func() {
		c, ctx := nodes(t, 1, nil)[0], t.Context()
		return func() { unlock(t)(c.TryLock(ctx, "order-4711")) }
	}},
	{name: "coord/own/rlock", calls: 64, setup: func(t testing.TB) func() { return read(t, nodes(t, 1, nil)[0], "order-4711") }},
	{name: "coord/permits", calls: 64, setup: func(t testing.TB) func() {
		s, ctx := alone(t, nil).Semaphore("order-4711", 1000), t.Context()
		return func() {
			p, err := s.Acquire(ctx, 1)
			if err != nil {
				t.Error(err)
				return
			}
			if err := p.Release(); err != nil {
				t.Error(err)
			}
		}
	}},
	{name: "coord/own/context", calls: 1, setup: func(t testing.TB) func() {
		c, ctx := nodes(t, 1, nil)[0], t.Context()
		return func() {
			l, err := c.Lock(ctx, "order-4711")
			if err != nil || l.Context() == nil {
				t.Error(err)
			}
			unlock(t)(l, err)
		}
	}},
	{name: "coord/own/do", calls: 1, setup: func(t testing.TB) func() {
		return do(t, func(context.Context, coord.Lock) error { return nil })
	}},
	{name: "coord/own/do/err", calls: 1, setup: func(t testing.TB) func() {
		return do(t, func(ctx context.Context, _ coord.Lock) error { return ctx.Err() })
	}},
	{name: "coord/own/do/done", calls: 1, setup: func(t testing.TB) func() {
		return do(t, func(ctx context.Context, _ coord.Lock) error { _ = ctx.Done(); return nil })
	}},
	{name: "coord/own/handover", turns: contenders, calls: 1, setup: func(t testing.TB) func() {
		return contended(t, nodes(t, 1, nil)[0], "order-4711")
	}},
	{name: "coord/delegated/lock", setup: func(t testing.TB) func() {
		c := nodes(t, 2, nil)
		return pair(t, c[0], theirs(t, c[0]))
	}},
	{name: "coord/delegated/rlock", calls: 64, setup: func(t testing.TB) func() {
		c := nodes(t, 2, nil)
		return read(t, c[0], theirs(t, c[0]))
	}},
	{name: "coord/forwarded/lock", calls: 2, setup: func(t testing.TB) func() {
		c := nodes(t, 2, func(o *coord.Options) { o.Handoff.Linger = -1 })
		return pair(t, c[0], theirs(t, c[0]))
	}},
	{name: "coord/arbiter/turn", setup: func(t testing.TB) func() { return pair(t, alone(t, nil), "order-4711") }},
	{name: "coord/arbiter/lock", calls: 2, setup: func(t testing.TB) func() {
		return pair(t, alone(t, func(o *coord.Options) { o.Handoff.Linger = -1 }), "order-4711")
	}},
	{name: "coord/share/hit", calls: 2, setup: func(t testing.TB) func() {
		c, ctx := alone(t, nil), t.Context()
		o := &coord.ShareOptions[string]{TTL: time.Hour}
		f := func(context.Context, coord.Fence) (string, error) { return "value", nil }
		return func() {
			if _, err := coord.Share(ctx, c, "order-4711", o, f); err != nil {
				t.Error(err)
			}
		}
	}},
	{name: "middleware/serialize", calls: 1, setup: func(t testing.TB) func() {
		h := middleware.Serialize(nodes(t, 1, nil)[0], middleware.Key("order", middleware.PathValue("id")), nil)(nothing)
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/orders/42", http.NoBody)
		r.SetPathValue("id", "42")
		w := blank{http.Header{}}
		return func() { h.ServeHTTP(w, r) }
	}},
	{name: "middleware/route/local", setup: func(t testing.TB) func() {
		h := middleware.Route(nodes(t, 1, nil)[0], middleware.Key("order", middleware.PathValue("id")), nil)(nothing)
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/orders/42", http.NoBody)
		r.SetPathValue("id", "42")
		w := blank{http.Header{}}
		return func() { h.ServeHTTP(w, r) }
	}},
	{name: "middleware/route/forward", calls: 1, setup: func(t testing.TB) func() {
		c := nodes(t, 2, func(o *coord.Options) { o.Cluster.Service = "http://192.0.2.1:1" })
		key := middleware.Key("order", middleware.Header("Order"))
		marked := 0 // requests that the owner takes for another node's
		owner := middleware.Route(c[1], key, nil)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			marked += len(r.Header[middleware.HopHeader])
			nothing(w, r)
		}))
		h := middleware.Route(c[0], key, &middleware.RouteOptions{Transport: calls{owner}})(nothing)
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/orders", http.NoBody)
		for i := 0; r.Header.Get("Order") == ""; i++ {
			if n, ok := c[0].Owner(middleware.JoinKey("order", fmt.Sprint(i))); ok && !n.Self {
				r.Header.Set("Order", fmt.Sprint(i))
			}
		}
		return func() {
			before := marked
			h.ServeHTTP(blank{http.Header{}}, r)
			if marked != before+1 {
				t.Error("the request was not forwarded")
			}
		}
	}},
	{name: "middleware/idempotent/replay", calls: 2, setup: func(t testing.TB) func() {
		h := middleware.Idempotent(alone(t, nil), middleware.NewMemoryStore(nil), middleware.Unscoped, nil)(nothing)
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/orders", http.NoBody)
		r.Header.Set("Idempotency-Key", "4711")
		w := blank{http.Header{}}
		return func() { h.ServeHTTP(w, r) }
	}},
}

// blank is a ResponseWriter that costs nothing.
type blank struct{ h http.Header }

func (b blank) Header() http.Header         { return b.h }
func (b blank) WriteHeader(int)             {}
func (b blank) Write(p []byte) (int, error) { return len(p), nil }

var nothing = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })

// calls is the way to another node without a network.
type calls struct{ owner http.Handler }

func (c calls) RoundTrip(r *http.Request) (*http.Response, error) {
	r.RequestURI = r.URL.Path
	c.owner.ServeHTTP(blank{http.Header{}}, r)
	return &http.Response{StatusCode: http.StatusNoContent, Header: http.Header{}, Body: http.NoBody, Request: r}, nil
}

// pair locks and unlocks a key.
func pair(t testing.TB, c *coord.Coordinator, key string) func() {
	ctx := t.Context()
	return func() { unlock(t)(c.Lock(ctx, key)) }
}

// do calls a function with a key of the node's own locked.
func do(t testing.TB, f func(context.Context, coord.Lock) error) func() {
	c, ctx := nodes(t, 1, nil)[0], t.Context()
	return func() {
		if err := c.Do(ctx, "order-4711", f); err != nil {
			t.Error(err)
		}
	}
}

// read locks and unlocks a key for reading.
func read(t testing.TB, c *coord.Coordinator, key string) func() {
	ctx := t.Context()
	return func() {
		l, err := c.RLock(ctx, key)
		if err == nil {
			err = l.Unlock()
		}
		if err != nil {
			t.Error(err)
		}
	}
}

// unlock ends a lock if there is one.
func unlock(t testing.TB) func(coord.Lock, error) {
	return func(l coord.Lock, err error) {
		if err == nil {
			err = l.Unlock()
		}
		if err != nil && !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}
}

// contended locks a key that others want all the time, so that all of them have it once per call.
func contended(t testing.TB, c *coord.Coordinator, key string) func() {
	ctx, end := context.WithCancel(t.Context())
	done := make(chan struct{})
	for range contenders - 1 {
		go func() {
			for ctx.Err() == nil {
				unlock(t)(c.Lock(ctx, key))
			}
			done <- struct{}{}
		}()
	}
	t.Cleanup(func() {
		end()
		for range contenders - 1 {
			<-done
		}
	})
	return pair(t, c, key)
}

// theirs returns a key that another node owns.
func theirs(t testing.TB, c *coord.Coordinator) string {
	for i := range 1000 {
		key := fmt.Sprint("order-", i)
		if n, ok := c.Owner(key); ok && !n.Self {
			return key
		}
	}
	t.Fatal("all keys are this node's")
	return ""
}

// request is a frame as for a lock.
func request() *peer.Frame {
	return &peer.Frame{Kind: peer.Request, Partition: 17, Request: 1 << 30, Session: []byte("0123456789"), Key: []byte("order-4711")}
}
