package holdgin_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gin-gonic/gin"
	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/middleware"
	holdgin "github.com/holdfast-go/holdfast/middleware/gin"
)

func TestMain(m *testing.M) {
	gin.SetMode(gin.ReleaseMode)
	gin.DefaultErrorWriter = io.Discard
	goleak.VerifyTestMain(m)
}

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

// writeErrors is how central error handling is written in Gin.
func writeErrors(c *gin.Context) {
	c.Next()
	if len(c.Errors) > 0 && !c.Writer.Written() {
		c.JSON(http.StatusConflict, gin.H{"error": c.Errors.Last().Error()})
	}
}

func TestUse_Answers(t *testing.T) {
	c := locks(t)
	var runs atomic.Int32
	status := 0
	e := gin.New()
	e.Use(func(c *gin.Context) { c.Next(); status = c.Writer.Status() }) // as loggers do
	idempotent := holdgin.Use(middleware.Idempotent(c, middleware.NewMemoryStore(nil), middleware.Unscoped, nil))
	g := e.Group("/api", idempotent, writeErrors)
	handle := func(path string, h gin.HandlerFunc) {
		g.POST(path, holdgin.Use(middleware.Serialize(locks(t), middleware.Key("all"), nil)), func(c *gin.Context) { runs.Add(1); h(c) })
	}
	handle("/json", func(c *gin.Context) { c.JSON(http.StatusCreated, gin.H{"n": 1}) })
	handle("/abort-json", func(c *gin.Context) { c.AbortWithStatusJSON(http.StatusTeapot, gin.H{"error": "tea"}) })
	handle("/abort", func(c *gin.Context) { c.AbortWithStatus(http.StatusForbidden) })
	handle("/abort-error", func(c *gin.Context) { c.AbortWithError(http.StatusGone, errors.New("gone")) })
	handle("/error", func(c *gin.Context) { c.Error(errors.New("sold")) })
	handle("/status", func(c *gin.Context) { c.Status(http.StatusNoContent) })
	handle("/nothing", func(*gin.Context) {})
	handle("/string", func(c *gin.Context) { c.Header("X", "1"); c.String(http.StatusOK, "text") })

	for _, x := range []struct {
		path   string
		status int
		body   string
	}{
		{"/json", 201, `{"n":1}`}, {"/abort-json", 418, `{"error":"tea"}`}, {"/abort", 403, ""}, {"/abort-error", 410, ""},
		{"/error", 409, `{"error":"sold"}`}, {"/status", 204, ""}, {"/nothing", 200, ""}, {"/string", 200, "text"},
	} {
		twice(t, e, &runs, "/api"+x.path, x.status, x.body)
		if status != x.status {
			t.Errorf("%s: a handler around it saw %d", x.path, status)
		}
	}
}

// A handler for errors that comes before Use answers the first client; repeated requests are refused, and not executed again.
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

func TestUse_Panics(t *testing.T) {
	c := locks(t)
	e := gin.New()
	e.Use(gin.Recovery())
	n := 0
	e.POST("/orders/:id", holdgin.Use(middleware.Serialize(c, byOrder, nil)), func(c *gin.Context) {
		if n++; n == 1 {
			panic("on purpose")
		}
		c.String(http.StatusOK, "done")
	})
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
	e := gin.New()
	ran := false
	e.POST("/orders/:id", holdgin.Use(middleware.Serialize(c, byOrder, &middleware.SerializeOptions{Wait: -1})), func(*gin.Context) { ran = true },
		func(c *gin.Context) {
			l, ok := middleware.Lock(c.Request.Context())
			c.String(http.StatusOK, fmt.Sprint(l.Key(), ok, c.Param("id")))
		})
	if w := ask(e, http.MethodPost, "/orders/42"); w.Body.String() != "order/42true42" {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	l, err := c.Lock(t.Context(), "order/42")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Unlock()
	ran = false
	if w := ask(e, http.MethodPost, "/orders/42"); w.Code != http.StatusLocked || ran {
		t.Errorf("%d %s, %v", w.Code, w.Body, ran)
	}
}

func TestUse_Coalesce(t *testing.T) {
	for _, mount := range []string{"route", "group", "all"} {
		t.Run(mount, func(t *testing.T) {
			var runs, joined atomic.Int32
			gate, in := make(chan struct{}), make(chan struct{}, 3)
			coalesce := holdgin.Use(middleware.Coalesce(nil, byOrder, &middleware.CoalesceOptions{
				Observe: func(_ *http.Request, how middleware.Coalesced) {
					if how == middleware.CoalescedShared {
						joined.Add(1)
					}
				},
			}))
			e := gin.New()
			h := func(c *gin.Context) {
				runs.Add(1)
				in <- struct{}{}
				<-gate
				c.AbortWithStatusJSON(http.StatusNotFound, gin.H{"order": c.Param("id")})
			}
			switch mount {
			case "route":
				e.GET("/orders/:id", coalesce, h)
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
				if w.Code != 404 || w.Body.String() != `{"order":"7"}` {
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
