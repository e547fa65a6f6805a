package main

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/holdfast-go/holdfast/internal/await"
)

// lockedBySetnx serves h behind the lock, for POST /orders/{id}.
func lockedBySetnx(t *testing.T, wait time.Duration, h http.HandlerFunc) (http.Handler, *miniredis.Miniredis) {
	t.Helper()
	server := miniredis.RunT(t)
	client := newRedisClient(server.Addr(), 16)
	t.Cleanup(func() { client.Close() })
	s := &setnx{client: client, prefix: "shop", ttl: time.Minute, wait: wait}
	mux := http.NewServeMux()
	mux.Handle("POST /orders/{id}", s.around(h))
	return mux, server
}

func send(h http.Handler, ctx context.Context, target string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodPost, target, nil))
	return w
}

func TestSetnxExcludes(t *testing.T) {
	var inside atomic.Int32
	h, server := lockedBySetnx(t, time.Minute, func(http.ResponseWriter, *http.Request) {
		if inside.Add(1) != 1 {
			t.Error("not alone")
		}
		await.Throughout(t, time.Millisecond, "alone", func() bool { return inside.Load() == 1 })
		inside.Add(-1)
	})
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 5 {
				if w := send(h, t.Context(), "/orders/7"); w.Code != http.StatusOK {
					t.Errorf("%d %s", w.Code, w.Body)
				}
			}
		})
	}
	wg.Wait()
	if keys := server.Keys(); len(keys) > 0 {
		t.Errorf("left: %v", keys)
	}
}

func TestSetnxIsPerOrder(t *testing.T) {
	var h http.Handler
	h, server := lockedBySetnx(t, 0, func(w http.ResponseWriter, r *http.Request) {
		if r.PathValue("id") == "7" {
			if other := send(h, r.Context(), "/orders/8"); other.Code != http.StatusOK {
				t.Errorf("%d %s", other.Code, other.Body)
			}
			if same := send(h, r.Context(), "/orders/7"); same.Code != http.StatusLocked {
				t.Errorf("%d %s", same.Code, same.Body)
			}
		}
	})
	if w := send(h, t.Context(), "/orders/7"); w.Code != http.StatusOK {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	if keys := server.Keys(); len(keys) > 0 {
		t.Errorf("left: %v", keys)
	}
}

// A request that has waited in vain, without a client left, leaves another's lock alone.
func TestSetnxGivesUp(t *testing.T) {
	h, server := lockedBySetnx(t, 50*time.Millisecond, func(http.ResponseWriter, *http.Request) { t.Error("let in") })
	if err := server.Set("shop:7", "somebody's"); err != nil {
		t.Fatal(err)
	}
	if w := send(h, t.Context(), "/orders/7"); w.Code != http.StatusLocked {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if w := send(h, ctx, "/orders/7"); w.Code == http.StatusOK {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	if got, err := server.Get("shop:7"); got != "somebody's" {
		t.Errorf("%q %v", got, err)
	}
}

func TestSetnxUnlocksWhenTheHandlerPanics(t *testing.T) {
	h, server := lockedBySetnx(t, 0, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	func() {
		defer func() {
			if p := recover(); p != http.ErrAbortHandler {
				t.Errorf("recovered %v", p)
			}
		}()
		send(h, t.Context(), "/orders/7")
	}()
	if keys := server.Keys(); len(keys) > 0 {
		t.Errorf("left: %v", keys)
	}
}

func TestSetnxWithoutRedis(t *testing.T) {
	t.Parallel()
	h, server := lockedBySetnx(t, 0, func(http.ResponseWriter, *http.Request) { t.Error("let in") })
	server.Close()
	if w := send(h, t.Context(), "/orders/7"); w.Code != http.StatusServiceUnavailable || !strings.HasPrefix(w.Body.String(), "lock: ") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

// A request that was slower than the ttl does not unlock the present holder's lock.
func TestSetnxUnlocksItsOwnOnly(t *testing.T) {
	var server *miniredis.Miniredis
	h, server := lockedBySetnx(t, 0, func(http.ResponseWriter, *http.Request) {
		if err := server.Set("shop:7", "the next one's"); err != nil {
			t.Error(err)
		}
	})
	send(h, t.Context(), "/orders/7")
	if got, err := server.Get("shop:7"); got != "the next one's" {
		t.Errorf("%q %v", got, err)
	}
}
