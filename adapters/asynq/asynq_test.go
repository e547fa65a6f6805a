package asynq_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	lib "github.com/hibiken/asynq"

	"github.com/holdfast-go/holdfast/adapters/adaptertest"
	"github.com/holdfast-go/holdfast/adapters/adaptertest/processtest"
	"github.com/holdfast-go/holdfast/adapters/asynq"
	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/leak"
	"github.com/holdfast-go/holdfast/internal/redistest"
)

func TestMain(m *testing.M) { leak.Main(m) }

// servers are asynq's servers, one per process.
type servers struct {
	t      *testing.T
	redis  lib.RedisClientOpt
	client *lib.Client
	mu     sync.Mutex // protects the fields below
	queues map[*coord.Coordinator]string
	tasks  map[string]func(context.Context) error // by payload
	errs   map[string]chan error
}

func newServers(t *testing.T) *servers {
	s := &servers{t: t, redis: lib.RedisClientOpt{Addr: redistest.Start(t).Addr}, queues: make(map[*coord.Coordinator]string),
		tasks: make(map[string]func(context.Context) error), errs: make(map[string]chan error)}
	s.client = lib.NewClient(s.redis)
	t.Cleanup(func() { s.client.Close() })
	return s
}

// queue returns the queue of a process, and starts its server.
func (s *servers) queue(c *coord.Coordinator) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if q := s.queues[c]; q != "" {
		return q
	}
	q := fmt.Sprint("queue-", len(s.queues))
	s.queues[c] = q
	serialize, err := asynq.Serialize(c, func(_ context.Context, t *lib.Task) string {
		key, _, _ := strings.Cut(string(t.Payload()), " ")
		return key
	}, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	mux := lib.NewServeMux()
	mux.Use(func(h lib.Handler) lib.Handler { // around the lock
		return lib.HandlerFunc(func(ctx context.Context, t *lib.Task) error {
			err := h.ProcessTask(ctx, t)
			s.mu.Lock()
			defer s.mu.Unlock()
			s.errs[string(t.Payload())] <- err
			return err
		})
	}, serialize)
	mux.HandleFunc("section", func(ctx context.Context, t *lib.Task) error {
		s.mu.Lock()
		section := s.tasks[string(t.Payload())]
		s.mu.Unlock()
		return section(ctx)
	})
	server := lib.NewServer(s.redis, lib.Config{Queues: map[string]int{q: 1}, Concurrency: 10, TaskCheckInterval: 20 * time.Millisecond, LogLevel: lib.FatalLevel})
	if err := server.Start(mux); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(server.Shutdown)
	return q
}

func (s *servers) section(_ *testing.T, c *coord.Coordinator, key string, section func(context.Context) error) error {
	q, payload, done := s.queue(c), key+" "+rand.Text(), make(chan error, 1)
	s.mu.Lock()
	s.tasks[payload], s.errs[payload] = section, done
	s.mu.Unlock()
	if _, err := s.client.Enqueue(lib.NewTask("section", []byte(payload)), lib.Queue(q), lib.MaxRetry(0)); err != nil {
		return err
	}
	return <-done
}

func TestSerialize(t *testing.T) {
	s := newServers(t)
	adaptertest.Run(t, adaptertest.Fixture{RealTime: true, Section: s.section})
}

func TestSerialize_Processes(t *testing.T) {
	s := newServers(t)
	processtest.Run(t, s.section)
}

func TestSerialize_Waits(t *testing.T) {
	c := adaptertest.Start(t, fallback.NewMemory(), nil)
	key := func(_ context.Context, t *lib.Task) string { return t.Type() }
	serialize, err := asynq.Serialize(c, key, &asynq.Options{Wait: 200 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := asynq.Serialize(c, key, &asynq.Options{Wait: 10}); err == nil || !strings.Contains(err.Error(), "Options.Wait is 10ns") {
		t.Errorf("a Wait of 10 ns: %v", err)
	}
	ran := 0
	h := serialize(lib.HandlerFunc(func(ctx context.Context, _ *lib.Task) error {
		ran++
		if _, err := c.Lock(ctx, "k"); !errors.Is(err, coord.ErrHeld) { // the context carries the lock
			t.Errorf("Lock in the handler: %v", err)
		}
		return nil
	}))
	if err := h.ProcessTask(t.Context(), lib.NewTask("k", nil)); err != nil {
		t.Error(err)
	}
	l, err := c.Lock(t.Context(), "k")
	if err != nil {
		t.Fatal(err)
	}
	if err := h.ProcessTask(t.Context(), lib.NewTask("k", nil)); !errors.Is(err, coord.ErrLocked) || ran != 1 {
		t.Errorf("%v, %d runs", err, ran)
	}
	l.Unlock()
	if _, err := asynq.Serialize(nil, nil, nil); err == nil {
		t.Error("nil was accepted")
	}
}

func ExampleSerialize() {
	ctx, locks := context.Background(), adaptertest.Locks()
	serialize, err := asynq.Serialize(locks, func(_ context.Context, t *lib.Task) string { return "order/" + string(t.Payload()) }, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	mux := lib.NewServeMux()
	mux.Use(serialize)
	mux.HandleFunc("ship", func(context.Context, *lib.Task) error { fmt.Println("shipped"); return nil })
	fmt.Println(mux.ProcessTask(ctx, lib.NewTask("ship", []byte("7"))))
	fmt.Println(locks.Close(ctx))
	// Output:
	// shipped
	// <nil>
	// <nil>
}
