//go:build linux

package main

import (
	"runtime"
	"sync"
	"testing"

	"github.com/holdfast-go/holdfast/internal/workers"
)

func TestBusyGoroutinesAreCountedWithoutThoseThatWaitForWork(t *testing.T) {
	var p workers.Pool
	defer p.Close()
	work := make(chan struct{})
	var started, ended sync.WaitGroup
	const n = 20
	started.Add(n)
	ended.Add(n)
	for range n {
		p.Go(func() { defer ended.Done(); started.Done(); <-work })
	}
	started.Wait()
	with := busyGoroutines()
	if with < n {
		t.Errorf("%d", with)
	}
	close(work)
	ended.Wait()
	for busyGoroutines() > with-n { // they are about to be idle; others, of tests before, may have ended as well
		runtime.Gosched()
	}
	if all := runtime.NumGoroutine(); all < n {
		t.Errorf("%d goroutines: none is idle", all)
	}
}
