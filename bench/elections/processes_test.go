package main

import (
	"context"
	"testing"

	"k8s.io/client-go/tools/leaderelection"

	"github.com/holdfast-go/holdfast/adapters/adaptertest/processtest"
	adapter "github.com/holdfast-go/holdfast/adapters/clientgo"
	"github.com/holdfast-go/holdfast/adapters/locker"
	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/election"
)

// The adapters of the main module, whose own tests need no Redis.

func TestRun_Processes(t *testing.T) {
	processtest.Run(t, func(t *testing.T, c *coord.Coordinator, key string, section func(context.Context) error) error {
		e, err := election.New(c, key, nil)
		if err != nil {
			return err
		}
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		var failed error
		err = adapter.Run(ctx, e, adapter.LeaderCallbacks(leaderelection.LeaderCallbacks{
			OnStartedLeading: func(ctx context.Context) { defer stop(); failed = section(ctx) },
			OnStoppedLeading: func() {},
		}))
		if failed != nil {
			return failed
		}
		return err
	})
}

func TestLocker_Processes(t *testing.T) {
	processtest.Run(t, func(t *testing.T, c *coord.Coordinator, key string, section func(context.Context) error) error {
		m := locker.New(t.Context(), c, key)
		m.Lock()
		defer m.Unlock()
		return section(m.Held().Context())
	})
}
