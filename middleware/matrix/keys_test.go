package main

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/holdfast-go/holdfast/middleware"
)

// In every router the ways to write a path make one key, and a "%" that was sent as "%25" stays
// one.
func TestOneKeyHoweverThePathIsWritten(t *testing.T) {
	locks := newLocks()
	defer locks.Close(t.Context())
	serialize := middleware.Serialize(locks, middleware.PathValue("any"), nil)
	for _, name := range routerNames {
		locked := ""
		note := func(next http.Handler) http.Handler {
			return serialize(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				l, _ := middleware.Lock(r.Context())
				locked = l.Key()
				next.ServeHTTP(w, r)
			}))
		}
		h := routers[name]([]stack{{"note", note}}, func(http.ResponseWriter, *http.Request) {})
		for path, key := range map[string]string{
			"/note/7": "7", "/note/%37": "7", "/note/a:7": "a:7", "/note/a%3A7": "a:7", "/note/%2537": "%37", "/note/%2537%37": "%377",
		} {
			locked = ""
			w := httptest.NewRecorder()
			if h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, path, nil)); locked != key {
				t.Errorf("%s, %s: %d, key %q, want %q", name, path, w.Code, locked, key)
			}
		}
	}
}
