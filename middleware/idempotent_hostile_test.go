package middleware_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/middleware"
)

// The lock is lost while the store takes its time over the record that the request is begun.
func TestIdempotentLockLostBeforeTheHandler(t *testing.T) {
	store := newFailing()
	s := open(t, 2, store, nil, func(n int64, w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "run ", n) })
	s.losing = true
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	lose := func(context.Context) error {
		s.nodes[0].Close(ended)
		return nil
	}
	store.put.Store(&lose)
	s.post(0, "x").is(t, http.StatusServiceUnavailable, middleware.TypeUnavailable)
	store.put.Store(nil)
	if s.runs.Load() != 0 {
		t.Error("the handler ran without the lock")
	}
	s.post(1, "x").is(t, http.StatusOK, "run 1") // nothing has happened, and that is known
}

// A middleware that reads the body before leaves nothing to compare: another payment would be taken
// for the same one.
func TestIdempotentBodyThatWasReadBefore(t *testing.T) {
	const form = "application/x-www-form-urlencoded"
	c := start(t, fallback.NewMemory(), nil)
	for name, read := range map[string]func(r *http.Request){
		"a form":                   func(r *http.Request) { r.ParseForm() },
		"a form of unknown length": func(r *http.Request) { r.ContentLength = -1; r.ParseForm() },
		"all":                      func(r *http.Request) { io.ReadAll(r.Body) },
	} {
		var logs bytes.Buffer
		runs := 0
		h := middleware.Idempotent(c, middleware.NewMemoryStore(nil), middleware.Unscoped, &middleware.IdempotentOptions{
			Logger: slog.New(slog.NewTextHandler(&logs, nil)),
		})(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { runs++ }))
		r := httptest.NewRequest(http.MethodPost, "/pay", strings.NewReader("eur=1"))
		r.Header.Set("Content-Type", form)
		r.Header.Set("Idempotency-Key", "k")
		read(r)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != http.StatusInternalServerError || !strings.Contains(w.Body.String(), middleware.TypeMisconfigured) || runs != 0 {
			t.Errorf("%s: %d %s, %d runs", name, w.Code, w.Body, runs)
		}
		if !strings.Contains(logs.String(), "has been read") {
			t.Errorf("%s: log %q", name, &logs)
		}
	}
	// A middleware that asks for a form value where there is none has read nothing.
	h := middleware.Idempotent(c, middleware.NewMemoryStore(nil), middleware.Unscoped, nil)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(w, r.Body)
	}))
	r := httptest.NewRequest(http.MethodPost, "/pay?a=b", strings.NewReader("{}"))
	r.Header.Set("Idempotency-Key", "k")
	r.FormValue("a")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	if w.Code != http.StatusOK || w.Body.String() != "{}" {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

func TestIdempotentNoLimitOfBodies(t *testing.T) {
	s := open(t, 1, nil, &middleware.IdempotentOptions{MaxRequest: math.MaxInt64}, func(_ int64, w http.ResponseWriter, r *http.Request) {
		io.Copy(w, r.Body)
	})
	s.post(0, "1 EUR").is(t, http.StatusOK, "1 EUR")
	s.post(0, "2 EUR").is(t, http.StatusUnprocessableEntity, middleware.TypeReused)
}

// A request that is repeated by another way is the same: by TLS or not, from the client with a
// certificate or another one, or forwarded by a node with its own. Clients' claims about the way
// are not believed.
func TestIdempotentWhicheverWayItComes(t *testing.T) {
	c := start(t, fallback.NewMemory(), nil)
	runs := 0
	h := middleware.Idempotent(c, middleware.NewMemoryStore(nil), middleware.Unscoped, nil)(http.HandlerFunc(
		func(w http.ResponseWriter, _ *http.Request) {
			runs++
			w.WriteHeader(http.StatusOK)
		}))
	of := func(cert string) *tls.ConnectionState {
		return &tls.ConnectionState{PeerCertificates: []*x509.Certificate{{Raw: []byte(cert)}}}
	}
	for _, state := range []*tls.ConnectionState{nil, {}, of("client"), of("client, renewed"), of("node A")} {
		for _, hop := range []bool{false, true} {
			r := httptest.NewRequest(http.MethodPost, "/pay", nil)
			r.Header.Set("Idempotency-Key", "k")
			r.TLS = state
			if hop {
				r.Header.Set(middleware.HopHeader, "1")
			}
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			if w.Code != http.StatusOK || runs != 1 {
				t.Errorf("TLS %v, hop %v: %d %s, %d runs", state, hop, w.Code, w.Body, runs)
			}
		}
	}
}

// A handler outside may give several paths to one handler, and pass on the original in another way.
func TestIdempotentPathsThatWereChanged(t *testing.T) {
	c := start(t, fallback.NewMemory(), nil)
	h := tenants(middleware.Idempotent(c, middleware.NewMemoryStore(nil), middleware.Unscoped, nil))
	for i, tenant := range []string{"a", "b", "a", "b"} {
		r := httptest.NewRequest(http.MethodPost, "/"+tenant+"/pay", nil)
		r.Header.Set("Idempotency-Key", "k")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if tenant == "b" {
			if w.Code != http.StatusUnprocessableEntity {
				t.Errorf("tenant b got %d %q", w.Code, w.Body)
			}
			continue
		}
		if w.Body.String() != "for a" || (w.Header().Get(middleware.ReplayedHeader) != "") != (i > 1) {
			t.Errorf("tenant a got %q %v", w.Body, w.Header())
		}
	}
}

// tenants makes the first segment of a path disappear before mw, for a handler that looks it up
// elsewhere.
func tenants(mw func(http.Handler) http.Handler) http.Handler {
	h := mw(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "for ", r.PathValue("tenant")) }))
	mux := http.NewServeMux()
	mux.HandleFunc("/{tenant}/", func(w http.ResponseWriter, r *http.Request) {
		http.StripPrefix("/"+r.PathValue("tenant"), h).ServeHTTP(w, r)
	})
	return mux
}

// A handler that writes more than it has announced is told so, and the rest is answered, as without
// the middleware.
func TestAnswersThatAreLongerThanAnnounced(t *testing.T) {
	c := start(t, fallback.NewMemory(), nil)
	h := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "5")
		io.WriteString(w, "hello")
		if n, err := io.WriteString(w, "\n"); n != 0 || !errors.Is(err, http.ErrContentLength) {
			t.Errorf("%d, %v", n, err)
		}
	})
	s := serving(t, middleware.Coalesce(nil, nil, nil)(middleware.Idempotent(c, middleware.NewMemoryStore(nil), middleware.Unscoped, nil)(h)))
	for _, method := range []string{"GET", "POST", "POST"} {
		exchange(t.Context(), s, method, "/", "", "Idempotency-Key", "k").is(t, http.StatusOK, "hello")
	}
}

// A request whose turn does not come in time has not been executed: that is no answer to be
// repeated for a day.
func TestIdempotentAroundSerialize(t *testing.T) {
	for _, status := range []int{http.StatusLocked, http.StatusConflict} {
		c := start(t, fallback.NewMemory(), nil)
		idempotent := middleware.Idempotent(c, middleware.NewMemoryStore(nil), middleware.Unscoped, nil)
		serialize := middleware.Serialize(c, byOrder, &middleware.SerializeOptions{Wait: -1, LockedStatus: status})
		h := serialize(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "paid") }))
		between := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { h.ServeHTTP(wrapped{w}, r) })
		s := serving(t, idempotent(between))
		l, err := c.Lock(t.Context(), "order/1")
		if err != nil {
			t.Fatal(err)
		}
		post := func() reply {
			return exchange(t.Context(), s, "POST", "/pay?order=1", "", "Idempotency-Key", "k", "Host", "shop")
		}
		post().is(t, status, middleware.TypeLocked)
		post().is(t, status, middleware.TypeLocked)
		l.Unlock()
		for i := range 2 {
			r := post()
			r.is(t, http.StatusOK, "paid")
			if r.replayed() != (i == 1) {
				t.Error(r.Header)
			}
		}
	}
}

// wrapped is a ResponseWriter as middlewares wrap it.
type wrapped struct{ http.ResponseWriter }

func (w wrapped) Unwrap() http.ResponseWriter { return w.ResponseWriter }
