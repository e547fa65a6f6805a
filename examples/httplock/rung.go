package main

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback/redisarbiter"
	"github.com/holdfast-go/holdfast/gossip"
	"github.com/holdfast-go/holdfast/middleware"
)

// A rung is one way to lock the service's orders. To add one, add a row to rungs.
type rung struct {
	name   string // for -rungs
	title  string // for the table
	locked bool   // no update may be lost
	fenced bool   // its tokens rise: the store checks them
	hidden bool   // for tests: it breaks the rules
	open   func(client redis.UniversalClient, o order, url string) (*guard, error)
}

// A guard is a rung in one process.
type guard struct {
	around func(http.Handler) http.Handler // the middleware
	locks  *coord.Coordinator              // nil on rungs without Holdfast
	close  func(ctx context.Context) error // after the last request
}

func nothingToClose(context.Context) error { return nil }

var rungs = []rung{
	{
		name:  "none",
		title: "no lock",
		open: func(redis.UniversalClient, order, string) (*guard, error) {
			return &guard{around: func(next http.Handler) http.Handler { return next }, close: nothingToClose}, nil
		},
	},
	{
		name:   "setnx",
		title:  "SET NX PX, polled",
		locked: true,
		open: func(client redis.UniversalClient, o order, _ string) (*guard, error) {
			s := &setnx{client: client, prefix: o.Namespace, ttl: lockTTL, wait: lockWait}
			return &guard{around: s.around, close: nothingToClose}, nil
		},
	},
	{
		name:   "serialize",
		title:  "Serialize, no cluster",
		locked: true,
		fenced: true,
		open: func(client redis.UniversalClient, o order, _ string) (*guard, error) {
			// The requests of a process queue in it, and take turns under a lock that Redis grants
			// to the process.
			return withHoldfast(client, o, nil, serialize)
		},
	},
	{
		name:   "cluster",
		title:  "Serialize, cluster",
		locked: true,
		fenced: true,
		open: func(client redis.UniversalClient, o order, url string) (*guard, error) {
			// The processes share out the orders, and each grants the locks of its own from memory,
			// to the others too.
			return withHoldfast(client, o, clusterOf(url), serialize)
		},
	},
	{
		name:   "route",
		title:  "Route and Serialize",
		locked: true,
		fenced: true,
		open: func(client redis.UniversalClient, o order, url string) (*guard, error) {
			// A request goes on to the process that owns its order. The lock there is a local
			// mutex.
			return withHoldfast(client, o, clusterOf(url), routeAndSerialize)
		},
	},
	{
		name:   "leaky",
		title:  "a lock that forgets a method",
		locked: true,
		hidden: true,
		open: func(client redis.UniversalClient, o order, _ string) (*guard, error) {
			return withHoldfast(client, o, nil, func(c *coord.Coordinator, o order) (func(http.Handler) http.Handler, func()) {
				return middleware.Serialize(c, byOrder, &middleware.Options{Methods: []string{http.MethodPut}}), func() {}
			})
		},
	},
	{
		name:   "tokenless",
		title:  "a lock without tokens",
		locked: true,
		fenced: true,
		hidden: true,
		open: func(client redis.UniversalClient, o order, url string) (*guard, error) {
			s := &setnx{client: client, prefix: o.Namespace, ttl: lockTTL, wait: lockWait}
			return &guard{around: s.around, close: nothingToClose}, nil
		},
	},
}

// byOrder names the order that a request is about: "order/7".
var byOrder = middleware.Key("order", middleware.PathValue("id"))

// partitions are fewer than by default, because the embedded server is slow: it takes a millisecond
// for each.
const partitions = 127

// withHoldfast makes the parts that a service needs to use Holdfast: a coordinator, and a
// middleware around its handlers.
func withHoldfast(client redis.UniversalClient, o order, cluster *coord.Cluster,
	layers func(*coord.Coordinator, order) (around func(http.Handler) http.Handler, closeIdle func()),
) (*guard, error) {
	// The namespace is new in every run, so there is nothing that an empty server could have lost.
	arbiter := redisarbiter.New(client, &redisarbiter.Options{ColdStart: true})
	c, err := coord.New(context.Background(), arbiter, &coord.Options{
		Namespace: o.Namespace, Partitions: partitions, SessionTTL: lockTTL, Cluster: cluster,
	})
	if err != nil {
		return nil, err
	}
	around, closeIdle := layers(c, o)
	return &guard{around: around, locks: c, close: func(ctx context.Context) error {
		closeIdle()
		return c.Close(ctx)
	}}, nil
}

// clusterOf tells the other processes this one's URL.
func clusterOf(url string) *coord.Cluster {
	return &coord.Cluster{Membership: gossip.Start, Gossip: "127.0.0.1:0", Service: url}
}

func serialize(c *coord.Coordinator, o order) (around func(http.Handler) http.Handler, closeIdle func()) {
	// MaxWaiters is for an unknown number of clients. Here at most o.Clients wait.
	return middleware.Serialize(c, byOrder, &middleware.Options{Wait: lockWait, MaxWaiters: o.Clients}), func() {}
}

func routeAndSerialize(c *coord.Coordinator, o order) (around func(http.Handler) http.Handler, closeIdle func()) {
	transport := middleware.NewTransport()
	transport.MaxIdleConnsPerHost = o.Clients // that many requests may be on their way to one owner
	route := middleware.Route(c, byOrder, &middleware.RouteOptions{Transport: transport})
	inner, _ := serialize(c, o)
	return func(next http.Handler) http.Handler { return route(inner(next)) }, transport.CloseIdleConnections
}

// publicRungs is the default of -rungs.
func publicRungs() string {
	var names []string
	for _, r := range rungs {
		if !r.hidden {
			names = append(names, r.name)
		}
	}
	return strings.Join(names, ",")
}

// findRungs looks up a comma-separated list of names; each may be there once.
func findRungs(list string) ([]rung, error) {
	var found []rung
	for name := range strings.SplitSeq(list, ",") {
		same := func(r rung) bool { return r.name == strings.TrimSpace(name) }
		i := slices.IndexFunc(rungs, same)
		if i < 0 {
			return nil, fmt.Errorf("-rungs: no rung %q, only %s", strings.TrimSpace(name), publicRungs())
		}
		if slices.ContainsFunc(found, same) {
			return nil, fmt.Errorf("-rungs: %s is there twice", rungs[i].name)
		}
		found = append(found, rungs[i])
	}
	return found, nil
}
