package workers

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestEveryFunctionRunsOnce(t *testing.T) {
	var p Pool
	var n atomic.Int64
	var work sync.WaitGroup
	for range 8 {
		work.Go(func() {
			for range 1000 {
				done := make(chan struct{})
				p.Go(func() { n.Add(1); close(done) })
				<-done
			}
		})
	}
	work.Wait()
	p.Close()
	if n.Load() != 8000 {
		t.Errorf("%d", n.Load())
	}
}

func TestNobodyWaitsForAFreeGoroutine(t *testing.T) {
	var p Pool
	const n = 4 * maxIdle
	var started sync.WaitGroup
	started.Add(n)
	release := make(chan struct{})
	for range n {
		p.Go(func() { started.Done(); <-release })
	}
	started.Wait() // all at the same time
	close(release)
	p.Close()
}

func TestAGoroutineIsUsedAgain(t *testing.T) {
	var p Pool
	defer p.Close()
	p.Go(func() {})
	for { // until it is idle
		p.mu.Lock()
		n := len(p.idle)
		p.mu.Unlock()
		if n == 1 {
			break
		}
		runtime.Gosched()
	}
	w := p.idle[0]
	p.Go(func() {})
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.idle) == 1 && p.idle[0] != w {
		t.Error("a new one")
	}
}

func TestGoexitEndsTheGoroutineOnly(t *testing.T) {
	var p Pool
	p.Go(runtime.Goexit)
	done := make(chan struct{})
	p.Go(func() { close(done) })
	<-done
	p.Close()
}

func TestCloseWaits(t *testing.T) {
	var p Pool
	var n atomic.Int64
	for range 100 {
		p.Go(func() { runtime.Gosched(); n.Add(1) })
	}
	p.Close()
	if n.Load() != 100 {
		t.Errorf("%d of 100 had run", n.Load())
	}
	done := make(chan struct{})
	p.Go(func() { close(done) })
	<-done
	p.Close()
}
