package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"
)

// The store keeps the orders, a network hop away as a database is, and obeys: the last write wins.
// It is the referee as well, since it sees all reads and writes, of all processes, in one order.
//
//	GET    /orders/{id}    the order; the section that the header names has begun
//	PUT    /orders/{id}    the body is the order now; the section has ended
//	DELETE /orders/{id}    the section has ended without a write
const (
	sectionHeader = "Section" // names one read and the write that follows it; never used twice
	fenceHeader   = "Fence"   // the fencing token of the lock, in decimal; of PUT only
)

// A storeServer serves the ledgers of one rung by HTTP. It waits for nothing while it has mu, so
// the network is the slower part.
type storeServer struct {
	url    string
	fenced bool // writes must have tokens
	server *http.Server
	served chan struct{} // closed when the server has ended

	mu      sync.Mutex         // protects ledgers, and their content
	ledgers map[string]*ledger // by order
}

// startStore serves a store without orders on a free port of the loopback interface. An order that
// was never written has no items.
func startStore(fenced bool) (*storeServer, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	s := &storeServer{
		url:     "http://" + listener.Addr().String(),
		fenced:  fenced,
		served:  make(chan struct{}),
		ledgers: make(map[string]*ledger),
	}
	s.server = &http.Server{Handler: s.handler(), ReadHeaderTimeout: 10 * time.Second}
	go func() {
		defer close(s.served)
		_ = s.server.Serve(listener) // until close
	}()
	return s, nil
}

func (s *storeServer) close() {
	s.server.Close()
	<-s.served
}

func (s *storeServer) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /orders/{id}", func(w http.ResponseWriter, r *http.Request) {
		section := r.Header.Get(sectionHeader)
		if section == "" {
			http.Error(w, "no "+sectionHeader+" header", http.StatusBadRequest)
			return
		}
		var found record
		s.with(r, func(l *ledger) { found = l.read(section) })
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(found) // the client has gone
	})
	mux.HandleFunc("PUT /orders/{id}", func(w http.ResponseWriter, r *http.Request) {
		var put record
		if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<10)).Decode(&put); err != nil {
			http.Error(w, "body: "+err.Error(), http.StatusBadRequest)
			return
		}
		var fence uint64
		if text := r.Header.Get(fenceHeader); text != "" {
			var err error
			if fence, err = strconv.ParseUint(text, 10, 64); err != nil {
				http.Error(w, fenceHeader+": "+err.Error(), http.StatusBadRequest)
				return
			}
		}
		var err error
		s.with(r, func(l *ledger) { err = l.write(r.Header.Get(sectionHeader), put, fence) })
		if err != nil {
			http.Error(w, err.Error(), http.StatusConflict)
			return
		}
		w.WriteHeader(http.StatusNoContent)
	})
	mux.HandleFunc("DELETE /orders/{id}", func(w http.ResponseWriter, r *http.Request) {
		s.with(r, func(l *ledger) { l.leave(r.Header.Get(sectionHeader)) })
		w.WriteHeader(http.StatusNoContent)
	})
	return mux
}

// with calls f with the ledger of the request's order.
func (s *storeServer) with(r *http.Request, f func(*ledger)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	id := r.PathValue("id")
	l := s.ledgers[id]
	if l == nil {
		l = &ledger{fenced: s.fenced, open: make(map[string]struct{})}
		s.ledgers[id] = l
	}
	f(l)
}

// findings returns the referee's counts until now.
func (s *storeServer) findings() findings {
	s.mu.Lock()
	defer s.mu.Unlock()
	var sum findings
	for _, l := range s.ledgers {
		sum.add(l.seen)
	}
	return sum
}

// A store is a process's way to the storeServer.
type store struct {
	url    string
	client *http.Client
}

// newStore has room for one connection per caller, so that none is closed and opened again for the
// next call.
func newStore(url string, callers int) *store {
	return &store{url, &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: callers}, Timeout: 10 * time.Second}}
}

func (s *store) close() { s.client.CloseIdleConnections() }

func (s *store) read(ctx context.Context, id, section string) (record, error) {
	var found record
	body, err := s.call(ctx, http.MethodGet, id, http.Header{sectionHeader: {section}}, nil)
	if err == nil {
		err = json.Unmarshal(body, &found)
	}
	return found, err
}

// write sends the token as well, if fence is not 0. After an error the store may have the record
// all the same.
func (s *store) write(ctx context.Context, id, section string, r record, fence uint64) error {
	body, err := json.Marshal(r)
	if err != nil {
		return err
	}
	header := http.Header{sectionHeader: {section}}
	if fence != 0 {
		header.Set(fenceHeader, strconv.FormatUint(fence, 10))
	}
	_, err = s.call(ctx, http.MethodPut, id, header, body)
	return err
}

// leave ends a section that has not written.
func (s *store) leave(ctx context.Context, id, section string) error {
	_, err := s.call(ctx, http.MethodDelete, id, http.Header{sectionHeader: {section}}, nil)
	return err
}

func (s *store) call(ctx context.Context, method, id string, header http.Header, body []byte) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, s.url+"/orders/"+url.PathEscape(id), bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header = header
	res, err := s.client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(res.Body)
	if err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	if res.StatusCode >= 300 {
		return nil, fmt.Errorf("store: %s: %s", res.Status, strings.TrimSpace(string(answer)))
	}
	return answer, nil
}
