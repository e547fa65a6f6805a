package middleware

import (
	"io"
	"net/http"
	"slices"
)

// An ahead is a body of which the beginning, or all, has been read before the handler runs.
type ahead struct {
	buf  []byte
	err  error         // what comes after buf; nil: body
	body io.ReadCloser // the request's
}

// readAhead reads the request's body, if it has at most so many bytes, and puts it back. An HTTP/1 server looks at a connection
// again once the body has been read: only then it notices that a client has gone that waits. And who sends slowly does that before it
// is his turn, while others have theirs.
//
// It leaves bodies alone that may be waiting for an answer: of which the length is not known, and those that the client sends when
// the handler asks for them.
func readAhead(r *http.Request, most int64) {
	if r.ContentLength <= 0 || r.ContentLength > most || r.ProtoMajor != 1 || r.Body == nil || len(r.Header["Expect"]) > 0 {
		return
	}
	if _, ok := r.Body.(*ahead); ok {
		return
	}
	// The length is a promise: it is believed as far as it is cheap.
	a := &ahead{buf: make([]byte, 0, min(r.ContentLength, 4<<10)), body: r.Body}
	for left := int(r.ContentLength); left > 0 && a.err == nil; {
		if len(a.buf) == cap(a.buf) {
			a.buf = slices.Grow(a.buf, min(left, len(a.buf)))
		}
		into := a.buf[len(a.buf):cap(a.buf)]
		var n int
		n, a.err = r.Body.Read(into[:min(left, len(into))])
		a.buf, left = a.buf[:len(a.buf)+n], left-n
	}
	r.Body = a
}

// inMemory returns a body that is in memory.
func inMemory(b []byte) io.ReadCloser { return &ahead{b, io.EOF, http.NoBody} }

func (a *ahead) Read(p []byte) (int, error) {
	switch {
	case len(a.buf) > 0:
		n := copy(p, a.buf)
		a.buf = a.buf[n:]
		return n, nil
	case a.err != nil:
		return 0, a.err
	}
	return a.body.Read(p)
}

func (a *ahead) Close() error {
	a.buf, a.err = nil, http.ErrBodyReadAfterClose
	return a.body.Close()
}
