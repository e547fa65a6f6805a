package holdecho_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/labstack/echo/v4"
	echomw "github.com/labstack/echo/v4/middleware"
	"go.uber.org/goleak"

	holdecho "github.com/holdfast-go/holdfast/middleware/echov4"
	"github.com/holdfast-go/holdfast/middleware/routertest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var errSold = errors.New("sold")

// newEcho has what services have: a handler for errors of their own, and one that recovers from panics.
func newEcho() *echo.Echo {
	e := echo.New()
	e.HTTPErrorHandler = func(err error, c echo.Context) {
		if errors.Is(err, errSold) && !c.Response().Committed {
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
	methods := []string{http.MethodGet, http.MethodPost}
	switch where {
	case routertest.Route:
		e.Match(methods, "/orders/:id", h, all...)
	case routertest.Group:
		e.Group("/orders", all...).Match(methods, "/:id", h)
	case routertest.All:
		e.Use(all...)
		e.Match(methods, "/orders/:id", h)
	}
	return e
}

func TestUse(t *testing.T) {
	type answer = routertest.Answer[echo.HandlerFunc]
	routertest.Run(t, routertest.Suite[echo.HandlerFunc]{
		Mount: mount,
		Text: func(f func(*http.Request, string) (int, string)) echo.HandlerFunc {
			return func(c echo.Context) error { return c.String(f(c.Request(), c.Param("id"))) }
		},
		Error: func(f func(*http.Request, string) (int, string)) echo.HandlerFunc {
			return func(c echo.Context) error {
				status, text := f(c.Request(), c.Param("id"))
				return echo.NewHTTPError(status, text)
			}
		},
		Stream: func(f func(*http.Request) string) echo.HandlerFunc {
			return func(c echo.Context) error {
				for text := f(c.Request()); text != ""; text = f(c.Request()) {
					fmt.Fprint(c.Response(), text)
					c.Response().Flush()
				}
				return nil
			}
		},
		Answers: map[string]answer{
			"JSON": {Handler: func(c echo.Context) error { return c.JSON(http.StatusCreated, echo.Map{"n": 1}) }, Status: 201, Body: `{"n":1}`},
			"Bind": {Handler: func(c echo.Context) error {
				var order struct{ Units int }
				if err := c.Bind(&order); err != nil {
					return err
				}
				c.Response().Header().Set("X-Units", fmt.Sprint(order.Units))
				return c.NoContent(http.StatusAccepted)
			}, Status: 202, Header: http.Header{"X-Units": {"3"}}},
			"Bind that fails": {Handler: func(c echo.Context) error {
				var order struct{ Units string }
				return c.Bind(&order)
			}, Status: 400, Body: `{"message":"Unmarshal type error: expected=string, got=number, field=Units, offset=10"}`},
			"Redirect": {Handler: func(c echo.Context) error { return c.Redirect(http.StatusSeeOther, "/orders/8") }, Status: 303,
				Header: http.Header{"Location": {"/orders/8"}}},
			"Blob":           {Handler: func(c echo.Context) error { return c.Blob(http.StatusOK, "text/csv", []byte("a,b")) }, Status: 200, Body: "a,b"},
			"Stream":         {Handler: func(c echo.Context) error { return c.Stream(200, "text/plain", strings.NewReader("s")) }, Status: 200, Body: "s"},
			"own error":      {Handler: func(echo.Context) error { return fmt.Errorf("order: %w", errSold) }, Status: 409, Body: `{"error":"sold"}`},
			"other error":    {Handler: func(echo.Context) error { return errors.New("secret") }, Status: 500, Body: `{"message":"Internal Server Error"}`},
			"no content":     {Handler: func(c echo.Context) error { return c.NoContent(http.StatusNoContent) }, Status: 204},
			"nothing":        {Handler: func(echo.Context) error { return nil }, Status: 200},
			"error too late": {Handler: func(c echo.Context) error { c.String(http.StatusOK, "all"); return errSold }, Status: 200, Body: "all"},
			"c.Error":        {Handler: func(c echo.Context) error { c.Error(errSold); return nil }, Status: 409, Body: `{"error":"sold"}`},
		},
		Bypasses: map[string]func(echo.HandlerFunc, routertest.Middleware) http.Handler{
			"echo.WrapMiddleware": func(h echo.HandlerFunc, mw routertest.Middleware) http.Handler {
				e := newEcho()
				e.POST("/orders/:id", h, echo.WrapMiddleware(mw))
				return e
			},
			"around the Echo": func(h echo.HandlerFunc, mw routertest.Middleware) http.Handler {
				e := newEcho()
				e.POST("/orders/:id", h)
				return mw(e)
			},
		},
	})
}

// An error is returned as well, once, for those around that log; there is none where an answer is replayed.
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
	refuse := func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Query().Has("refuse") {
				w.WriteHeader(http.StatusTeapot)
				return
			}
			next.ServeHTTP(w, r)
		})
	}
	e.GET("/", func(echo.Context) error { return errSold }, holdecho.Use(refuse))
	for target, status := range map[string]int{"/": http.StatusConflict, "/?refuse": http.StatusTeapot} {
		w := httptest.NewRecorder()
		logged = nil
		e.ServeHTTP(w, httptest.NewRequest(http.MethodGet, target, nil))
		if w.Code != status || len(logged) != 1 || errors.Is(logged[0], errSold) != (target == "/") {
			t.Errorf("%s: %d %s, %v", target, w.Code, w.Body, logged)
		}
	}
}
