//go:build linux

package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	client "github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/debug"
	"github.com/holdfast-go/holdfast/fallback/redisarbiter"
	"github.com/holdfast-go/holdfast/gossip"
	"github.com/holdfast-go/holdfast/metrics/prometheus"
)

// nodeVariable makes a process of this program a node, which gets its order in it.
const nodeVariable = "HOLDFAST_DRILL_NODE"

// An order is the parameters of a node's process.
type order struct {
	Name     string
	Redis    string // host:port
	HTTP     string // host:port to serve on
	PeerKeys [][]byte
	LongWait time.Duration
}

// namespace is the application's.
const namespace = "shop"

// child runs the node of the environment's order, if there is one. Then this process is not the one
// that commits faults.
func child() (mine bool, err error) {
	text := os.Getenv(nodeVariable)
	if text == "" {
		return false, nil
	}
	var o order
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		return true, err
	}
	return true, o.run()
}

// A task is a node's work from POST /task until POST /stop.
type task struct {
	Do      string // hold, wait, hammer or try
	Key     string
	Label   string
	Callers int           // of wait and hammer
	Hold    time.Duration // of hammer, for each lock
	Waits   time.Duration // of hammer: for how long a caller waits; 0: until the end of the task
}

// run is a service that locks, as an application would have it: a page, metrics, and requests that
// take locks. It ends with its input.
func (o *order) run() error {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	c := redis.NewClient(&redis.Options{Addr: o.Redis, ContextTimeoutEnabled: true, MaxRetries: -1})
	defer c.Close()
	waits := prometheus.NewWaits(nil)
	locks, err := coord.New(ctx, redisarbiter.New(c, &redisarbiter.Options{ColdStart: true}), &coord.Options{
		Namespace: namespace, Name: o.Name, Partitions: 61, LongWait: o.LongWait,
		Logger: slog.New(slog.NewTextHandler(os.Stderr, nil)),
		Trace:  &coord.Trace{Waited: waits.Observe},
		Cluster: &coord.Cluster{
			Membership: gossip.Start, PeerKeys: o.PeerKeys, Debounce: 300 * time.Millisecond, Keepalive: 300 * time.Millisecond,
		},
	})
	if err != nil {
		return err
	}
	registry := client.NewRegistry()
	registry.MustRegister(prometheus.NewCollector(locks, nil), waits)
	s := &service{ctx: ctx, locks: locks}
	mux := http.NewServeMux()
	mux.Handle("/debug/locks/", http.StripPrefix("/debug/locks", debug.Handler(locks, &debug.Options{LongWait: o.LongWait})))
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("POST /task", s.begin)
	mux.HandleFunc("POST /stop", func(http.ResponseWriter, *http.Request) { s.stop() })
	l, err := net.Listen("tcp", o.HTTP)
	if err != nil {
		return err
	}
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	_, _ = io.Copy(io.Discard, os.Stdin)
	s.stop()
	closing, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	return errors.Join(locks.Close(closing), server.Close(), ignore(<-served, http.ErrServerClosed))
}

func ignore(err, expected error) error {
	if errors.Is(err, expected) {
		return nil
	}
	return err
}

// service is the tasks of a node.
type service struct {
	ctx   context.Context
	locks *coord.Coordinator

	mu   sync.Mutex // protects the fields below
	work sync.WaitGroup
	ends []context.CancelFunc
}

// begin begins a task. It answers when that has begun: of hold when the lock is there, of try when
// it is over.
func (s *service) begin(w http.ResponseWriter, r *http.Request) {
	var t task
	if err := json.NewDecoder(r.Body).Decode(&t); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	ctx, cancel := context.WithCancel(coord.WithLabel(s.ctx, t.Label))
	s.ends = append(s.ends, cancel)
	switch t.Do {
	case "hold":
		l, err := s.locks.Lock(ctx, t.Key)
		if err != nil {
			http.Error(w, err.Error(), http.StatusConflict)
			return
		}
		s.work.Go(func() {
			<-ctx.Done()
			_ = l.Unlock()
		})
	case "try":
		ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
		l, err := s.locks.Lock(ctx, t.Key)
		if err != nil {
			http.Error(w, err.Error(), http.StatusConflict)
			return
		}
		_ = l.Unlock()
	case "wait", "hammer":
		for range t.Callers {
			s.work.Go(func() { s.lock(ctx, &t) })
		}
	default:
		http.Error(w, "no such task: "+t.Do, http.StatusBadRequest)
	}
}

// lock waits for a key, and as hammer goes on to lock it. A hold lasts for as long as it is told,
// or until the end of the task.
func (s *service) lock(ctx context.Context, t *task) {
	for ctx.Err() == nil {
		waits, cancel := context.WithCancel(ctx)
		if t.Waits > 0 {
			cancel()
			waits, cancel = context.WithTimeout(ctx, t.Waits)
		}
		err := s.locks.Do(waits, t.Key, func(ctx context.Context, _ coord.Lock) error {
			select {
			case <-time.After(t.Hold):
			case <-ctx.Done():
			}
			return nil
		})
		cancel()
		if t.Do == "wait" || errors.Is(err, coord.ErrClosed) {
			return
		}
		if err != nil {
			select {
			case <-time.After(100 * time.Millisecond): // it may have been refused at once
			case <-ctx.Done():
			}
		}
	}
}

// stop ends all tasks, and returns when they have ended.
func (s *service) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, end := range s.ends {
		end()
	}
	s.ends = nil
	s.work.Wait()
}
