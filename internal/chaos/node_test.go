//go:build linux

package main

import (
	"sync"
	"testing"

	"github.com/holdfast-go/holdfast/internal/workers"
)

func TestBusyGoroutinesAreCountedWithoutThoseThatWaitForWork(t *testing.T) {
	before := busyGoroutines()
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
	if m := busyGoroutines(); m != before+n {
		t.Errorf("%d, %d more than before", m, m-before)
	}
	close(work)
	ended.Wait()
	for busyGoroutines() > before { // they are about to be idle
	}
}
