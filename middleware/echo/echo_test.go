package holdecho_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/labstack/echo/v5"
	echomw "github.com/labstack/echo/v5/middleware"
	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/middleware"
	holdecho "github.com/holdfast-go/holdfast/middleware/echo"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var byOrder = middleware.Key("order", middleware.PathValue("id"))

func locks(t *testing.T) *coord.Coordinator {
	c, err := coord.New(t.Context(), fallback.NewMemory(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if s := c.Stats(); s.Locked > 0 || s.Waiting > 0 {
			t.Errorf("%d locks, %d waiters are left", s.Locked, s.Waiting)
		}
		c.Close(context.Background())
	})
	return c
}

// ask sends a request with an idempotency key.
func ask(e http.Handler, method, path string) *httptest.ResponseRecorder {
	w, r := httptest.NewRecorder(), httptest.NewRequest(method, path, nil)
	r.Header.Set("Idempotency-Key", path)
	e.ServeHTTP(w, r)
	return w
}

// asking is a context that tells when a request begins to wait.
type asking struct {
	context.Context
	asked func()
}

func (a asking) Done() <-chan struct{} {
	a.asked()
	return a.Context.Done()
}

// twice sends a request twice, which has to run once, and be answered twice alike.
func twice(t *testing.T, e http.Handler, runs *atomic.Int32, path string, status int, body string) {
	t.Helper()
	for i := range 2 {
		w := ask(e, http.MethodPost, path)
		replayed := w.Header().Get(middleware.ReplayedHeader) != ""
		if w.Code != status || strings.TrimSpace(w.Body.String()) != body || replayed != (i == 1) {
			t.Errorf("%s: %d %s, replayed %v", path, w.Code, w.Body, replayed)
		}
	}
	if n := runs.Swap(0); n != 1 {
		t.Errorf("%s: %d runs", path, n)
	}
}

// What handlers return is answered and replayed, whoever writes it.
func TestUse_ErrorsAreAnswers(t *testing.T) {
	c := locks(t)
	var runs atomic.Int32
	var logged []error
	e := echo.New()
	fallbackHandler := echo.DefaultHTTPErrorHandler(false)
	e.HTTPErrorHandler = func(c *echo.Context, err error) {
		if errors.Is(err, errSold) {
			if r, _ := echo.UnwrapResponse(c.Response()); r == nil || !r.Committed {
				c.JSON(http.StatusConflict, map[string]string{"error": "sold"})
			}
			return
		}
		fallbackHandler(c, err)
	}
	e.Use(func(next echo.HandlerFunc) echo.HandlerFunc { // as loggers do
		return func(c *echo.Context) error {
			err := next(c)
			if err != nil {
				logged = append(logged, err)
			}
			return err
		}
	})
	idempotent := holdecho.Use(middleware.Idempotent(c, middleware.NewMemoryStore(nil), middleware.Unscoped, nil))
	g := e.Group("/api", idempotent)
	handle := func(path string, h echo.HandlerFunc) {
		g.POST(path, func(c *echo.Context) error { runs.Add(1); return h(c) }, holdecho.Use(middleware.Serialize(locks(t), middleware.Key("all"), nil)))
	}
	handle("/json", func(c *echo.Context) error { return c.JSON(http.StatusCreated, map[string]int{"n": 1}) })
	handle("/http-error", func(*echo.Context) error { return echo.NewHTTPError(http.StatusTeapot, "tea") })
	handle("/own-error", func(*echo.Context) error { return fmt.Errorf("order: %w", errSold) })
	handle("/other", func(*echo.Context) error { return errors.New("secret") })
	handle("/no-content", func(c *echo.Context) error { return c.NoContent(http.StatusNoContent) })
	handle("/nothing", func(*echo.Context) error { return nil })
	handle("/committed", func(c *echo.Context) error { c.String(http.StatusOK, "all"); return errSold })

	twice(t, e, &runs, "/api/json", 201, `{"n":1}`)
	twice(t, e, &runs, "/api/http-error", 418, `{"message":"tea"}`)
	twice(t, e, &runs, "/api/own-error", 409, `{"error":"sold"}`)
	twice(t, e, &runs, "/api/other", 500, `{"message":"Internal Server Error"}`)
	twice(t, e, &runs, "/api/no-content", 204, "")
	twice(t, e, &runs, "/api/nothing", 200, "")
	twice(t, e, &runs, "/api/committed", 200, "all")
	if len(logged) != 4 { // not for replays
		t.Errorf("logged: %v", logged)
	}
}

var errSold = errors.New("sold")

func TestUse_Panics(t *testing.T) {
	c := locks(t)
	e := echo.New()
	e.Use(echomw.Recover())
	n := 0
	e.POST("/orders/:id", func(c *echo.Context) error {
		if n++; n == 1 {
			panic("on purpose")
		}
		return c.String(http.StatusOK, "done")
	}, holdecho.Use(middleware.Serialize(c, byOrder, nil)))
	if w := ask(e, http.MethodPost, "/orders/1"); w.Code != http.StatusInternalServerError {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	if w := ask(e, http.MethodPost, "/orders/1"); w.Code != http.StatusOK {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

// The route's parameters make the key, the handler has the lock, and a request that does not get it is told so.
func TestUse_Serialize(t *testing.T) {
	c := locks(t)
	e := echo.New()
	ran, after := false, false
	e.POST("/orders/:id", func(c *echo.Context) error {
		ran = true
		l, ok := middleware.Lock(c.Request().Context())
		return c.String(http.StatusOK, fmt.Sprint(l.Key(), ok, c.Param("id")))
	}, holdecho.Use(middleware.Serialize(c, byOrder, &middleware.SerializeOptions{Wait: -1})),
		func(next echo.HandlerFunc) echo.HandlerFunc {
			return func(c *echo.Context) error { after = true; return next(c) }
		})
	if w := ask(e, http.MethodPost, "/orders/42"); w.Body.String() != "order/42true42" {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	l, err := c.Lock(t.Context(), "order/42")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Unlock()
	ran, after = false, false
	if w := ask(e, http.MethodPost, "/orders/42"); w.Code != http.StatusLocked || ran || after {
		t.Errorf("%d %s, %v %v", w.Code, w.Body, ran, after)
	}
}

func TestUse_Coalesce(t *testing.T) {
	for _, mount := range []string{"route", "group", "all"} {
		t.Run(mount, func(t *testing.T) {
			var runs, joined atomic.Int32
			gate, in := make(chan struct{}), make(chan struct{}, 3)
			coalesce := holdecho.Use(middleware.Coalesce(nil, byOrder, &middleware.CoalesceOptions{
				Observe: func(_ *http.Request, how middleware.Coalesced) {
					if how == middleware.CoalescedShared {
						joined.Add(1)
					}
				},
			}))
			e := echo.New()
			h := func(c *echo.Context) error {
				runs.Add(1)
				in <- struct{}{}
				<-gate
				return echo.NewHTTPError(http.StatusNotFound, "no order "+c.Param("id"))
			}
			switch mount {
			case "route":
				e.GET("/orders/:id", h, coalesce)
			case "group":
				e.Group("/orders", coalesce).GET("/:id", h)
			case "all":
				e.Use(coalesce)
				e.GET("/orders/:id", h)
			}
			var wg sync.WaitGroup
			get := func(asked func()) {
				var once sync.Once
				w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/orders/7", nil)
				e.ServeHTTP(w, r.WithContext(asking{r.Context(), func() { once.Do(asked) }}))
				if w.Code != 404 || !strings.Contains(w.Body.String(), "no order 7") {
					t.Errorf("%d %s", w.Code, w.Body)
				}
			}
			wg.Go(func() { get(func() {}) })
			<-in
			var waiting sync.WaitGroup
			waiting.Add(2)
			for range 2 {
				wg.Go(func() { get(waiting.Done) })
			}
			waiting.Wait()
			close(gate)
			wg.Wait()
			if runs.Load() != 1 || joined.Load() != 2 {
				t.Errorf("%d runs, %d joined", runs.Load(), joined.Load())
			}
		})
	}
}
