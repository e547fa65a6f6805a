package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/holdfast-go/holdfast/middleware"
)

// Each process of the service answers:
//
//	POST /orders/{id}/items    adds an item to an order
//	GET  /status               the process's own, for the parent
//
// Adding is a POST, which no proxy and no client on the way repeats by itself: the item would be
// added twice.

// Both limits are the same on all rungs.
const (
	lockTTL  = 10 * time.Second // the locks of a process that has died stay for so long
	lockWait = 10 * time.Second // a request waits for its turn for so long
)

// servedBy is a response header with the number of the process that ran the handler.
const servedBy = "Served-By"

// A service is one process's.
type service struct {
	number   int
	store    *store
	guard    *guard
	commands *commandCount
}

func (s *service) handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("POST /orders/{id}/items", s.guard.around(http.HandlerFunc(s.addItem)))
	mux.HandleFunc("GET /status", s.status)
	return mux
}

// addItem reads the order and writes it back with one item more. It depends on being the only one
// that does so in between; and if another one does after all, because this process stood still
// until its lock was taken away, the token turns the late one down.
func (s *service) addItem(w http.ResponseWriter, r *http.Request) {
	ctx := r.Context() // ends if the lock is lost
	var fence uint64
	if l, ok := middleware.Lock(ctx); ok {
		fence = uint64(l.Fence())
	}
	w.Header().Set(servedBy, fmt.Sprint(s.number))
	added, err := s.add(ctx, r.PathValue("id"), fence)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(added) // the client has gone
}

func (s *service) add(ctx context.Context, id string, fence uint64) (record, error) {
	section := rand.Text()
	found, err := s.store.read(ctx, id, section)
	if err == nil {
		found.Items++
		err = s.store.write(ctx, id, section, found, fence)
	}
	if err != nil {
		// The referee must not wait for this section's write. If it cannot be told, it will see
		// overlaps that were none.
		_ = s.store.leave(context.WithoutCancel(ctx), id, section)
		return record{}, err
	}
	return found, nil
}

// A status is a process's report to its parent.
type status struct {
	Commands int64 `json:"commands"` // sent to Redis since the start
}

func (s *service) status(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(status{Commands: s.commands.Load()})
}
