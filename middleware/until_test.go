package middleware_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/middleware"
)

// A handler that asks its context after a loss is told of it by the first answer, also where it has
// asked before: its later writes are without protection.
func TestErr_AfterALoss(t *testing.T) {
	t.Parallel()
	c := start(t, fallback.NewMemory(), nil)
	lose := func(ctx context.Context, l coord.Lock) error {
		return c.Break(context.WithoutCancel(ctx), l.Key(), l.Fence(), "a test")
	}
	both := middleware.Keys(middleware.Key("a", middleware.Query("k")), middleware.Key("b", middleware.Query("k")))
	for name, x := range map[string]struct {
		around func(http.Handler) http.Handler
		method string
		lose   func(ctx context.Context) error
	}{
		"Limit": {middleware.Limit(c, ofQuery, 2, nil), "GET", func(ctx context.Context) error {
			s := c.Semaphore("k/a", 2)
			info, err := s.Inspect(context.WithoutCancel(ctx))
			if err != nil {
				return err
			}
			for _, block := range info.Shared { // also that of the handler before, if it is still there
				_ = s.Break(context.WithoutCancel(ctx), block.Fence, "a test")
			}
			return nil
		}},
		"Serialize, reading": {middleware.Serialize(c, ofQuery, &middleware.Options{Shared: []string{"GET"}}), "GET", func(ctx context.Context) error {
			return c.Break(context.WithoutCancel(ctx), "k/a", middleware.ReadLock(ctx).Fence(), "a test")
		}},
		"Serialize": {middleware.Serialize(c, ofQuery, nil), "POST", func(ctx context.Context) error {
			l, _ := middleware.Lock(ctx)
			return lose(ctx, l)
		}},
		"SerializeAll, the outer lock": {middleware.SerializeAll(c, both, nil), "POST", func(ctx context.Context) error {
			return lose(ctx, middleware.Locks(ctx)[1])
		}},
		"Limit in Serialize, the lock": {func(h http.Handler) http.Handler {
			return middleware.Serialize(c, ofQuery, nil)(middleware.Limit(c, ofQuery, 2, nil)(h))
		}, "POST", func(ctx context.Context) error {
			l, _ := middleware.Lock(ctx)
			return lose(ctx, l)
		}},
	} {
		for _, before := range []string{"", "Err", "Done"} {
			wrong := 0
			h := x.around(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				ctx := r.Context()
				switch before {
				case "Err":
					if ctx.Err() != nil {
						t.Errorf("%s: %v before the loss", name, ctx.Err())
					}
				case "Done":
					ctx.Done()
				}
				if err := x.lose(ctx); err != nil {
					t.Errorf("%s: %v", name, err)
				}
				if ctx.Err() == nil {
					wrong++
				}
				<-ctx.Done()
				if !errors.Is(context.Cause(ctx), coord.ErrLost) {
					t.Errorf("%s: %v", name, context.Cause(ctx))
				}
			}))
			for range 20 {
				h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(x.method, "/?k=a", nil))
			}
			if wrong > 0 {
				t.Errorf("%s, asked %q before: no error in %d of 20 handlers after the loss", name, before, wrong)
			}
		}
	}
}

// A handler that has unlocked goes on: its context ends when it has returned.
func TestErr_AfterAnEarlyUnlock(t *testing.T) {
	t.Parallel()
	c := start(t, fallback.NewMemory(), nil)
	for _, asks := range []bool{false, true} {
		var inner context.Context
		h := middleware.Serialize(c, ofQuery, nil)(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			inner = r.Context()
			if asks {
				inner.Done()
			}
			l, _ := middleware.Lock(inner)
			if err := l.Unlock(); err != nil {
				t.Error(err)
			}
			for range 3 {
				if err := inner.Err(); err != nil {
					t.Error(err)
				}
			}
		}))
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/?k=a", nil))
		if inner.Err() == nil || context.Cause(inner) != coord.ErrUnlocked {
			t.Errorf("after the handler: %v, %v", inner.Err(), context.Cause(inner))
		}
	}
}
