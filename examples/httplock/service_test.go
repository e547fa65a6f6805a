package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
)

// startService serves in this process, with Serialize on arbiter, or without a lock if arbiter is
// nil.
func startService(t *testing.T, number int, arbiter fallback.Arbiter, storeURL string) string {
	t.Helper()
	g := &guard{around: func(next http.Handler) http.Handler { return next }}
	if arbiter != nil {
		locks, err := coord.New(context.Background(), arbiter, &coord.Options{Partitions: partitions})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { locks.Close(context.Background()) })
		around, _ := serialize(locks, order{Clients: 32})
		g.around, g.locks = around, locks
	}
	orders := newStore(storeURL, 32)
	t.Cleanup(orders.close)
	s := &service{number: number, store: orders, guard: g, commands: &commandCount{}}
	server := httptest.NewServer(s.handler())
	t.Cleanup(server.Close)
	return server.URL
}

// addAll sends requests from 16 clients to all services, for half a second.
func addAll(t *testing.T, urls ...string) tally {
	t.Helper()
	b, err := startBalancer(urls, 16)
	if err != nil {
		t.Fatal(err)
	}
	defer b.close()
	l := &load{url: b.url, clients: 16, resources: 2, duration: 500 * time.Millisecond}
	sum, _ := l.run(t.Context(), func(time.Duration) {})
	return sum
}

func TestServiceWithALock(t *testing.T) {
	server, _ := openStore(t, true)
	arbiter := fallback.NewMemory()
	sum := addAll(t, startService(t, 0, arbiter, server.url), startService(t, 1, arbiter, server.url))
	got := server.findings()
	if want := (findings{writes: sum.confirmed, items: sum.confirmed}); got != want || sum.confirmed == 0 || sum.failed != 0 {
		t.Errorf("%d confirmed, %d failed (%s), %+v", sum.confirmed, sum.failed, sum.failure, got)
	}
}

func TestServiceWithoutALock(t *testing.T) {
	server, _ := openStore(t, false)
	sum := addAll(t, startService(t, 0, nil, server.url), startService(t, 1, nil, server.url))
	got := server.findings()
	if got.writes != sum.confirmed || got.lost() == 0 || got.overlaps == 0 || got.broken == 0 || sum.failed != 0 {
		t.Errorf("%d confirmed, %d failed (%s), %+v", sum.confirmed, sum.failed, sum.failure, got)
	}
}

// A section whose write failed is not open for ever: the next one does not overlap with it.
func TestServiceLeavesTheSection(t *testing.T) {
	server, _ := openStore(t, true) // and the service has no tokens
	url := startService(t, 3, nil, server.url)
	for range 2 {
		status, by, body := post(t, url+"/orders/7/items")
		if status != http.StatusBadGateway || by != "3" || !strings.Contains(body, errFence.Error()) {
			t.Errorf("%d by %s: %s", status, by, body)
		}
	}
	if got, want := server.findings(), (findings{late: 2}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// A lock that is lost before the write has arrived: the write is given up, and does no harm when it
// arrives after all.
func TestServiceWritesNothingWithoutItsLock(t *testing.T) {
	server, client := openStore(t, false)
	ctx, lose := context.WithCancelCause(t.Context())
	left, arrived := make(chan struct{}), make(chan int, 1)
	slow := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPut {
			server.handler().ServeHTTP(w, r)
			if r.Method == http.MethodDelete {
				close(left)
			}
			return
		}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		lose(coord.ErrLost)
		select {
		case <-left:
		case <-time.After(10 * time.Second):
			t.Error("the section is still open")
		}
		late := httptest.NewRecorder()
		server.handler().ServeHTTP(late, r)
		arrived <- late.Code
	}))
	defer slow.Close()
	orders := newStore(slow.URL, 2)
	defer orders.close()
	s := &service{store: orders}
	if _, err := s.add(ctx, "7", 0); !errors.Is(err, coord.ErrLost) {
		t.Errorf("%v", err)
	}
	if code := <-arrived; code != http.StatusConflict {
		t.Errorf("the late write: %d", code)
	}
	if found, err := client.read(t.Context(), "7", "later"); err != nil || found.Items != 0 {
		t.Errorf("%+v, %v", found, err)
	}
	if got := server.findings(); got != (findings{}) {
		t.Errorf("%+v", got)
	}
}

func TestServiceStatus(t *testing.T) {
	server, _ := openStore(t, true)
	res, err := http.Get(startService(t, 0, fallback.NewMemory(), server.url) + "/status")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	defer http.DefaultClient.CloseIdleConnections()
	var got status
	if err := json.NewDecoder(res.Body).Decode(&got); err != nil || got != (status{}) {
		t.Errorf("%+v, %v", got, err)
	}
}
