package holdgin_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/gin-gonic/gin"
	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/middleware"
	holdgin "github.com/holdfast-go/holdfast/middleware/gin"
	"github.com/holdfast-go/holdfast/middleware/routertest"
)

func TestMain(m *testing.M) {
	gin.SetMode(gin.ReleaseMode)
	gin.DefaultErrorWriter = io.Discard
	goleak.VerifyTestMain(m)
}

// writeErrors is central error handling as written in Gin.
func writeErrors(c *gin.Context) {
	c.Next()
	if len(c.Errors) > 0 && !c.Writer.Written() {
		status := c.Writer.Status()
		if status < 400 {
			status = http.StatusConflict
		}
		c.JSON(status, gin.H{"error": c.Errors.Last().Error()})
	}
}

func mount(where routertest.Where, h gin.HandlerFunc, mw ...routertest.Middleware) http.Handler {
	e := gin.New()
	e.Use(gin.Recovery())
	var all []gin.HandlerFunc
	for _, m := range mw {
		all = append(all, holdgin.Use(m))
	}
	all = append(all, writeErrors)
	methods := []string{http.MethodGet, http.MethodPost}
	switch where {
	case routertest.Route:
		e.Match(methods, "/orders/:id", append(all, h)...)
	case routertest.Group:
		e.Group("/orders", all...).Match(methods, "/:id", h)
	case routertest.All:
		e.Use(all...)
		e.Match(methods, "/orders/:id", h)
	}
	return e
}

func TestUse(t *testing.T) {
	type answer = routertest.Answer[gin.HandlerFunc]
	routertest.Run(t, routertest.Suite[gin.HandlerFunc]{
		Mount: mount,
		Text: func(f func(*http.Request, string) (int, string)) gin.HandlerFunc {
			return func(c *gin.Context) {
				status, text := f(c.Request, c.Param("id"))
				c.String(status, text)
			}
		},
		Error: func(f func(*http.Request, string) (int, string)) gin.HandlerFunc {
			return func(c *gin.Context) {
				status, text := f(c.Request, c.Param("id"))
				c.Status(status)
				c.Error(errors.New(text))
			}
		},
		Stream: func(f func(*http.Request) string) gin.HandlerFunc {
			return func(c *gin.Context) {
				c.Stream(func(w io.Writer) bool {
					text := f(c.Request)
					io.WriteString(w, text)
					return text != ""
				})
			}
		},
		Answers: map[string]answer{
			"JSON":                {Handler: func(c *gin.Context) { c.JSON(http.StatusCreated, gin.H{"n": 1}) }, Status: 201, Body: `{"n":1}`},
			"AbortWithStatusJSON": {Handler: func(c *gin.Context) { c.AbortWithStatusJSON(418, gin.H{"error": "tea"}) }, Status: 418, Body: `{"error":"tea"}`},
			"AbortWithStatus":     {Handler: func(c *gin.Context) { c.AbortWithStatus(http.StatusForbidden) }, Status: 403},
			"AbortWithError":      {Handler: func(c *gin.Context) { c.AbortWithError(http.StatusGone, errors.New("gone")) }, Status: 410},
			"Error":               {Handler: func(c *gin.Context) { c.Error(errors.New("sold")) }, Status: 409, Body: `{"error":"sold"}`},
			"Status":              {Handler: func(c *gin.Context) { c.Status(http.StatusNoContent) }, Status: 204},
			"nothing":             {Handler: func(*gin.Context) {}, Status: 200},
			"ShouldBindJSON": {Handler: func(c *gin.Context) {
				var order struct {
					Units int `binding:"required"`
				}
				if err := c.ShouldBindJSON(&order); err != nil {
					c.JSON(http.StatusBadRequest, gin.H{"error": err.Error()})
					return
				}
				c.Header("X-Units", fmt.Sprint(order.Units))
				c.Status(http.StatusAccepted)
			}, Status: 202, Header: http.Header{"X-Units": {"3"}}},
			"BindJSON that fails": {Handler: func(c *gin.Context) {
				var order struct{ Units string }
				if err := c.BindJSON(&order); err != nil {
					return
				}
			}, Status: 400},
			"Redirect": {Handler: func(c *gin.Context) { c.Redirect(http.StatusSeeOther, "/orders/8") }, Status: 303,
				Header: http.Header{"Location": {"/orders/8"}}},
			"Data": {Handler: func(c *gin.Context) { c.Data(http.StatusOK, "text/csv", []byte("a,b")) }, Status: 200, Body: "a,b",
				Header: http.Header{"Content-Type": {"text/csv"}}},
			"SSEvent": {Handler: func(c *gin.Context) { c.SSEvent("message", "x") }, Status: 200, Body: "event:message\ndata:x"},
			"WrapF": {Handler: gin.WrapF(func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(http.StatusCreated)
				io.WriteString(w, "w")
			}), Status: 201, Body: "w"},
		},
		Bypasses: map[string]func(gin.HandlerFunc, routertest.Middleware) http.Handler{
			"a shim that aborts": func(h gin.HandlerFunc, mw routertest.Middleware) http.Handler { // as gwatts/gin-adapter does
				e := gin.New()
				e.POST("/orders/:id", func(c *gin.Context) {
					called := false
					mw(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { called = true; c.Request = r; c.Next() })).ServeHTTP(c.Writer, c.Request)
					if !called {
						c.Abort()
					}
				}, writeErrors, h)
				return e
			},
			"around the engine": func(h gin.HandlerFunc, mw routertest.Middleware) http.Handler {
				e := gin.New()
				e.POST("/orders/:id", writeErrors, h)
				return mw(e)
			},
		},
	})
}

// Handlers before Use, such as loggers, see the status that clients get, also of replays.
func TestUse_StatusSeenAround(t *testing.T) {
	status := 0
	e := gin.New()
	e.Use(func(c *gin.Context) { c.Next(); status = c.Writer.Status() })
	idempotent := holdgin.Use(middleware.Idempotent(locks(t), middleware.NewMemoryStore(nil), middleware.Unscoped, nil))
	e.POST("/", idempotent, func(c *gin.Context) { c.String(http.StatusTeapot, "tea") })
	for range 2 {
		if w := ask(e, http.MethodPost, "/"); w.Code != http.StatusTeapot || status != w.Code {
			t.Errorf("%d, seen %d", w.Code, status)
		}
	}
}

func locks(t *testing.T) *coord.Coordinator {
	c, err := coord.New(t.Context(), fallback.NewMemory(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close(context.Background()) })
	return c
}

// ask sends a request with an idempotency key.
func ask(e http.Handler, method, path string) *httptest.ResponseRecorder {
	w, r := httptest.NewRecorder(), httptest.NewRequest(method, path, nil)
	r.Header.Set("Idempotency-Key", path)
	e.ServeHTTP(w, r)
	return w
}

// A handler for errors that comes before Use answers the first client; repeated requests are
// refused, and not executed again.
func TestUse_ErrorsWrittenAround(t *testing.T) {
	c := locks(t)
	e := gin.New()
	e.Use(writeErrors)
	runs := 0
	e.POST("/", holdgin.Use(middleware.Idempotent(c, middleware.NewMemoryStore(nil), middleware.Unscoped, nil)),
		func(c *gin.Context) { runs++; c.Error(errors.New("sold")) })
	if w := ask(e, http.MethodPost, "/"); w.Code != http.StatusConflict || w.Body.String() != `{"error":"sold"}` {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	if w := ask(e, http.MethodPost, "/"); w.Code != http.StatusConflict || !strings.Contains(w.Body.String(), "TypeOutcome") || runs != 1 {
		t.Errorf("%d %s, %d runs", w.Code, w.Body, runs)
	}
}

// Context.Stream flushes after each step, and ends when the client has gone.
func TestUse_Stream(t *testing.T) {
	c := locks(t)
	e := gin.New()
	step, ended := make(chan struct{}), make(chan bool, 1)
	e.POST("/", holdgin.Use(middleware.Idempotent(c, middleware.NewMemoryStore(nil), middleware.Unscoped, &middleware.IdempotentOptions{FollowClient: true})),
		func(c *gin.Context) {
			first := true
			ended <- c.Stream(func(w io.Writer) bool {
				if !first {
					select {
					case <-step:
					case <-c.Request.Context().Done():
					}
				}
				first = false
				fmt.Fprintln(w, "line")
				return true
			})
		})
	s := httptest.NewServer(e)
	defer s.Close()
	ctx, cancel := context.WithCancel(t.Context())
	r, _ := http.NewRequestWithContext(ctx, http.MethodPost, s.URL, nil)
	r.Header.Set("Idempotency-Key", "k")
	res, err := s.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	for range 3 {
		if n, err := io.ReadFull(res.Body, make([]byte, 5)); n != 5 {
			t.Fatal(n, err)
		}
		step <- struct{}{}
	}
	cancel()
	select {
	case gone := <-ended:
		if !gone {
			t.Error("the end was another one")
		}
	case <-time.After(20 * time.Second):
		t.Error("the stream goes on")
	}
}

// An answer that breaks off is not taken for a whole one: a proxy, as Route is, panics then, and
// Recovery would let the answer end as usual.
func TestAborts_AnAnswerThatBreaksOff(t *testing.T) {
	owner := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, "begin")
		http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}))
	defer owner.Close()
	to, err := url.Parse(owner.URL)
	if err != nil {
		t.Fatal(err)
	}
	proxy := &httputil.ReverseProxy{Rewrite: func(p *httputil.ProxyRequest) { p.SetURL(to) }, FlushInterval: -1, ErrorLog: log.New(io.Discard, "", 0)}
	e := gin.New()
	e.Use(holdgin.Aborts, gin.Recovery())
	e.GET("/part", holdgin.Use(func(http.Handler) http.Handler { return proxy }))
	e.GET("/none", func(*gin.Context) { panic(http.ErrAbortHandler) })
	e.GET("/panic", func(*gin.Context) { panic("on purpose") })
	e.GET("/error", func(c *gin.Context) { c.Error(errors.New("sold")) })
	s := httptest.NewUnstartedServer(e)
	s.EnableHTTP2 = true
	s.StartTLS()
	defer s.Close()
	one := s.Client()
	two := &http.Client{Transport: &http.Transport{TLSClientConfig: one.Transport.(*http.Transport).TLSClientConfig, ForceAttemptHTTP2: true}}
	defer two.CloseIdleConnections()
	for proto, client := range map[string]*http.Client{"HTTP/1.1": {Transport: &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: one.Transport.(*http.Transport).TLSClientConfig.RootCAs}, DisableKeepAlives: true,
	}}, "HTTP/2.0": two} {
		res, err := client.Get(s.URL + "/part")
		if err != nil {
			t.Fatal(err)
		}
		if body, err := io.ReadAll(res.Body); string(body) != "begin" || err == nil || res.Proto != proto {
			t.Errorf("%s: %s, %q, %v", proto, res.Proto, body, err)
		}
		res.Body.Close()
		if res, err := client.Get(s.URL + "/none"); err == nil {
			t.Errorf("%s: an answer that was not given: %d", proto, res.StatusCode)
			res.Body.Close()
		}
		for path, want := range map[string]int{"/panic": 500, "/error": 200} {
			res, err := client.Get(s.URL + path)
			if err != nil || res.StatusCode != want {
				t.Fatalf("%s %s: %v, %v", proto, path, res, err)
			}
			res.Body.Close()
		}
	}
}

// A scope has the values that authentication keeps in Gin's context.
func TestFrom(t *testing.T) {
	if c, ok := holdgin.From(httptest.NewRequest(http.MethodGet, "/", nil)); ok || c != nil {
		t.Error("there is a context without Use")
	}
	user := func(r *http.Request) (string, error) {
		c, _ := holdgin.From(r)
		return c.GetString(gin.AuthUserKey), nil
	}
	e := gin.New()
	e.Use(gin.BasicAuth(gin.Accounts{"adam": "1", "eve": "2"}))
	e.POST("/", holdgin.Use(middleware.Idempotent(locks(t), middleware.NewMemoryStore(nil), user, nil)),
		func(c *gin.Context) { c.String(http.StatusOK, c.GetString(gin.AuthUserKey)) })
	for i := range 2 {
		for name, password := range map[string]string{"adam": "1", "eve": "2"} {
			w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/", nil)
			r.Header.Set("Idempotency-Key", "k")
			r.SetBasicAuth(name, password)
			e.ServeHTTP(w, r)
			if replayed := w.Header().Get(middleware.ReplayedHeader) != ""; w.Body.String() != name || replayed != (i == 1) {
				t.Errorf("%s, %d: %d %s, replayed %v", name, i, w.Code, w.Body, replayed)
			}
		}
	}
}

// A segment of the path that is empty is no mistake of the program.
func TestUse_EmptySegment(t *testing.T) {
	e := gin.New()
	e.POST("/orders/:id/payment", holdgin.Use(middleware.Serialize(locks(t), middleware.PathValue("id"), nil)), func(c *gin.Context) {
		c.Status(http.StatusOK)
	})
	for target, status := range map[string]int{"/orders/7/payment": http.StatusOK, "/orders//payment": http.StatusBadRequest} {
		if w := ask(e, http.MethodPost, target); w.Code != status {
			t.Errorf("%s: %d %s", target, w.Code, w.Body)
		}
	}
}

// hooked is a writer of a type that has no "==".
type hooked struct {
	gin.ResponseWriter
	_ []func()
}

// A handler outside may have put a writer of any type in the place of Gin's.
func TestUse_WriterOfAnyType(t *testing.T) {
	e := gin.New()
	outside := func(c *gin.Context) { c.Writer = hooked{ResponseWriter: c.Writer} }
	e.POST("/", outside, holdgin.Use(func(next http.Handler) http.Handler { return next }),
		func(c *gin.Context) { c.String(http.StatusTeapot, "short") })
	if w := ask(e, http.MethodPost, "/"); w.Code != http.StatusTeapot || w.Body.String() != "short" {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

// However Gin is told to take parameters out of the path, the ways to write one make one key.
func TestUse_OneKeyHoweverParametersAreTaken(t *testing.T) {
	key := middleware.Key("order", middleware.PathValue("id"))
	for _, set := range []func(*gin.Engine){
		func(*gin.Engine) {},
		func(e *gin.Engine) { e.UseRawPath = true },
		func(e *gin.Engine) { e.UseRawPath, e.UnescapePathValues = true, false },
		func(e *gin.Engine) { e.UseEscapedPath = true },
		func(e *gin.Engine) { e.UseEscapedPath, e.UnescapePathValues = true, false },
	} {
		e, got := gin.New(), ""
		set(e)
		for _, path := range []string{"/orders/:id", "/all/*id", "/no-:id", "/x/:x/no-:id"} {
			e.POST(path, holdgin.Use(func(http.Handler) http.Handler {
				return http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
					var err error
					if got, err = key(r); err != nil {
						t.Error(err)
					}
				})
			}))
		}
		for path, id := range map[string]string{
			"/orders/a%20b": "a b", "/orders/%61%20b": "a b", "/orders/%2520": "%20", "/orders/%2520%37": "%207", "/orders/%61": "a",
			"/all/a%20b": "/a b", "/all/%61%20b": "/a b", "/all/%2520": "/%20",
			"/no-a%20b": "a b", "/no-%61%20b": "a b", "/no-%2520": "%20", "/no-%2520%37": "%207", "/no-50%25": "50%", "/no-50%2525": "50%25",
			"/x/%2520/no-%20": " ",
		} {
			if got = ""; ask(e, http.MethodPost, path) == nil || got != middleware.JoinKey("order", id) {
				t.Errorf("%s, UseRawPath %v, UseEscapedPath %v, UnescapePathValues %v: key %q", path, e.UseRawPath, e.UseEscapedPath, e.UnescapePathValues, got)
			}
		}
	}
}
