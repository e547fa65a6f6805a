package middleware

import (
	"net/http"
	"reflect"
	"time"
	"unsafe"
)

// KeepLocked makes the locks of [Serialize] and [Idempotent] around a handler last until it has
// ended. That holds also if a handler in between has returned before it, as an
// [http.TimeoutHandler] does:
//
//	serialize(logged(http.TimeoutHandler(middleware.KeepLocked(h), 5*time.Second, "too slow")))
//
// Both do this by themselves for a TimeoutHandler that they are given. A handler that would begin
// after its lock was given back does not run. To [Idempotent], an answer that comes before the
// handler has ended is none: a repeated request is told that the outcome is unknown. So such
// timeouts belong outside of both, where they can: see docs/http.md.
func KeepLocked(h http.Handler) http.Handler { return &keeping{h} }

type keeping struct{ next http.Handler }

func (k *keeping) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	for h, _ := r.Context().Value(heldKey{}).(*held); h != nil; h, _ = h.Context.Value(heldKey{}).(*held) {
		if !h.begin() {
			return
		}
		defer h.finish()
	}
	k.next.ServeHTTP(w, r)
}

var timeoutHandler = reflect.TypeOf(http.TimeoutHandler(nil, 0, ""))

// keepLocked returns next or, if that is a TimeoutHandler, the same with its handler in KeepLocked.
// It panics if it cannot look into a TimeoutHandler, as that would let its handler run on without
// the lock.
func keepLocked(middleware string, next http.Handler) http.Handler {
	if next == nil || reflect.TypeOf(next) != timeoutHandler {
		return next
	}
	v := reflect.ValueOf(next).Elem()
	inner, limit, body := v.FieldByName("handler"), v.FieldByName("dt"), v.FieldByName("body")
	if !inner.IsValid() || inner.Type() != reflect.TypeFor[http.Handler]() || inner.IsNil() ||
		!limit.IsValid() || limit.Type() != reflect.TypeFor[time.Duration]() || !body.IsValid() || body.Kind() != reflect.String {
		panic("middleware: http.TimeoutHandler inside of " + middleware + " lets its handler run on without the lock: put it outside")
	}
	h := *(*http.Handler)(unsafe.Pointer(inner.UnsafeAddr()))
	if _, ok := h.(*keeping); ok {
		return next
	}
	return http.TimeoutHandler(KeepLocked(h), time.Duration(limit.Int()), body.String())
}
