package main

import (
	"context"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/gin-gonic/gin"
	"github.com/go-chi/chi/v5"
	"github.com/gofiber/fiber/v3"
	"github.com/gofiber/fiber/v3/middleware/adaptor"
	echov4 "github.com/labstack/echo/v4"
	"github.com/labstack/echo/v5"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/middleware"
	holdecho "github.com/holdfast-go/holdfast/middleware/echo"
	holdechov4 "github.com/holdfast-go/holdfast/middleware/echov4"
	holdgin "github.com/holdfast-go/holdfast/middleware/gin"
)

func newLocks() *coord.Coordinator {
	locks, err := coord.New(context.Background(), fallback.NewMemory(), nil)
	if err != nil {
		log.Fatal(err)
	}
	return locks
}

// pay sends two requests for order 42; the second one is a retry.
func pay(h http.Handler) {
	for range 2 {
		w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/orders/42/payment", nil)
		r.Header.Set("Idempotency-Key", "k")
		h.ServeHTTP(w, r)
		fmt.Println(w.Code, strings.TrimSpace(w.Body.String()), w.Header()[middleware.ReplayedHeader])
	}
}

func paid(w http.ResponseWriter, r *http.Request) {
	l, _ := middleware.Lock(r.Context())
	fmt.Fprintln(w, "paid with", l.Key())
}

func Example_mux() {
	locks := newLocks()
	defer locks.Close(context.Background())
	store := middleware.NewMemoryStore(nil)

	byOrder := middleware.Key("order", middleware.PathValue("id"))
	idempotent := middleware.Idempotent(locks, store, middleware.Unscoped, nil)
	serialize := middleware.Serialize(locks, byOrder, nil)

	mux := http.NewServeMux()
	mux.Handle("POST /orders/{id}/payment", idempotent(serialize(http.HandlerFunc(paid))))
	pay(mux)
	// Output:
	// 200 paid with order/42 []
	// 200 paid with order/42 [true]
}

func Example_chi() {
	locks := newLocks()
	defer locks.Close(context.Background())
	store := middleware.NewMemoryStore(nil)

	byOrder := middleware.Key("order", middleware.PathValue("id"))
	idempotent := middleware.Idempotent(locks, store, middleware.Unscoped, nil)
	serialize := middleware.Serialize(locks, byOrder, nil)

	r := chi.NewRouter()
	r.With(idempotent, serialize).Post("/orders/{id}/payment", paid)
	pay(r)
	// Output:
	// 200 paid with order/42 []
	// 200 paid with order/42 [true]
}

func Example_echo() {
	locks := newLocks()
	defer locks.Close(context.Background())
	store := middleware.NewMemoryStore(nil)

	byOrder := middleware.Key("order", middleware.PathValue("id"))
	idempotent := holdecho.Use(middleware.Idempotent(locks, store, middleware.Unscoped, nil))
	serialize := holdecho.Use(middleware.Serialize(locks, byOrder, nil))

	e := echo.New()
	e.POST("/orders/:id/payment", func(c *echo.Context) error {
		l, _ := middleware.Lock(c.Request().Context())
		return echo.NewHTTPError(http.StatusPaymentRequired, "no money for "+l.Key()) // replayed, like any answer
	}, idempotent, serialize)
	pay(e)
	// Output:
	// 402 {"message":"no money for order/42"} []
	// 402 {"message":"no money for order/42"} [true]
}

func Example_echo4() {
	locks := newLocks()
	defer locks.Close(context.Background())
	store := middleware.NewMemoryStore(nil)

	e := echov4.New()
	e.POST("/orders/:id/payment", func(c echov4.Context) error {
		return echov4.NewHTTPError(http.StatusPaymentRequired, "no money for order "+c.Param("id"))
	}, holdechov4.Use(middleware.Idempotent(locks, store, middleware.Unscoped, nil)))
	pay(e)
	// Output:
	// 402 {"message":"no money for order 42"} []
	// 402 {"message":"no money for order 42"} [true]
}

func Example_gin() {
	gin.SetMode(gin.ReleaseMode)
	locks := newLocks()
	defer locks.Close(context.Background())
	store := middleware.NewMemoryStore(nil)
	authenticate := func(c *gin.Context) { c.Set("user", "adam") }

	byOrder := middleware.Key("order", middleware.PathValue("id"))
	user := func(r *http.Request) (string, error) { // whose idempotency key it is
		c, _ := holdgin.From(r)
		return c.GetString("user"), nil // as authentication has Set it
	}
	idempotent := holdgin.Use(middleware.Idempotent(locks, store, user, nil))
	serialize := holdgin.Use(middleware.Serialize(locks, byOrder, nil))
	writeErrors := func(c *gin.Context) {
		c.Next()
		if len(c.Errors) > 0 && !c.Writer.Written() {
			c.JSON(http.StatusConflict, gin.H{"error": c.Errors.Last().Error()})
		}
	}

	r := gin.New()
	r.Use(holdgin.Aborts, gin.Recovery(), authenticate) // around everything
	r.POST("/orders/:id/payment", idempotent, serialize, writeErrors, func(c *gin.Context) {
		l, _ := middleware.Lock(c.Request.Context())
		c.Error(fmt.Errorf("no money for %s", l.Key())) // writeErrors follows idempotent, so the answer is replayed
	})
	pay(r)
	// Output:
	// 409 {"error":"no money for order/42"} []
	// 409 {"error":"no money for order/42"} [true]
}

func fiberInMux(locks *coord.Coordinator, store middleware.Store) *http.ServeMux {
	payments := fiber.New() // what the middlewares are for, and nothing else
	payments.Post("/orders/:id/payment", func(c fiber.Ctx) error { return c.SendString("paid for " + c.Params("id")) })
	others := fiber.New()
	others.Get("/orders/:id", func(c fiber.Ctx) error { return c.SendString("order " + c.Params("id")) })

	byOrder := middleware.Key("order", middleware.PathValue("id"))
	idempotent := middleware.Idempotent(locks, store, middleware.Unscoped, nil)
	serialize := middleware.Serialize(locks, byOrder, nil)
	mux := http.NewServeMux() // of net/http, around both
	mux.Handle("POST /orders/{id}/payment", idempotent(serialize(adaptor.FiberApp(payments))))
	mux.Handle("/", adaptor.FiberApp(others))
	return mux
}

func Example_fiber() {
	locks := newLocks()
	defer locks.Close(context.Background())
	pay(fiberInMux(locks, middleware.NewMemoryStore(nil)))
	// Output:
	// 200 paid for 42 []
	// 200 paid for 42 [true]
}

// Fiber takes more paths for a route than the mux does. None of them leads around the middlewares.
func TestFiberHasNoWayAroundTheMiddlewares(t *testing.T) {
	locks := newLocks()
	defer locks.Close(context.Background())
	h := fiberInMux(locks, middleware.NewMemoryStore(nil))
	send := func(method, path string) *httptest.ResponseRecorder {
		w, r := httptest.NewRecorder(), httptest.NewRequest(method, path, nil)
		r.RequestURI = path // with "#", which is a part of the path for net/http
		r.Header.Set("Idempotency-Key", "k")
		h.ServeHTTP(w, r)
		return w
	}
	for _, path := range []string{
		"/orders/42/payment", "/orders/42/payment/", "/Orders/42/Payment", "/orders/42/payment#", "/orders/42/payment#x", "/orders/4%32/payment",
		"/orders/42/x/..%2Fpayment", "/orders/42/x/%2e%2e/payment", "/orders/42/p%61yment",
	} {
		ran := false
		for range 2 {
			w := send(http.MethodPost, path)
			paid := strings.HasPrefix(w.Body.String(), "paid for ")
			if paid && ran && w.Header().Get(middleware.ReplayedHeader) == "" {
				t.Errorf("%s: paid twice", path)
			}
			ran = ran || paid
		}
		if path == "/orders/42/payment" && !ran {
			t.Errorf("%s: not paid", path)
		}
	}
	if w := send(http.MethodGet, "/orders/42"); w.Body.String() != "order 42" {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

// docs/routers.md warns of this: the lock is gone when the handler runs.
func Example_fiberHTTPMiddleware() {
	locks := newLocks()
	defer locks.Close(context.Background())
	serialize := middleware.Serialize(locks, middleware.Key("all"), nil)

	app := fiber.New()
	app.Post("/", adaptor.HTTPMiddleware(serialize), func(c fiber.Ctx) error {
		return c.SendString(fmt.Sprint("locked: ", locks.Stats().Locked))
	})
	res, err := app.Test(httptest.NewRequest(http.MethodPost, "/", nil))
	if err != nil {
		log.Print(err)
		return
	}
	defer res.Body.Close()
	text, _ := io.ReadAll(res.Body)
	fmt.Println(string(text))
	// Output:
	// locked: 0
}

func Example_http2() {
	mux := http.NewServeMux()

	server := &http.Server{Addr: ":8080", Handler: mux, Protocols: new(http.Protocols)}
	server.Protocols.SetHTTP1(true)
	server.Protocols.SetUnencryptedHTTP2(true) // gRPC, and Route's hop for clients that speak HTTP/2

	fmt.Println(server.Protocols)
	// Output:
	// {HTTP1,UnencryptedHTTP2}
}
