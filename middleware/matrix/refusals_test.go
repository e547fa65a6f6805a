package main

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/await"
	"github.com/holdfast-go/holdfast/middleware"
)

// A call of grpc-go that Serialize does not let through gets a status that says how to go on.
func TestSerialize_RefusalsOfGRPC(t *testing.T) {
	c, err := coord.New(t.Context(), fallback.NewMemory(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(context.Background())
	ended, err := coord.New(t.Context(), fallback.NewMemory(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := ended.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	call := func(mw func(http.Handler) http.Handler, headers ...string) error {
		s := httptest.NewUnstartedServer(mw(grpcServer))
		s.Config.Protocols = new(http.Protocols)
		s.Config.Protocols.SetUnencryptedHTTP2(true)
		s.Start()
		defer s.Close()
		conn, err := grpc.NewClient(s.Listener.Addr().(*net.TCPAddr).String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		ctx, cancel := context.WithTimeout(metadata.AppendToOutgoingContext(t.Context(), headers...), 20*time.Second)
		defer cancel()
		return conn.Invoke(ctx, "/shop.Orders/Pay", wrapperspb.String("x"), &wrapperspb.StringValue{})
	}
	l, err := c.Lock(t.Context(), "order/1")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Unlock()
	full := middleware.Serialize(c, byOrder, &middleware.SerializeOptions{MaxWaiters: 1})
	fill, leave := context.WithCancel(t.Context())
	gone := make(chan struct{})
	waiters := httptest.NewServer(full(http.NotFoundHandler()))
	defer waiters.Close()
	for range 2 { // one that runs, as far as is counted, and one that waits
		go func() {
			defer func() { gone <- struct{}{} }()
			r, _ := http.NewRequestWithContext(fill, http.MethodPost, waiters.URL, http.NoBody)
			r.Header.Set("Order", "1")
			if res, err := waiters.Client().Do(r); err == nil {
				res.Body.Close()
			}
		}()
	}
	await.Until(t, "two wait", func() bool { return c.Stats().Waiting == 2 })
	for name, x := range map[string]struct {
		mw    func(http.Handler) http.Handler
		order string
		want  codes.Code
	}{
		"free":            {middleware.Serialize(c, byOrder, nil), "2", codes.OK},
		"locked":          {middleware.Serialize(c, byOrder, &middleware.SerializeOptions{Wait: 50 * time.Millisecond}), "1", codes.Aborted},
		"locked, no wait": {middleware.Serialize(c, byOrder, &middleware.SerializeOptions{Wait: -1}), "1", codes.Aborted},
		"too many":        {full, "1", codes.ResourceExhausted},
		"closed":          {middleware.Serialize(ended, byOrder, nil), "1", codes.Unavailable},
		"no key":          {middleware.Serialize(c, byOrder, nil), "", codes.InvalidArgument},
	} {
		if err := call(x.mw, "order", x.order); status.Code(err) != x.want {
			t.Errorf("%s: %v, want %v", name, err, x.want)
		}
	}
	leave()
	<-gone
	<-gone
}
