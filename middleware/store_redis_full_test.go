package middleware_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/fallback/redisarbiter"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/middleware"
)

// Large answers do not fill the server that the locks are on: by default they are not kept, and repeated requests are told.
func TestIdempotent_LargeAnswersLeaveRoomForLocks(t *testing.T) {
	server := redistest.Start(t, "--maxmemory", "50mb", "--maxmemory-policy", "noeviction")
	c := start(t, redisarbiter.New(server.Client(t), &redisarbiter.Options{ColdStart: true}), nil)
	large := strings.Repeat("x", 1<<20)
	runs := 0
	s := serving(t, middleware.Idempotent(c, middleware.NewRedisStore(server.Client(t), nil), middleware.Unscoped, nil)(
		http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { runs++; fmt.Fprint(w, large) })))
	for i := range 60 {
		exchange(t.Context(), s, "POST", "/", "", "Idempotency-Key", fmt.Sprint(i)).is(t, http.StatusOK, large)
	}
	exchange(t.Context(), s, "POST", "/", "", "Idempotency-Key", "0").is(t, http.StatusConflict, middleware.TypeNotKept)
	for i := range 10 {
		l, err := c.TryLock(t.Context(), fmt.Sprint("another", i))
		if err != nil {
			t.Fatal(err)
		}
		l.Unlock()
	}
	if runs != 60 {
		t.Errorf("%d runs", runs)
	}
}
