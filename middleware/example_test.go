package middleware_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/gossip"
	"github.com/holdfast-go/holdfast/middleware"
)

// newCoordinator is the examples' coordinator: without a server.
func newCoordinator() *coord.Coordinator {
	c, err := coord.New(context.Background(), fallback.NewMemory(), nil)
	if err != nil {
		log.Fatal(err)
	}
	return c
}

// send makes a request and prints the answer.
func send(h http.Handler, method, target string) {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(method, target, nil))
	fmt.Println(w.Code, strings.TrimSpace(w.Body.String()))
}

// Payments of the same order run one after another.
func ExampleSerialize() {
	c := newCoordinator()
	defer c.Close(context.Background())

	pay := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		l, _ := middleware.Lock(r.Context())
		// r.Context() ends if the lock is lost; l.Fence() goes into the UPDATE.
		fmt.Fprintln(w, "paid", r.PathValue("id"), "with the lock of", l.Key())
	})
	byOrder := middleware.Key("order", middleware.PathValue("id"))

	mux := http.NewServeMux()
	mux.Handle("POST /orders/{id}/payment", middleware.Serialize(c, byOrder, nil)(pay))
	send(mux, "POST", "/orders/42/payment")
	// Output:
	// 200 paid 42 with the lock of order/42
}

// Transfers of the same accounts run one after another, in whichever direction.
func ExampleSerializeAll() {
	c := newCoordinator()
	defer c.Close(context.Background())

	transfer := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for _, l := range middleware.Locks(r.Context()) {
			fmt.Fprintln(w, "locked", l.Key())
		}
	})
	accounts := middleware.Keys(middleware.Key("account", middleware.Query("from")), middleware.Key("account", middleware.Query("to")))

	mux := http.NewServeMux()
	mux.Handle("POST /transfers", middleware.SerializeAll(c, accounts, nil)(transfer))
	send(mux, "POST", "/transfers?from=7&to=3")
	// Output:
	// 200 locked account/7
	// locked account/3
}

// A request that does not get its turn in time is told so.
func ExampleSerializeOptions() {
	c := newCoordinator()
	defer c.Close(context.Background())

	l, err := c.Lock(context.Background(), middleware.JoinKey("order", "42")) // as a job does
	if err != nil {
		log.Print(err)
		return
	}
	defer l.Unlock()

	serialize := middleware.Serialize(c, middleware.Key("order", middleware.Query("id")), &middleware.SerializeOptions{
		Wait:         20 * time.Millisecond,
		LockedStatus: http.StatusConflict,
		FenceHeader:  "Order-Fence",
		Problem: func(w http.ResponseWriter, r *http.Request, p middleware.Problem) {
			http.Error(w, fmt.Sprintf("%s (%v)", p.Title, errors.Is(p.Err, coord.ErrLocked)), p.Status)
		},
	})
	send(serialize(http.NotFoundHandler()), "POST", "/pay?id=42")
	// Output:
	// 409 Another request for the same resource is being served (true)
}

// Requests that read an order run beside each other, and none of them beside one that changes it.
func ExampleSerializeOptions_shared() {
	c := newCoordinator()
	defer c.Close(context.Background())

	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if l := middleware.ReadLock(r.Context()); l.Key() != "" {
			fmt.Fprintln(w, "reading", l.Key())
			return
		}
		l, _ := middleware.Lock(r.Context())
		fmt.Fprintln(w, "changing", l.Key())
	})
	byOrder := middleware.Key("order", middleware.PathValue("id"))
	serialize := middleware.Serialize(c, byOrder, &middleware.SerializeOptions{Shared: []string{http.MethodGet, http.MethodHead}})

	mux := http.NewServeMux()
	mux.Handle("/orders/{id}", serialize(h))
	send(mux, "GET", "/orders/42")
	send(mux, "PUT", "/orders/42")
	// Output:
	// 200 reading order/42
	// 200 changing order/42
}

// Each process says where it serves; a request goes to the one that owns its key, wherever it came.
func ExampleRoute() {
	arbiter := fallback.NewMemory() // Redis, for processes
	byOrder := middleware.Key("order", middleware.PathValue("id"))
	process := func() (c *coord.Coordinator, stop func(), url string) {
		listener, err := net.Listen("tcp", "127.0.0.1:0") // before the others are told of it
		if err != nil {
			log.Fatal(err)
		}
		url = "http://" + listener.Addr().String()
		c, err = coord.New(context.Background(), arbiter, &coord.Options{
			Partitions: 61,
			Cluster:    &coord.Cluster{Membership: gossip.Start, Gossip: "127.0.0.1:0", Debounce: 200 * time.Millisecond, Service: url},
		})
		if err != nil {
			log.Fatal(err)
		}
		transport := middleware.NewTransport()
		route := middleware.Route(c, byOrder, &middleware.RouteOptions{Transport: transport})
		serialize := middleware.Serialize(c, byOrder, nil)
		mux := http.NewServeMux()
		mux.Handle("POST /orders/{id}", route(serialize(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			owner, _ := c.Owner("order/" + r.PathValue("id"))
			fmt.Fprintln(w, "served by the owner:", owner.Self)
		}))))
		server := &http.Server{Handler: mux}
		go server.Serve(listener)
		return c, func() { // requests first, then their locks, then connections to others
			server.Shutdown(context.Background())
			c.Close(context.Background())
			transport.CloseIdleConnections()
		}, url
	}
	a, stopA, url := process()
	defer stopA()
	b, stopB, _ := process()
	defer stopB()
	for a.Stats().Owned == 0 || b.Stats().Owned == 0 || a.Stats().Owned+b.Stats().Owned < 61 {
		time.Sleep(10 * time.Millisecond)
	}

	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for i := range 3 {
		res, err := client.Post(fmt.Sprint(url, "/orders/", i), "", nil)
		if err != nil {
			log.Print(err)
			return
		}
		text, _ := io.ReadAll(res.Body)
		res.Body.Close()
		fmt.Print(string(text))
	}
	// Output:
	// served by the owner: true
	// served by the owner: true
	// served by the owner: true
}

// "a/b" and "c" are not "a" and "b/c".
func ExampleKey() {
	key := middleware.Key("file", middleware.Header("Tenant"), middleware.PathValue("name"))
	r := httptest.NewRequest(http.MethodPut, "/", nil)
	r.Header.Set("Tenant", "a/b")
	r.SetPathValue("name", "c")
	fmt.Println(key(r))
	// Output:
	// file/a%2Fb/c <nil>
}

// A KeyFunc is a function.
func ExampleKeyFunc() {
	c := newCoordinator()
	defer c.Close(context.Background())

	byAccount := func(r *http.Request) (string, error) {
		user, _, ok := r.BasicAuth()
		if !ok {
			return "", middleware.ErrSkip // an anonymous client waits for no other one
		}
		return middleware.JoinKey("account", strings.ToLower(user)), nil
	}
	h := middleware.Serialize(c, byAccount, nil)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		l, ok := middleware.Lock(r.Context())
		fmt.Printf("%q %v\n", l.Key(), ok)
	}))
	r := httptest.NewRequest(http.MethodPost, "/", nil)
	h.ServeHTTP(httptest.NewRecorder(), r)
	r.SetBasicAuth("Eve", "secret")
	h.ServeHTTP(httptest.NewRecorder(), r)
	// Output:
	// "" false
	// "account/eve" true
}

func ExampleWriteProblem() {
	w := httptest.NewRecorder()
	middleware.WriteProblem(w, nil, middleware.Problem{
		Type: middleware.TypeTooMany, Title: "Too many requests", Status: http.StatusTooManyRequests, RetryAfter: time.Second,
	})
	fmt.Println(w.Code, w.Header().Get("Retry-After"), w.Body)
	// Output:
	// 429 1 {"type":"https://pkg.go.dev/github.com/holdfast-go/holdfast/middleware#TypeTooMany","title":"Too many requests","status":429}
}

// All four, in the order in which they belong.
func Example() {
	c := newCoordinator() // with Options.Cluster, so that Route finds owners
	defer c.Close(context.Background())
	store := middleware.NewMemoryStore(nil) // in production NewRedisStore

	byOrder := middleware.Key("order", middleware.PathValue("id"))
	route := middleware.Route(c, byOrder, nil)
	coalesce := middleware.Coalesce(nil, byOrder, nil)
	idempotent := middleware.Idempotent(c, store, middleware.Unscoped, &middleware.IdempotentOptions{Required: true})
	serialize := middleware.Serialize(c, byOrder, nil)
	stack := func(h http.HandlerFunc) http.Handler { return route(coalesce(idempotent(serialize(h)))) }

	paid := 0
	mux := http.NewServeMux() // around it: authentication
	mux.Handle("GET /orders/{id}", stack(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "order %s was paid %d times", r.PathValue("id"), paid)
	}))
	mux.Handle("POST /orders/{id}/payment", stack(func(w http.ResponseWriter, r *http.Request) {
		l, _ := middleware.Lock(r.Context())
		paid++ // one request at a time; l.Fence() goes into the UPDATE
		fmt.Fprintf(w, "payment %d, with the lock of %s", paid, l.Key())
	}))

	for range 2 { // the client has not got the first answer, and repeats its request
		r := httptest.NewRequest(http.MethodPost, "/orders/42/payment", nil)
		r.Header.Set("Idempotency-Key", `"8e03978e-40d5-43dd-bc93-6894a57f9324"`)
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, r)
		fmt.Println(w.Code, w.Body)
	}
	send(mux, "GET", "/orders/42")
	// Output:
	// 200 payment 1, with the lock of order/42
	// 200 payment 1, with the lock of order/42
	// 200 order 42 was paid 1 times
}

// The order in which a process ends: no new requests and the end of those that run, then the locks,
// then the rest.
func Example_shutdown() {
	locks := newCoordinator()
	transport := middleware.NewTransport()
	key := middleware.Key("order", middleware.PathValue("id"))
	mux := http.NewServeMux()
	mux.Handle("POST /orders/{id}", middleware.Route(locks, key, &middleware.RouteOptions{Transport: transport})(
		middleware.Serialize(locks, key, nil)(http.NotFoundHandler())))
	server := &http.Server{
		Handler:           mux,
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       time.Minute, // longer than the transport's, or a request may be lost on the way to its owner
	}

	// Shutdown does not know of connections that were taken over, such as WebSockets. Their
	// handlers watch this context.
	ending, end := context.WithCancel(context.Background())
	server.RegisterOnShutdown(end)
	mux.Handle("GET /orders/{id}/chat", middleware.Serialize(locks, key, &middleware.SerializeOptions{Methods: []string{"GET"}})(
		http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			conn, _, err := http.NewResponseController(w).Hijack() // in real life: websocket.Accept
			if err != nil {
				return
			}
			defer conn.Close()
			stop := context.AfterFunc(ending, func() { conn.Close() }) // ends its readers
			defer stop()
			io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: chat\r\n\r\n")
			io.Copy(io.Discard, conn) // with the lock, until the client or the process ends
		})))

	stop, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	listener, err := net.Listen("tcp", "127.0.0.1:0") // in real life: ":8080"
	if err != nil {
		log.Print(err)
		return
	}
	go server.Serve(listener)

	chat, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		log.Print(err)
		return
	}
	defer chat.Close()
	fmt.Fprint(chat, "GET /orders/42/chat HTTP/1.1\r\nHost: shop\r\nConnection: Upgrade\r\nUpgrade: chat\r\n\r\n")
	answer, _, _ := bufio.NewReader(chat).ReadLine()
	fmt.Printf("%s, locked: %d\n", answer, locks.Stats().Locked)

	cancel() // in real life the signal comes some day
	<-stop.Done()

	ctx, giveUp := context.WithTimeout(context.Background(), 20*time.Second)
	defer giveUp()
	fmt.Println("requests:", server.Shutdown(ctx)) // the other way round, requests would be answered with 503
	fmt.Println("locks:", locks.Close(ctx))
	transport.CloseIdleConnections()
	// Output:
	// HTTP/1.1 101 Switching Protocols, locked: 1
	// requests: <nil>
	// locks: <nil>
}

// At most 2 exports of a tenant run at the same time, on all nodes. Others are told to come again.
func ExampleLimit() {
	c := newCoordinator()
	defer c.Close(context.Background())

	limit := middleware.Limit(c, middleware.Key("exports", middleware.Query("tenant")), 2, &middleware.LimitOptions{RetryAfter: 5 * time.Second})
	h := limit(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "rows") }))

	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/export?tenant=7", nil))
	fmt.Println(w.Code, w.Body)
	// Output: 200 rows
}
