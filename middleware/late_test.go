package middleware_test

import (
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/middleware"
)

// A request that has waited for its turn in vain is logged with its key: the coordinator's own
// record of long waits does not come for one that leaves before that.
func TestSerialize_LogsWaitsInVain(t *testing.T) {
	t.Parallel()
	all := func(c *coord.Coordinator, o *middleware.SerializeOptions) func(http.Handler) http.Handler {
		return middleware.SerializeAll(c, middleware.Keys(byOrder), o)
	}
	one := func(c *coord.Coordinator, o *middleware.SerializeOptions) func(http.Handler) http.Handler {
		return middleware.Serialize(c, byOrder, o)
	}
	for name, x := range map[string]struct {
		serialize func(*coord.Coordinator, *middleware.SerializeOptions) func(http.Handler) http.Handler
		opts      middleware.SerializeOptions
		logged    bool
	}{
		"Serialize":                {one, middleware.SerializeOptions{}, true},
		"Shared":                   {one, middleware.SerializeOptions{Methods: []string{"PUT"}, Shared: []string{"POST"}}, true},
		"SerializeAll":             {all, middleware.SerializeOptions{}, true},
		"Serialize, not waiting":   {one, middleware.SerializeOptions{Wait: -1}, false},
		"SerializeAll not waiting": {all, middleware.SerializeOptions{Wait: -1}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := start(t, fallback.NewMemory(), nil)
			l, err := c.Lock(t.Context(), "order/1")
			if err != nil {
				t.Fatal(err)
			}
			defer l.Unlock()
			var logged lockedBuffer
			o := x.opts
			o.Logger = slog.New(slog.NewTextHandler(&logged, nil))
			if o.Wait == 0 {
				o.Wait = 20 * time.Millisecond
			}
			s := serve(t, x.serialize(c, &o)(http.NotFoundHandler()))
			if res := do(t, s, request(t, s, "1")); res.StatusCode != http.StatusLocked {
				t.Errorf("%d %s", res.StatusCode, res.body)
			}
			text := logged.String()
			if found := strings.Contains(text, `level=WARN msg="holdfast: a request did not get its turn in time" key=order/1 waited=`); found != x.logged {
				t.Errorf("logged: %q", text)
			}
			if waited := strings.Contains(text, "waited=0s"); waited {
				t.Errorf("logged: %q", text)
			}
		})
	}
}
