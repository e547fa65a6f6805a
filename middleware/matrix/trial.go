package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/middleware"
)

// patience is the time that something has to happen within, also on a machine with much else to do.
const patience = 10 * time.Second

// A trial is one run of a scene in one cell of the matrix.
type trial struct {
	pair  *pair
	stack string
	owner int // index of the node that owns the key
	scene *scene
	id    string
	order string

	runs [2]atomic.Int32 // of the handler, by node
	gate chan struct{}   // the scene's client lets the handler go on; closed at the end
	in   chan struct{}   // the handler tells the client
	done chan struct{}   // closed when the trial is over

	inside  atomic.Int32  // runs of the handler at this moment
	crowded atomic.Bool   // there were two
	joined  atomic.Int32  // requests that lead or await a run of Coalesce
	met     chan struct{} // closed when there are two of these
}

// trials are the ones that are under way: handlers find theirs by the header "Trial".
type trials struct{ byID sync.Map }

// serve is the node's handler.
func (ts *trials) serve(node int, w http.ResponseWriter, r *http.Request) {
	x, ok := ts.of(r)
	if !ok {
		http.Error(w, "no such trial", http.StatusNotFound)
		return
	}
	x.runs[node].Add(1)
	x.scene.handler(x, w, r)
}

func (ts *trials) of(r *http.Request) (*trial, bool) {
	t, ok := ts.byID.Load(r.Header.Get("Trial"))
	if !ok {
		return nil, false
	}
	return t.(*trial), true
}

// joining counts the requests that lead or await a run of the middleware, which is Coalesce. That
// asks for the end of a request's context once the request has joined.
func (ts *trials) joining(coalesce func(http.Handler) http.Handler) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		h := coalesce(next)
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if x, ok := ts.of(r); ok {
				r = r.WithContext(asking{r.Context(), sync.OnceFunc(x.join)})
			}
			h.ServeHTTP(w, r)
		})
	}
}

// asking is a context that tells when its end is asked for.
type asking struct {
	context.Context
	asked func()
}

func (a asking) Done() <-chan struct{} {
	a.asked()
	return a.Context.Done()
}

func (x *trial) join() {
	if x.joined.Add(1) == 2 {
		close(x.met)
	}
}

var trialIDs atomic.Int64

// run runs the scene.
func (ts *trials) run(p *pair, stackName string, owner int, s *scene) *seen {
	x := &trial{
		pair: p, stack: stackName, owner: owner, scene: s, id: fmt.Sprint(trialIDs.Add(1)), order: p.k.fresh(owner),
		gate: make(chan struct{}, 16), in: make(chan struct{}, 16), done: make(chan struct{}), met: make(chan struct{}),
	}
	ts.byID.Store(x.id, x)
	defer ts.byID.Delete(x.id)
	got := &seen{}
	s.client(x, got)
	if s.keyed && keeps(stackName) {
		x.repeat(got)
	}
	close(x.done)
	x.free(got)
	for node := range x.runs {
		n := int(x.runs[node].Load())
		if got.Runs += n; n > 0 && node != owner && forwards(stackName) {
			got.note("%d runs on a node that does not own the key", n)
		}
	}
	return got
}

// repeat sends the request once more, which has to be answered alike without a run of the handler.
func (x *trial) repeat(first *seen) {
	again := &seen{}
	x.scene.client(x, again)
	// Where reads share a run, it may still have shared the first one's.
	if again.Header.Get(middleware.ReplayedHeader) != "true" && !joins(x.stack) {
		first.note("the answer was not replayed")
	}
	again.Header.Del(middleware.ReplayedHeader)
	if first.Header["Content-Length"] == nil { // a stream; now it is there in whole
		again.Header.Del("Content-Length")
	}
	for _, d := range diff(first, again) {
		first.note("replayed: %s", d)
	}
}

// free notes if the key's lock is not free in the end.
func (x *trial) free(got *seen) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for _, c := range x.pair.k.nodes {
		l, err := c.Lock(ctx, middleware.JoinKey("order", x.order))
		if err != nil {
			got.note("the lock is stuck: %v", err)
			return
		}
		l.Unlock()
	}
}

// wait waits for the client's permission.
func (x *trial) wait() {
	select {
	case <-x.gate:
	case <-x.done:
	}
}

func (x *trial) open() { x.gate <- struct{}{} }

// arrived waits for the handler.
func (x *trial) arrived() bool {
	select {
	case <-x.in:
		return true
	case <-time.After(patience):
		return false
	}
}

// enter counts a run of the handler until leave.
func (x *trial) enter() {
	if x.inside.Add(1) > 1 {
		x.crowded.Store(true)
	}
}

func (x *trial) leave() { x.inside.Add(-1) }

// until reports whether a condition becomes true that no event announces.
func until(ok func() bool) bool {
	for end := time.Now().Add(patience); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			return false
		}
	}
	return true
}

// request makes the trial's request; headers are names and values by turns.
func (x *trial) request(ctx context.Context, method string, body io.Reader, headers ...string) *http.Request {
	r, err := http.NewRequestWithContext(ctx, method, x.pair.at()+"/"+x.stack+"/"+x.scene.name+"?q=%31&r=a+b", body)
	if err != nil {
		panic(err) // of this program
	}
	for k, v := range x.headers() {
		r.Header.Set(k, v)
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Add(headers[i], headers[i+1])
	}
	return r
}

func (x *trial) headers() map[string]string {
	h := map[string]string{"Trial": x.id, "Order": x.order}
	if x.scene.keyed {
		h["Idempotency-Key"] = "k" + x.id
	}
	return h
}
