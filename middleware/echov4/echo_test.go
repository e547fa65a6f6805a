package holdecho_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/labstack/echo/v4"
	echomw "github.com/labstack/echo/v4/middleware"
	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/middleware"
	holdecho "github.com/holdfast-go/holdfast/middleware/echov4"
	"github.com/holdfast-go/holdfast/middleware/internal/echotest"
	"github.com/holdfast-go/holdfast/middleware/routertest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// newEcho is set up as services are: a handler for errors of their own, and one that recovers from
// panics.
func newEcho() *echo.Echo {
	e := echo.New()
	e.HTTPErrorHandler = func(err error, c echo.Context) {
		if errors.Is(err, echotest.ErrSold) && !c.Response().Committed {
			c.JSON(http.StatusConflict, map[string]string{"error": "sold"})
			return
		}
		e.DefaultHTTPErrorHandler(err, c)
	}
	e.Logger.SetOutput(new(strings.Builder))
	e.Use(echomw.Recover())
	return e
}

func mount(where routertest.Where, h echo.HandlerFunc, mw ...routertest.Middleware) http.Handler {
	e := newEcho()
	var all []echo.MiddlewareFunc
	for _, m := range mw {
		all = append(all, holdecho.Use(m))
	}
	return echotest.Mount(e, where, h, all...)
}

func TestUse(t *testing.T) {
	suite := echotest.Suite[echo.Context](map[string]routertest.Answer[echo.HandlerFunc]{
		"Bind": {Handler: func(c echo.Context) error {
			var order struct{ Units int }
			if err := c.Bind(&order); err != nil {
				return err
			}
			c.Response().Header().Set("X-Units", fmt.Sprint(order.Units))
			return c.NoContent(http.StatusAccepted)
		}, Status: 202, Header: http.Header{"X-Units": {"3"}}},
		"Bind that fails": {Handler: echotest.BindThatFails[echo.Context], Status: 400, Body: `{"message":"Unmarshal type error: expected=string, got=number, field=Units, offset=10"}`},
		"c.Error":         {Handler: func(c echo.Context) error { c.Error(echotest.ErrSold); return nil }, Status: 409, Body: `{"error":"sold"}`},
	})
	suite.Mount = mount
	suite.Error = func(f func(*http.Request, string) (int, string)) echo.HandlerFunc {
		return func(c echo.Context) error {
			status, text := f(c.Request(), c.Param("id"))
			return echo.NewHTTPError(status, text)
		}
	}
	suite.Stream = func(f func(*http.Request) string) echo.HandlerFunc {
		return func(c echo.Context) error {
			for text := f(c.Request()); text != ""; text = f(c.Request()) {
				fmt.Fprint(c.Response(), text)
				c.Response().Flush()
			}
			return nil
		}
	}
	suite.Bypasses = echotest.Bypasses(newEcho, echo.WrapMiddleware)
	routertest.Run(t, suite)
}

// An error is returned as well, once, for those around that log; there is none where an answer is
// replayed.
func TestUse_ErrorsAreReturned(t *testing.T) {
	e := newEcho()
	var logged []error
	e.Use(func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			err := next(c)
			logged = append(logged, err)
			return err
		}
	})
	e.GET("/", func(echo.Context) error { return echotest.ErrSold }, holdecho.Use(echotest.Refuse))
	echotest.Errors(t, e, func() []error {
		defer func() { logged = nil }()
		return logged
	})
}

// A scope has the values that authentication keeps in Echo's context.
func TestFrom(t *testing.T) {
	if c, ok := holdecho.From(httptest.NewRequest(http.MethodGet, "/", nil)); ok || c != nil {
		t.Error("there is a context without Use")
	}
	locks := locks(t)
	user := func(r *http.Request) (string, error) {
		c, _ := holdecho.From(r)
		return fmt.Sprint(c.Get("user")), nil
	}
	e := newEcho()
	e.Use(echomw.BasicAuth(func(name, _ string, c echo.Context) (bool, error) {
		c.Set("user", name)
		return true, nil
	}))
	e.POST("/", func(c echo.Context) error { return c.String(http.StatusOK, fmt.Sprint(c.Get("user"))) },
		holdecho.Use(middleware.Idempotent(locks, middleware.NewMemoryStore(nil), user, nil)))
	echotest.Users(t, e)
}

// locks returns a coordinator that is closed when the test ends.
func locks(t *testing.T) *coord.Coordinator {
	t.Helper()
	c, err := coord.New(t.Context(), fallback.NewMemory(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close(context.Background()) })
	return c
}

// A segment of the path that is empty is no mistake of the program.
func TestUse_EmptySegment(t *testing.T) {
	e := newEcho()
	e.POST("/orders/:id/payment", func(c echo.Context) error { return c.NoContent(http.StatusOK) },
		holdecho.Use(middleware.Serialize(locks(t), middleware.PathValue("id"), nil)))
	echotest.EmptySegment(t, e)
}

// Functions given to Before run, too, for a handler that has written nothing.
func TestUse_Before(t *testing.T) {
	e := newEcho()
	e.POST("/", func(c echo.Context) error {
		c.Response().Before(func() { c.Response().Header().Set("X-Before", "set") })
		return nil
	}, holdecho.Use(middleware.Idempotent(locks(t), middleware.NewMemoryStore(nil), middleware.Unscoped, nil)))
	echotest.Before(t, e)
}

// Nothing is written to a connection that a handler has taken over.
func TestUse_Hijack(t *testing.T) {
	e := newEcho()
	e.POST("/", func(c echo.Context) error { return echotest.TakeOver(c.Response()) }, holdecho.Use(echotest.Wrap))
	echotest.Hijack(t, e)
}
