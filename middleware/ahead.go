package middleware

import (
	"context"
	"io"
	"net/http"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// aheadTime limits the reading ahead of a body of unknown length. A client that talks both ways
// sends the rest only when it has got a part of the answer.
const aheadTime = 2 * time.Second

// An ahead is a body that was read, to its end or not, before the handler runs.
type ahead struct {
	body  io.ReadCloser // the request's
	ended chan struct{} // closed when no goroutine reads ahead any more; nil: there was none
	stop  atomic.Bool   // the goroutine is to end

	mu   sync.Mutex // protects the fields below
	buf  []byte
	err  error // the error after buf; nil: the rest of body
	over func(error)
}

// readAhead reads the beginning of the request's body, up to that many bytes, and puts it back. A
// client that sends slowly does so before its request's turn, while others have theirs. And an
// HTTP/1 server looks at a connection again once the body has been read: only then it notices that
// the client of a waiting request has gone.
//
// A body of unknown length, or a longer one, is read ahead for aheadTime at most; one with a known
// length that fits, for as long as it takes, as the client has promised to send it. A request with
// Upgrade is left alone. readAhead returns the request to go on with.
func readAhead(w http.ResponseWriter, r *http.Request, most int64) *http.Request {
	if most < 0 || r.Body == nil || r.Body == http.NoBody || r.ContentLength == 0 {
		return r
	}
	if upgrades(r.Header["Upgrade"]) { // the handler may take over the connection that a goroutine would read from
		return r
	}
	if _, ok := r.Body.(*ahead); ok {
		return r
	}
	a := &ahead{body: r.Body}
	if r.ContentLength > 0 && r.ContentLength <= most {
		a.fill(r.ContentLength)
		r.Body = a
		return r
	}
	if !readsAside(w, r) {
		a.fill(most)
		r.Body = a
		return r
	}
	came := r
	r = r.WithContext(r.Context()) // a copy: trailers are written to the one that came
	a.ended = make(chan struct{})
	go a.pump(most)
	if a.await(r.Context()) {
		r.Trailer = came.Trailer
	}
	r.Body = a
	return r
}

var maxBytesReader = reflect.TypeOf(http.MaxBytesReader(nil, http.NoBody, 0))

// readsAside reports whether a goroutine may read the body while the handler runs, and be stopped.
// On HTTP/1 a MaxBytesReader changes the header of the response if there is too much.
func readsAside(w http.ResponseWriter, r *http.Request) bool {
	return stoppable(w) && (r.ProtoMajor != 1 || reflect.TypeOf(r.Body) != maxBytesReader)
}

// stoppable reports whether w can end a Read of the request's body.
func stoppable(w http.ResponseWriter) bool {
	for {
		switch x := w.(type) {
		case *recorder:
			w = x.w
		case interface{ SetReadDeadline(time.Time) error }:
			return true
		case interface{ Unwrap() http.ResponseWriter }:
			w = x.Unwrap()
		default:
			return false
		}
	}
}

// fill reads until there are so many bytes, or to the end. The length is a promise: it is believed
// as far as it is cheap.
func (a *ahead) fill(most int64) {
	a.buf = make([]byte, 0, min(most, 4<<10))
	for left := int(most); left > 0 && a.err == nil; {
		if len(a.buf) == cap(a.buf) {
			a.buf = slices.Grow(a.buf, min(left, len(a.buf)))
		}
		into := a.buf[len(a.buf):cap(a.buf)]
		var n int
		n, a.err = a.body.Read(into[:min(left, len(into))])
		a.buf, left = a.buf[:len(a.buf)+n], left-n
	}
}

// pump is fill in a goroutine.
func (a *ahead) pump(most int64) {
	defer close(a.ended)
	piece := make([]byte, min(most, 4<<10))
	for left := int(most); left > 0 && !a.stop.Load(); {
		n, err := a.body.Read(piece[:min(left, len(piece))])
		a.mu.Lock()
		a.buf = append(a.buf, piece[:n]...)
		left -= n
		if a.err == nil {
			a.err = err
		}
		a.mu.Unlock()
		if err != nil {
			a.finish(err)
			return
		}
	}
}

// await waits until the pump has ended, for aheadTime at most. It reports whether it has.
func (a *ahead) await(ctx context.Context) bool {
	t := time.NewTimer(aheadTime)
	defer t.Stop()
	select {
	case <-a.ended:
		return true
	case <-t.C:
	case <-ctx.Done():
	}
	a.stop.Store(true)
	return false
}

// complete reports whether there is nothing more to come.
func (a *ahead) complete() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.err != nil
}

// atEnd lets over be called once the body has ended, unless it has already.
func (a *ahead) atEnd(over func(error)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.err == nil {
		a.over = over
	}
}

func (a *ahead) finish(err error) {
	a.mu.Lock()
	over := a.over
	a.over = nil
	a.mu.Unlock()
	if over != nil {
		over(err)
	}
}

// hangUp ends a Read that is under way: none may be left when the handler has returned. It lets in
// bytes on their way for a moment, or the client might not see the answer.
func (a *ahead) hangUp(w http.ResponseWriter) {
	a.stop.Store(true)
	select {
	case <-a.ended:
		return
	default:
	}
	rc := http.NewResponseController(w)
	if rc.SetReadDeadline(time.Unix(1, 0)) == nil {
		<-a.ended
		_ = rc.SetReadDeadline(time.Now().Add(lingering))
	}
}

// inMemory returns a body that is in memory.
func inMemory(b []byte) io.ReadCloser { return &ahead{buf: b, err: io.EOF, body: http.NoBody} }

func (a *ahead) Read(p []byte) (int, error) {
	if n, ok, err := a.read(p); ok {
		return n, err
	}
	if a.ended != nil {
		<-a.ended
		if n, ok, err := a.read(p); ok {
			return n, err
		}
	}
	n, err := a.body.Read(p)
	if err != nil {
		a.finish(err)
	}
	return n, err
}

// read reads buffered bytes, and reports whether it has bytes or an error.
func (a *ahead) read(p []byte) (n int, ok bool, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.buf) > 0 {
		n = copy(p, a.buf)
		a.buf = a.buf[n:]
		return n, true, nil
	}
	return 0, a.err != nil, a.err
}

func (a *ahead) Close() error {
	a.mu.Lock()
	a.buf, a.err = nil, http.ErrBodyReadAfterClose
	a.mu.Unlock()
	a.stop.Store(true)
	if a.ended != nil {
		select {
		case <-a.ended:
		default:
			return nil // the server closes it
		}
	}
	return a.body.Close()
}
