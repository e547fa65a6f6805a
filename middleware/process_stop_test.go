//go:build unix

package middleware_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/takes"
	"github.com/holdfast-go/holdfast/middleware"
)

// An owner is stopped with SIGSTOP while it executes requests that were forwarded to it. They are
// answered when it is found dead, and not when it goes on. None is executed a second time.
func TestRoute_OwnerStandsStill(t *testing.T) {
	t.Parallel()
	takes.Seconds(t)
	redis := redistest.Start(t)
	base, all := listener(t)
	o := processOrder{Redis: redis.Addr, Tell: base, Number: 1, Nodes: 2}
	ready := spawn(t, o)
	c, client, err := o.coordinator()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.Close(context.Background())
		_ = client.Close()
	})
	owner := ready()
	if err := c.Settled(t.Context(), 2); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = owner.cmd.Process.Signal(syscall.SIGCONT) })

	var logged lockedBuffer
	var here atomic.Int32
	route := middleware.Route(c, byOrder, &middleware.RouteOptions{Logger: slog.New(slog.NewTextHandler(&logged, nil))})(
		http.HandlerFunc(func(http.ResponseWriter, *http.Request) { here.Add(1) }))
	order := 0
	next := func() string { // an order of the owner's that no request was about
		for {
			order++
			if n, ok := c.Owner(fmt.Sprint("order/", order)); ok && n.Service == owner.url {
				return fmt.Sprint("?order=", order)
			}
		}
	}
	begins := func(goesOn bool) { // a handler
		for {
			did := from(t, all, "a handler")
			handler := did.what == "handler"
			if !handler || goesOn {
				close(did.proceed)
			} else {
				t.Cleanup(func() { close(did.proceed) })
			}
			if handler {
				return
			}
		}
	}
	send := func(s *httptest.Server, method, body string) <-chan reply {
		ch, path := make(chan reply, 1), "/"+next()
		go func() { ch <- exchange(t.Context(), s, method, path, body) }()
		return ch
	}
	var answers []<-chan reply
	for _, serve := range servers {
		s := serve(t, route)
		first := send(s, http.MethodGet, "") // from now on there is a connection
		begins(true)
		if r := from(t, first, "an answer"); r.err != nil || r.StatusCode != http.StatusOK {
			t.Fatalf("%v, %q", r.err, r.body)
		}
		for _, method := range []string{http.MethodGet, http.MethodPost} {
			for _, body := range []string{"", "body"} {
				answers = append(answers, send(s, method, body))
				begins(false)
			}
		}
	}
	var ends []<-chan error // of what goes on
	for _, head := range []string{"", "Connection: Upgrade\r\nUpgrade: other\r\n"} {
		conn, err := net.Dial("tcp", serve(t, route).Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		fmt.Fprintf(conn, "GET /stream%s HTTP/1.1\r\nHost: shop\r\n%s\r\n", next(), head)
		begins(false)
		ch := make(chan error, 1)
		go func() {
			_, err := io.Copy(io.Discard, conn)
			ch <- err
		}()
		ends = append(ends, ch)
	}
	if err := owner.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	for i, ch := range answers {
		if r := from(t, ch, "an answer"); r.err != nil || r.StatusCode != http.StatusBadGateway || !strings.Contains(r.body, middleware.TypeOwner) {
			t.Errorf("request %d: %v, %q", i, r.err, r.body)
		}
	}
	for _, ch := range ends {
		_ = from(t, ch, "the end of a stream") // with or without an error
	}
	if n := here.Load(); n != 0 {
		t.Errorf("%d of them were executed here", n)
	}
	if text := logged.String(); !strings.Contains(text, "a request was lost on the way to its owner") || !strings.Contains(text, coord.ErrNodeDead.Error()) {
		t.Errorf("logged: %s", text)
	}
	if r := exchange(t.Context(), serve(t, route), http.MethodPost, fmt.Sprint("/?order=", order), ""); r.err != nil || r.StatusCode != http.StatusOK || here.Load() != 1 {
		t.Errorf("a request that comes later: %v, %q, %d executed here", r.err, r.body, here.Load())
	}
}
