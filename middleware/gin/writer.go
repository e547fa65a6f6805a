package holdgin

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"

	"github.com/gin-gonic/gin"
)

const unwritten = -1

// writer is Gin's writer around another ResponseWriter: a status is sent with the first byte, and
// may change until then.
type writer struct {
	http.ResponseWriter
	r      *http.Request
	status int
	size   int // of the body; unwritten: the status was not sent either
}

var _ gin.ResponseWriter = (*writer)(nil)

func (w *writer) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *writer) WriteHeader(status int) {
	if status > 0 && !w.Written() {
		w.status = status
	}
}

func (w *writer) WriteHeaderNow() {
	if !w.Written() {
		w.size = 0
		w.ResponseWriter.WriteHeader(w.status)
	}
}

func (w *writer) Write(b []byte) (int, error) {
	w.WriteHeaderNow()
	n, err := w.ResponseWriter.Write(b)
	w.size += n
	return n, err
}

func (w *writer) WriteString(s string) (int, error) {
	w.WriteHeaderNow()
	n, err := io.WriteString(w.ResponseWriter, s)
	w.size += n
	return n, err
}

func (w *writer) Status() int { return w.status }

func (w *writer) Size() int { return w.size }

func (w *writer) Written() bool { return w.size != unwritten }

func (w *writer) Flush() { _ = w.FlushError() }

func (w *writer) FlushError() error {
	w.WriteHeaderNow()
	return http.NewResponseController(w.ResponseWriter).Flush()
}

func (w *writer) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(w.ResponseWriter).Hijack()
	if err == nil && !w.Written() {
		w.size = 0
	}
	return conn, rw, err
}

// CloseNotify returns the channel that Context.Stream listens to.
func (w *writer) CloseNotify() <-chan bool {
	gone := make(chan bool, 1)
	context.AfterFunc(w.r.Context(), func() { gone <- true })
	return gone
}

func (w *writer) Pusher() http.Pusher {
	p, _ := w.ResponseWriter.(http.Pusher)
	return p
}
