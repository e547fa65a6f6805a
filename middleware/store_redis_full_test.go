package middleware_test

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/fallback/redisarbiter"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/takes"
	"github.com/holdfast-go/holdfast/middleware"
)

// Large answers do not fill the server that the locks are on: by default they are not kept, and
// repeated requests are told.
func TestIdempotent_LargeAnswersLeaveRoomForLocks(t *testing.T) {
	takes.Seconds(t)
	t.Parallel()
	server := redistest.Start(t, "--maxmemory", "50mb", "--maxmemory-policy", "noeviction")
	c := start(t, redisarbiter.New(server.Client(t), &redisarbiter.Options{ColdStart: true}), nil)
	runs := 0
	s := serving(t, middleware.Idempotent(c, middleware.NewRedisStore(server.Client(t), nil), middleware.Unscoped, nil)(
		http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			runs++
			n, _ := strconv.Atoi(r.URL.Query().Get("size"))
			fmt.Fprint(w, strings.Repeat("x", n))
		})))
	post := func(i, size int) reply {
		return exchange(t.Context(), s, "POST", fmt.Sprint("/?size=", size), "", "Idempotency-Key", fmt.Sprint(size, "-", i))
	}
	answered := 0
	for _, size := range []int{1 << 20, 32 << 10, 1 << 10, 10} { // the small fill the gaps of the large
		for i := range 60 {
			if r := post(i, size); r.StatusCode == http.StatusOK && len(r.body) == size {
				answered++
			}
		}
	}
	if answered != 240 || runs != 240 {
		t.Errorf("%d answers, %d runs", answered, runs)
	}
	for i := range 10 {
		l, err := c.TryLock(t.Context(), fmt.Sprint("another", i))
		if err != nil {
			t.Fatal(err)
		}
		l.Unlock()
	}
	if again := post(0, 1<<20); again.StatusCode != http.StatusConflict || !strings.Contains(again.body, middleware.TypeNotKept) {
		t.Errorf("a repeated request: %d, %d bytes", again.StatusCode, len(again.body))
	}
}
