package middleware

import (
	"errors"
	"fmt"
	"net/http"
	"net/textproto"
	"slices"
	"strconv"
	"strings"
)

// A recorder is the ResponseWriter of a handler with an answer that others are to get as well. It
// keeps the answer back until the handler has ended. Its own client may be slow, or gone, and no
// other one should have to wait for that. When the answer cannot be kept (too large), or the
// handler calls Flush, it passes on the kept part, and from then on everything.
//
// Like any ResponseWriter it is for one goroutine at a time.
type recorder struct {
	w     http.ResponseWriter
	limit int // of the body, in bytes

	// accept is asked once, when the handler has decided on status and header: whether the answer
	// may be kept. Nil: yes.
	accept func(status int, sent, before http.Header) bool
	// dropped is called once, when the answer is given up: by accept, Flush, Hijack or the limit.
	// With dropped nil, Flush only passes on, and Hijack is not supported.
	dropped func()

	before  http.Header // of w, as the handler found it: set around this middleware
	header  http.Header // the handler's
	sent    http.Header // header, at the moment when status was decided
	status  int         // 0: not decided yet
	left    int64       // bytes of the body that Content-Length still allows, negative: any
	body    []byte      // as long as kept
	kept    bool
	through bool // writes go to w
	hijack  bool // the handler has taken the connection
	ended   bool
	refused bool // the answer is that of a middleware further in, which has not let the request through
}

// errEnded is the error for a handler that goes on writing after it has returned.
var errEnded = errors.New("middleware: the handler has returned")

func newRecorder(w http.ResponseWriter, limit int) *recorder {
	return &recorder{w: w, limit: limit, before: w.Header().Clone(), header: cloneHeader(w.Header()), kept: true}
}

// recorderOf returns the recorder that w is, or that it is around of, nil if none.
func recorderOf(w http.ResponseWriter) *recorder {
	for {
		if rec, ok := w.(*recorder); ok {
			return rec
		}
		u, ok := w.(interface{ Unwrap() http.ResponseWriter })
		if !ok {
			return nil
		}
		w = u.Unwrap()
	}
}

func cloneHeader(h http.Header) http.Header {
	if len(h) == 0 {
		return make(http.Header)
	}
	return h.Clone()
}

func (r *recorder) Header() http.Header { return r.header }

func (r *recorder) WriteHeader(status int) {
	switch {
	case status < 100 || status > 999: // as net/http does; here, where the handler's stack is
		panic(fmt.Sprintf("middleware: WriteHeader with the invalid status %d", status))
	case r.status != 0 || r.ended || r.hijack:
		return
	case status < 200 && status != http.StatusSwitchingProtocols: // early hints are for the client that is there
		put(r.w.Header(), r.header)
		r.w.WriteHeader(status)
		return
	}
	r.status, r.sent, r.left = status, r.header.Clone(), -1
	if n, err := strconv.ParseInt(r.sent.Get("Content-Length"), 10, 64); err == nil {
		r.left = n
	}
	if r.kept && r.accept != nil && !r.accept(status, r.sent, r.before) {
		r.drop()
	}
	if !r.kept {
		r.pass()
	}
}

func (r *recorder) Write(p []byte) (int, error) {
	switch {
	case r.hijack:
		return 0, http.ErrHijacked
	case r.ended:
		return 0, errEnded
	case r.status == 0:
		r.WriteHeader(http.StatusOK)
	}
	if !bodyAllowed(r.status) {
		return 0, http.ErrBodyNotAllowed
	}
	if r.left >= 0 {
		if int64(len(p)) > r.left {
			return 0, http.ErrContentLength // here, or the server would refuse all of it
		}
		r.left -= int64(len(p))
	}
	if r.kept && len(p) > r.limit-len(r.body) {
		r.drop()
	}
	if r.kept {
		r.body = append(r.body, p...)
	}
	if r.through {
		if n, err := r.w.Write(p); err != nil && !r.kept {
			return n, err
		} // else the handler has to go on: the kept answer would be only a half
	}
	return len(p), nil
}

// drop gives up to keep the answer.
func (r *recorder) drop() {
	if !r.kept {
		return
	}
	r.kept = false
	if r.dropped != nil {
		r.dropped()
	}
	if r.status != 0 {
		r.pass()
	}
	r.body = nil // large, or of no use to any caller
}

// pass sends the kept part, and makes everything else go to w.
func (r *recorder) pass() {
	if r.through {
		return
	}
	r.through = true
	put(r.w.Header(), r.sent)
	r.w.WriteHeader(r.status)
	if len(r.body) > 0 {
		_, _ = r.w.Write(r.body) // the handler's next Write will return the error
	}
}

// put makes dst the same as src.
func put(dst, src http.Header) {
	for name := range dst {
		if _, ok := src[name]; !ok {
			delete(dst, name)
		}
	}
	for name, values := range src {
		dst[name] = slices.Clone(values)
	}
}

// end is called when the handler has returned. A handler that has written nothing has given no
// answer. In net/http that is an empty 200. But an adapter for another router may have written the
// answer past this recorder, or write it by this recorder later. So the recorder passes on the
// headers, and all later writes.
func (r *recorder) end() {
	if r.status != 0 || r.hijack {
		r.ended = true
		return
	}
	r.drop()
	put(r.w.Header(), r.header)
	r.header = r.w.Header()
}

// silent reports whether the handler has returned without an answer.
func (r *recorder) silent() bool { return r.status == 0 && !r.hijack }

// deliver is called after end. It gives the client the rest of the answer.
func (r *recorder) deliver() {
	if r.hijack || r.silent() {
		return
	}
	r.pass()
	h := r.w.Header()
	for name, values := range r.trailer() {
		h[name] = values
	}
}

// trailer returns the headers that the handler has set after the body, in the two ways that
// net/http knows.
func (r *recorder) trailer() http.Header {
	var t http.Header
	add := func(name string) {
		if values, ok := r.header[name]; ok {
			if t == nil {
				t = make(http.Header)
			}
			t[name] = slices.Clone(values)
		}
	}
	for name := range listed(r.sent["Trailer"]) {
		add(textproto.CanonicalMIMEHeaderKey(name))
	}
	for name := range r.header {
		if strings.HasPrefix(name, http.TrailerPrefix) {
			add(name)
		}
	}
	return t
}

// answer returns the answer for others; called after end, with the answer kept.
func (r *recorder) answer() *answer {
	a := &answer{status: r.status, header: make(http.Header, len(r.sent)), body: r.body, trailer: r.trailer()}
	hop := hopByHop(r.sent)
	for name, values := range r.sent {
		was, ok := r.before[name]
		if ok && slices.Equal(was, values) || hop[name] || strings.HasPrefix(name, http.TrailerPrefix) {
			continue // set around the handler, for one request; or meant for one connection; or a trailer
		}
		a.header[name] = slices.Clone(values)
	}
	for name := range r.before {
		if _, ok := r.sent[name]; !ok {
			a.removed = append(a.removed, name)
		}
	}
	return a
}
