// Package holdecho mounts the middlewares of package [middleware], and others of net/http that hold
// answers back, in Echo:
//
//	e.POST("/orders/:id/payment", pay, holdecho.Use(route), holdecho.Use(idempotent), holdecho.Use(serialize))
//
// [echo.WrapMiddleware] does not serve for them: Echo writes the answer to an error that a handler
// has returned when all middlewares are over, so that they do not see it. Here the error handler
// runs where the handler does.
package holdecho

import (
	"bufio"
	"context"
	"net"
	"net/http"
	"reflect"

	"github.com/labstack/echo/v5"
)

// call is one request on its way through a middleware.
type call struct {
	c   *echo.Context
	err error // of the handler
}

type callKey struct{}

// Use makes a middleware of Echo of one of net/http, for a route, a group or all.
//
// The parameters of the route are path values of the request, as [middleware.PathValue] wants them.
// The handler's context is c.Request().Context(). An error that the handler returns is given to
// Echo.HTTPErrorHandler at once, and so the middleware sees its answer; it is returned as well, for
// middlewares around it that log errors. An error handler of your own has to leave a response alone
// that is Committed, as Echo wants anyway. A handler that returns nil and has written nothing has
// answered 200.
//
// The middleware has to call the handler in the goroutine in which it was called, as those of
// package middleware do.
func Use(mw func(http.Handler) http.Handler) echo.MiddlewareFunc {
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		h := mw(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			r.Context().Value(callKey{}).(*call).run(next, w, r)
		}))
		return func(c *echo.Context) error {
			x := &call{c: c}
			r := c.Request().WithContext(context.WithValue(c.Request().Context(), callKey{}, x))
			r.Pattern = c.Path()
			for _, p := range c.PathValues() {
				r.SetPathValue(p.Name, p.Value)
			}
			defer keepForm(c.Request(), r)
			h.ServeHTTP(c.Response(), r)
			return x.err
		}
	}
}

// From returns Echo's context of a request that a middleware in [Use] has got. A KeyFunc or a scope
// finds there the values that authentication keeps. ok is false outside of Use.
func From(r *http.Request) (c *echo.Context, ok bool) {
	x, ok := r.Context().Value(callKey{}).(*call)
	if !ok {
		return nil, false
	}
	return x.c, true
}

// run calls the handler with the middleware's response and request.
func (x *call) run(next echo.HandlerFunc, w http.ResponseWriter, r *http.Request) {
	c := x.c
	outer, request := c.Response(), c.Request()
	c.SetRequest(r)
	var taken *noting
	inner, _ := outer.(*echo.Response)
	if !same(w, outer) {
		taken = &noting{ResponseWriter: w}
		inner = echo.NewResponse(taken, c.Echo().Logger)
		c.SetResponse(inner)
	}
	defer func() {
		keepForm(request, r)
		c.SetRequest(request)
		c.SetResponse(outer)
	}()
	if x.err = next(c); x.err != nil {
		c.Echo().HTTPErrorHandler(c, x.err)
	} else if taken != nil && !inner.Committed && !taken.hijacked {
		inner.WriteHeader(http.StatusOK)
	}
}

// same reports whether two writers are surely the same one. Of a type that has no "==" none are.
func same(a, b http.ResponseWriter) bool { return reflect.ValueOf(a).Comparable() && a == b }

// keepForm gives a form that was parsed to the request outside: the server removes the files of no
// other.
func keepForm(r, inner *http.Request) {
	if r.MultipartForm == nil {
		r.MultipartForm = inner.MultipartForm
	}
}

// noting notes that the handler has taken the connection over, which is not to be written to then.
type noting struct {
	http.ResponseWriter
	hijacked bool
}

func (n *noting) Unwrap() http.ResponseWriter { return n.ResponseWriter }

func (n *noting) Flush() { _ = n.FlushError() }

func (n *noting) FlushError() error { return http.NewResponseController(n.ResponseWriter).Flush() }

func (n *noting) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(n.ResponseWriter).Hijack()
	n.hijacked = n.hijacked || err == nil
	return conn, rw, err
}
