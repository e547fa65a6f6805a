//go:build unix

package storetest

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"
)

// A Line is the way of one process to its store. It can be cut: then nothing arrives, in either
// direction, and nothing is refused. Data sent meanwhile arrive afterwards.
type Line struct {
	over <-chan struct{} // closed when the test ends: then it is whole for good

	mu  sync.Mutex
	cut chan struct{} // closed when it is whole again; nil: it is whole
}

// Lines are those of several processes.
type Lines struct {
	mu  sync.Mutex
	all []*Line
	n   int
}

// Another returns the line of one more process of a test.
func (x *Lines) Another(t testing.TB) *Line {
	x.mu.Lock()
	defer x.mu.Unlock()
	l := &Line{over: t.Context().Done()}
	x.all = append(x.all, l)
	return l
}

// Cut cuts the line of the next process for a time. It returns at once.
func (x *Lines) Cut(lasts time.Duration) {
	x.mu.Lock()
	defer x.mu.Unlock()
	l := x.all[x.n%len(x.all)]
	x.n++
	time.AfterFunc(lasts, l.Cut())
}

// CutAll cuts the lines of all processes until heal is called, as an operator keeps processes away
// from a store.
func (x *Lines) CutAll() (heal func()) {
	x.mu.Lock()
	defer x.mu.Unlock()
	var all []func()
	for _, l := range x.all {
		all = append(all, l.Cut())
	}
	return func() {
		for _, heal := range all {
			heal()
		}
	}
}

// Restored are two injuries: a copy of the data is made, and it is put back while all processes are
// away. copied returns the function that puts it back, and marked tells processes that the data are
// others than before.
func (x *Lines) Restored(copied func() (back func()), marked func()) []func() {
	var back func()
	return []func(){
		func() { back = copied() },
		func() {
			heal := x.CutAll()
			defer heal()
			back()
			marked()
		},
	}
}

// Cut cuts the line until heal is called.
func (l *Line) Cut() (heal func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cut != nil {
		return func() {} // it is cut already
	}
	cut := make(chan struct{})
	l.cut = cut
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.cut = nil
		close(cut)
	}
}

// whole waits until it is.
func (l *Line) whole() {
	l.mu.Lock()
	cut := l.cut
	l.mu.Unlock()
	if cut == nil {
		return
	}
	select {
	case <-cut:
	case <-l.over:
	}
}

// Dialer is the dial function of a client library.
type Dialer = func(ctx context.Context, network, address string) (net.Conn, error)

// Through dials by the line.
func (l *Line) Through(dial Dialer) Dialer {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		near, far := net.Pipe()
		go l.carry(conn, far)
		go l.carry(far, conn)
		return near, nil
	}
}

// carry ends when either end is closed, and closes both.
func (l *Line) carry(to, from net.Conn) {
	defer to.Close()
	defer from.Close()
	some := make([]byte, 32<<10)
	for {
		n, err := from.Read(some)
		l.whole()
		if n > 0 {
			if _, err := to.Write(some[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}
