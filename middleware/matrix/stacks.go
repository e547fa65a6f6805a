package main

import (
	"net/http"
	"slices"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/middleware"
)

// A stack is the middlewares around a handler. "bare" is none, and the others are compared with it.
type stack struct {
	name string
	mw   func(http.Handler) http.Handler
}

var stackNames = []string{"bare", "Serialize", "Route", "Coalesce", "Idempotent", "all"}

var byOrder = middleware.Key("order", middleware.Header("Order"))

var methods = []string{http.MethodGet, http.MethodHead, http.MethodPost}

func stacks(c *coord.Coordinator, p *pair, ts *trials) []stack {
	// With read-ahead, handlers that talk both ways run after 2 s.
	serialize := middleware.Serialize(c, byOrder, &middleware.SerializeOptions{Methods: methods, ReadAhead: -1})
	route := middleware.Route(c, byOrder, &middleware.RouteOptions{Transport: p.hop, URL: p.url})
	coalesce := ts.joining(middleware.Coalesce(nil, byOrder, nil))
	idempotent := middleware.Idempotent(c, middleware.NewMemoryStore(nil), middleware.Unscoped, &middleware.IdempotentOptions{
		Methods: methods, MaxRequest: 8 << 20,
	})
	same := func(h http.Handler) http.Handler { return h }
	all := func(h http.Handler) http.Handler { return route(coalesce(idempotent(serialize(h)))) }
	return []stack{{"bare", same}, {"Serialize", serialize}, {"Route", route}, {"Coalesce", coalesce}, {"Idempotent", idempotent}, {"all", all}}
}

// keeps reports whether the stack keeps answers by their idempotency key.
func keeps(name string) bool { return slices.Contains([]string{"Idempotent", "all"}, name) }

// joins reports whether the stack lets reads share a run.
func joins(name string) bool { return slices.Contains([]string{"Coalesce", "all"}, name) }

// serializes reports whether the stack runs the handler under the key's lock.
func serializes(name string) bool { return slices.Contains([]string{"Serialize", "all"}, name) }

// forwards reports whether the stack sends requests to the owner of their key.
func forwards(name string) bool { return slices.Contains([]string{"Route", "all"}, name) }
