// Package holdgin mounts the middlewares of package [middleware], and others of net/http that hold
// answers back, in Gin:
//
//	r.POST("/orders/:id/payment", holdgin.Use(route), holdgin.Use(idempotent), holdgin.Use(serialize), pay)
//
// Wrappers that leave Gin's writer in its place do not serve for them: the middleware does not see
// the handler's writes, and keeps an empty answer.
package holdgin

import (
	"context"
	"errors"
	"net/http"
	"reflect"
	"slices"

	"github.com/gin-gonic/gin"
)

// call is one request on its way through a middleware.
type call struct {
	c      *gin.Context
	called bool // the handlers were
}

type callKey struct{}

// Use makes a handler of Gin of a middleware of net/http, for a route, a group or all. The handlers
// that follow run inside of it; they do not run if the middleware answers by itself.
//
// The parameters of the route are path values of the request, as [middleware.PathValue] wants them.
// The handler's context is c.Request.Context(). A handler that returns without having written
// anything has answered with its status, 200 if it set none; but if it has added to c.Errors, it
// has left the answer to others. Handlers that write answers to c.Errors have to follow Use, and
// not to come before it. Otherwise the middleware does not see these answers, and
// [middleware.Idempotent] can replay none.
//
// The middleware has to call the handler in the goroutine in which it was called, as those of
// package middleware do.
func Use(mw func(http.Handler) http.Handler) gin.HandlerFunc {
	h := mw(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Context().Value(callKey{}).(*call).run(w, r)
	}))
	return func(c *gin.Context) {
		x := &call{c: c}
		r := c.Request.WithContext(context.WithValue(c.Request.Context(), callKey{}, x))
		r.Pattern = c.FullPath()
		for _, p := range c.Params {
			r.SetPathValue(p.Key, p.Value)
		}
		defer keepForm(c.Request, r)
		h.ServeHTTP(c.Writer, r)
		if !x.called {
			c.Abort()
		}
	}
}

// Aborts is a handler of Gin to stand outside of [gin.Recovery]. Recovery takes a panic with
// [http.ErrAbortHandler] for a connection that is broken already, and returns. A client would take
// an answer that was cut off for a whole one, and one that was never given for an empty 200. Aborts
// panics again, and the server closes the connection, or resets the stream. Route and other proxies
// panic so where their server's answer breaks off, and Serialize, Idempotent and Coalesce where the
// client has gone.
//
//	r := gin.New() // gin.Default has a Recovery that nothing can stand outside of
//	r.Use(holdgin.Aborts, gin.Recovery())
func Aborts(c *gin.Context) {
	c.Next()
	if slices.ContainsFunc(c.Errors, func(e *gin.Error) bool { return errors.Is(e.Err, http.ErrAbortHandler) }) {
		panic(http.ErrAbortHandler)
	}
}

// From returns Gin's context of a request that a middleware in [Use] has got. A KeyFunc or a scope
// finds there the values that authentication keeps. ok is false outside of Use.
func From(r *http.Request) (c *gin.Context, ok bool) {
	x, ok := r.Context().Value(callKey{}).(*call)
	if !ok {
		return nil, false
	}
	return x.c, true
}

// run calls the handlers with the middleware's writer and request.
func (x *call) run(w http.ResponseWriter, r *http.Request) {
	c := x.c
	x.called = true
	outer, request, errors := c.Writer, c.Request, len(c.Errors)
	defer func() {
		keepForm(request, r)
		c.Writer, c.Request = outer, request
	}()
	c.Request = r
	if same(w, outer) {
		c.Next()
		return
	}
	inner := &writer{ResponseWriter: w, r: r, status: http.StatusOK, size: unwritten}
	c.Writer = inner
	c.Next()
	if len(c.Errors) == errors {
		inner.WriteHeaderNow()
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
