package echotest

import (
	"net/http"

	"github.com/holdfast-go/holdfast/middleware/routertest"
)

// An Echo has the methods that the routers of both versions share. H is the type of their handlers,
// M that of their middlewares; G is a group, R a route and RS several.
type Echo[H, M, R, RS any, G Routes[H, M, RS]] interface {
	http.Handler
	Routes[H, M, RS]
	POST(path string, h H, mw ...M) R
	Group(prefix string, mw ...M) G
	Use(mw ...M)
}

// Routes has the methods that routers and groups share.
type Routes[H, M, RS any] interface {
	Match(methods []string, path string, h H, mw ...M) RS
}

// Mount mounts a handler as a service does.
func Mount[H, M, R, RS any, G Routes[H, M, RS], E Echo[H, M, R, RS, G]](e E, where routertest.Where, h H, mw ...M) http.Handler {
	methods := []string{http.MethodGet, http.MethodPost}
	switch where {
	case routertest.Route:
		e.Match(methods, "/orders/:id", h, mw...)
	case routertest.Group:
		e.Group("/orders", mw...).Match(methods, "/:id", h)
	case routertest.All:
		e.Use(mw...)
		e.Match(methods, "/orders/:id", h)
	}
	return e
}

// Bypasses are the ways past the adapter: wrap is echo.WrapMiddleware.
func Bypasses[H, M, R, RS any, G Routes[H, M, RS], E Echo[H, M, R, RS, G]](
	newEcho func() E, wrap func(func(http.Handler) http.Handler) M,
) map[string]func(H, routertest.Middleware) http.Handler {
	mount := func(h H, mw ...M) http.Handler {
		e := newEcho()
		e.POST("/orders/:id", h, mw...)
		return e
	}
	return map[string]func(H, routertest.Middleware) http.Handler{
		"echo.WrapMiddleware": func(h H, mw routertest.Middleware) http.Handler { return mount(h, wrap(mw)) },
		"around the Echo":     func(h H, mw routertest.Middleware) http.Handler { return mw(mount(h)) },
	}
}
