package middleware

import (
	"context"
	"net/http"
	"slices"
	"sync"
)

// A run is one run of the handler; other requests may wait for it.
type run struct {
	ctx    context.Context // the handler's
	cancel context.CancelCauseFunc

	settled chan struct{} // closed once the others' answer is known
	mu      sync.Mutex
	known   bool    // settled is closed; guarded by mu
	answer  *answer // nil: nothing, they run the handler themselves; not written after settled is closed
	single  bool    // no other request waits for it; guarded by mu
	left    error   // why the first request's client is gone, nil while it is there; guarded by mu
}

func newRun(r *http.Request, mark running) *run {
	x := &run{settled: make(chan struct{})}
	x.ctx, x.cancel = context.WithCancelCause(&leading{context.WithoutCancel(r.Context()), mark, r.Context()})
	return x
}

// leading is the context of a run, but for its end.
type leading struct {
	context.Context
	mark  running
	first context.Context // the first request's
}

type firstKey struct{}

func (l *leading) Value(key any) any {
	switch key {
	case l.mark:
		return true
	case firstKey{}:
		return l.first
	}
	return l.Context.Value(key)
}

// await is the run's flight: it ends when the others' answer is known, or when none of them is
// left.
func (x *run) await(flight context.Context) (*answer, error) {
	select {
	case <-x.settled:
		return x.answer, nil
	case <-flight.Done():
		x.cancel(context.Cause(flight))
		return nil, context.Cause(flight)
	}
}

// settle sets the answer for the others; nil: none. The first call counts.
func (x *run) settle(a *answer) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if !x.known {
		x.known, x.answer = true, a
		close(x.settled)
	}
}

// alone says that the answer is for the first request only. From now on the run ends with that.
func (x *run) alone() {
	x.settle(nil)
	x.mu.Lock()
	defer x.mu.Unlock()
	x.single = true
	if x.left != nil {
		x.cancel(x.left)
	}
}

// leave says that the first request's client has gone.
func (x *run) leave(cause error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.left = cause
	if x.single {
		x.cancel(cause)
	}
}

// shareable reports whether an answer may be given to more than one request, as far as its header
// says.
func shareable(status int, sent, before http.Header) bool {
	if status == http.StatusSwitchingProtocols || directive(sent["Cache-Control"], "private", "no-store") {
		return false
	}
	for name := range listed(sent["Vary"]) {
		if name == "*" {
			return false
		}
	}
	// Cookies that were set around the middleware are for one request and stay so.
	return len(sent["Set-Cookie"]) == 0 || slices.Equal(sent["Set-Cookie"], before["Set-Cookie"])
}
