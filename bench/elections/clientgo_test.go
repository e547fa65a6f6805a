package main

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/klog/v2"

	"github.com/holdfast-go/holdfast/adapters/adaptertest"
	adapter "github.com/holdfast-go/holdfast/adapters/clientgo"
	"github.com/holdfast-go/holdfast/election"
	"github.com/holdfast-go/holdfast/fallback"
)

// Each candidate's callbacks are called in the same order by client-go's LeaderElector and by Run:
// a leads, b waits, a is told to stop, b leads and is told to stop, and c is told to stop before it
// leads.
func TestRun_AsClientGo(t *testing.T) {
	dir := t.TempDir()
	addr, end, err := startEtcd(dir)
	if err != nil {
		t.Skipf("etcd: %v", err)
	}
	defer end()
	client, err := openEtcd(addr)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	klog.SetSlogLogger(slog.New(slog.DiscardHandler))
	memory := fallback.NewMemory()
	sides := map[string]func(ctx context.Context, id string, callbacks leaderelection.LeaderCallbacks){
		"client-go": func(ctx context.Context, id string, callbacks leaderelection.LeaderCallbacks) {
			leaderelection.RunOrDie(ctx, leaderelection.LeaderElectionConfig{
				Lock: &lease{client: client, id: id, refused: func() {}}, LeaseDuration: 3 * time.Second, RenewDeadline: 2 * time.Second, RetryPeriod: 50 * time.Millisecond,
				ReleaseOnCancel: true, Callbacks: callbacks,
			})
		},
		"holdfast": func(ctx context.Context, id string, callbacks leaderelection.LeaderCallbacks) {
			e, err := election.New(adaptertest.Start(t, memory, nil), "x", &election.Options{ID: id})
			if err != nil {
				t.Error(err)
				return
			}
			adapter.RunOrDie(ctx, e, adapter.LeaderCallbacks(callbacks)) // the one converts to the other
		},
	}
	seen := map[string][]string{}
	for side, run := range sides {
		t.Run(side, func(t *testing.T) {
			var mu sync.Mutex // protects events
			var events []string
			happened := make(chan string, 100)
			note := func(event string) {
				mu.Lock()
				defer mu.Unlock()
				events = append(events, event)
				happened <- event
			}
			await := func(event string) {
				for e := range happened {
					if e == event {
						return
					}
				}
			}
			start := func(id string) (sigterm func()) {
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan struct{})
				go func() {
					defer close(done)
					run(ctx, id, leaderelection.LeaderCallbacks{
						OnStartedLeading: func(ctx context.Context) { note(id + " leads"); <-ctx.Done() },
						OnStoppedLeading: func() { note(id + " has stopped") },
						OnNewLeader: func(leader string) {
							if leader == id {
								happened <- id + " knows"
							}
						},
					})
				}()
				return func() { cancel(); <-done }
			}
			a := start("a")
			await("a leads")
			b, c := start("b"), start("c")
			c()
			a()
			await("b leads")
			b()
			mu.Lock()
			defer mu.Unlock()
			slices.SortStableFunc(events, func(a, b string) int { return cmp.Compare(a[0], b[0]) })
			seen[side] = events
		})
	}
	if want := []string{"a leads", "a has stopped", "b leads", "b has stopped", "c has stopped"}; !slices.Equal(seen["client-go"], want) || !slices.Equal(seen["holdfast"], want) {
		t.Errorf("%v, want %v", seen, want)
	}
}
