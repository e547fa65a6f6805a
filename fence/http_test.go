package fence_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/fence"
	"github.com/holdfast-go/holdfast/middleware"
)

func newLocks(t *testing.T) *coord.Coordinator {
	t.Helper()
	locks, err := coord.New(t.Context(), fallback.NewMemory(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { locks.Close(context.Background()) })
	return locks
}

// A service keeps a number. Its clients read it and write one more, under locks that it knows
// nothing of.
func TestHTTP_LateWrite(t *testing.T) {
	var memory fence.Memory
	n := 0 // one request at a time
	server := httptest.NewServer(memory.Handler(func(r *http.Request) string { return r.URL.Path },
		http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodGet {
				fmt.Fprint(w, n)
				return
			}
			body, _ := io.ReadAll(r.Body)
			fmt.Sscan(string(body), &n)
		})))
	t.Cleanup(server.Close)
	base := &http.Transport{}
	t.Cleanup(base.CloseIdleConnections)
	client := &http.Client{Transport: fence.Transport(base)}
	send := func(ctx context.Context, method, body string) (int, string, http.Header) {
		r, err := http.NewRequestWithContext(ctx, method, server.URL+"/n", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		resp, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		text, _ := io.ReadAll(resp.Body)
		return resp.StatusCode, string(text), resp.Header
	}
	// The holders do not exclude each other, as if the earlier one had been stopped for long: each
	// has an arbiter of its own. Tokens count up within a second.
	lock := func(locks *coord.Coordinator) coord.Lock {
		l, err := locks.Lock(t.Context(), "n")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Unlock() })
		return l
	}
	earlier, others := lock(newLocks(t)), newLocks(t)
	for range 3 {
		lock(others).Unlock()
	}
	later := lock(others)
	if earlier.Fence() >= later.Fence() {
		t.Fatalf("tokens %d and %d", earlier.Fence(), later.Fence())
	}
	if status, text, _ := send(earlier.Context(), http.MethodGet, ""); status != 200 || text != "0" {
		t.Fatalf("the earlier holder reads %d, %s", status, text)
	}
	if status, text, _ := send(later.Context(), http.MethodGet, ""); status != 200 || text != "0" {
		t.Fatalf("the later holder reads %d, %s", status, text)
	}
	status, _, header := send(earlier.Context(), http.MethodPut, "1")
	if status != http.StatusPreconditionFailed || header.Get(fence.Header) != later.Fence().String() {
		t.Errorf("the late write: %d, %v", status, header)
	}
	if status, _, _ := send(later.Context(), http.MethodPut, "1"); status != 200 || n != 1 {
		t.Errorf("the later holder writes: %d; the number is %d", status, n)
	}
	if status, _, _ := send(t.Context(), http.MethodPut, "7"); status != http.StatusPreconditionRequired {
		t.Errorf("without a token: %d", status)
	}
	if status, text, _ := send(t.Context(), http.MethodGet, ""); status != 200 || text != "1" {
		t.Errorf("reading without a token: %d, %s", status, text)
	}
}

func TestRequire_RefusesWhatIsNoToken(t *testing.T) {
	h := fence.Require(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("it is let through") }))
	for _, text := range []string{"0", "-1", "x", "1.5", "18446744073709551616"} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Header.Set(fence.Header, text)
		w := httptest.NewRecorder()
		if h.ServeHTTP(w, r); w.Code != http.StatusBadRequest {
			t.Errorf("%q: %d", text, w.Code)
		}
	}
}

// A lock that is lost sends nothing, nor does one for reading that is over.
func TestTransport_Over(t *testing.T) {
	locks := newLocks(t)
	lost, err := locks.Lock(t.Context(), "lost")
	if err != nil {
		t.Fatal(err)
	}
	inner, err := locks.Lock(lost.Context(), "inner")
	if err != nil {
		t.Fatal(err)
	}
	read, err := locks.RLock(t.Context(), "read")
	if err != nil {
		t.Fatal(err)
	}
	outer, within, reader := lost.Context(), inner.Context(), read.Context()
	if err := locks.Break(t.Context(), "lost", lost.Fence(), "a test"); err != nil {
		t.Fatal(err)
	}
	lost.Unlock()
	inner.Unlock()
	read.Unlock()
	for ctx, want := range map[context.Context]error{outer: coord.ErrLost, within: coord.ErrLost, reader: coord.ErrUnlocked} {
		body := &closing{Reader: strings.NewReader("x")}
		r, _ := http.NewRequest(http.MethodPut, "http://127.0.0.1:1", body)
		client := fence.Transport(nil)
		//nolint:bodyclose // there is no response
		if _, err := client.RoundTrip(r.WithContext(context.WithoutCancel(ctx))); !errors.Is(err, want) || !body.closed {
			t.Errorf("got %v, want %v; closed: %t", err, want, body.closed)
		}
	}
}

// A handler that has unlocked early goes on, without the lock's token. One further out counts then.
func TestTransport_EarlyUnlock(t *testing.T) {
	tokens := make(chan string, 1)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { tokens <- r.Header.Get(fence.Header) }))
	t.Cleanup(server.Close)
	base := &http.Transport{}
	t.Cleanup(base.CloseIdleConnections)
	client := &http.Client{Transport: fence.Transport(base)}
	sent := func(ctx context.Context) string {
		r, err := http.NewRequestWithContext(ctx, http.MethodPut, server.URL, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := client.Do(r)
		if err != nil {
			t.Error(err)
			return err.Error()
		}
		resp.Body.Close()
		return <-tokens
	}
	locks := newLocks(t)
	outer, inner := middleware.Serialize(locks, middleware.Key("outer"), nil), middleware.Serialize(locks, middleware.Key("inner"), nil)
	outer(inner(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		all := middleware.Locks(r.Context())
		for i, want := range []string{all[0].Fence().String(), all[1].Fence().String(), ""} {
			if got := sent(r.Context()); got != want {
				t.Errorf("with %d locks unlocked: token %q, want %q", i, got, want)
			}
			if i < len(all) {
				all[i].Unlock()
			}
		}
	}))).ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/", nil))
}

type closing struct {
	io.Reader
	closed bool
}

func (c *closing) Close() error { c.closed = true; return nil }

func TestMemory(t *testing.T) {
	var m fence.Memory
	var work sync.WaitGroup
	n := 0 // one at a time
	for token := range coord.Fence(50) {
		work.Go(func() {
			err := m.Do(t.Context(), "k", token+1, func() error { n++; return nil })
			if err != nil && !errors.Is(err, fence.ErrStale) {
				t.Error(err)
			}
		})
	}
	work.Wait()
	if n == 0 {
		t.Error("none has run")
	}
	if err := m.Do(t.Context(), "k", 49, func() error { t.Error("a stale one runs"); return nil }); !errors.Is(err, fence.ErrStale) {
		t.Errorf("got %v", err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := m.Do(t.Context(), "k", 50, func() error {
		return m.Do(ended, "k", 50, func() error { t.Error("two at a time"); return nil })
	}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}
