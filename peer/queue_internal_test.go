package peer

import (
	"context"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"
)

// A witness is a connection that never waits, and reports the method of Stream that has written.
type witness struct {
	net.Conn
	by chan string
}

func (witness) Prompt() {}

func (w witness) Write(b []byte) (int, error) {
	pcs := make([]uintptr, 64)
	frames := runtime.CallersFrames(pcs[:runtime.Callers(1, pcs)])
	by := "the stream's own goroutine"
	for more := true; more; {
		var f runtime.Frame
		f, more = frames.Next()
		for _, method := range []string{"Queue", "Pass", "Flush"} {
			if strings.HasSuffix(f.Function, "(*Stream)."+method) {
				by = method
			}
		}
	}
	w.by <- by
	return len(b), nil
}

// Callers of Queue and Pass may hold a lock: they write nothing, however much waits. It leaves all
// the same, without a Flush.
func TestQueue_WritesNothing(t *testing.T) {
	t.Parallel()
	for what, put := range map[string]func(s *Stream, f *Frame) error{
		"Queue": (*Stream).Queue,
		"Pass":  func(s *Stream, f *Frame) error { return s.Pass(s, f) },
	} {
		here, there := net.Pipe()
		defer there.Close()
		w := witness{here, make(chan string, 100)}
		tr := &Transport{opts: Options{MaxQueue: 16 << 20}, soon: make(chan struct{}, 1)}
		s := newStream(tr, "b", w, nil)
		s.batch = false
		own := make(chan struct{})
		go func() {
			defer close(own)
			s.writer()
		}()
		f := &Frame{Kind: Request, Key: []byte(strings.Repeat("k", 500))}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		for range 2 * flushAt / 500 {
			if err := put(s, f); err != nil {
				t.Fatal(err)
			}
		}
		select {
		case by := <-w.by:
			if by != "the stream's own goroutine" {
				t.Errorf("%s: written by %s", what, by)
			}
		case <-ctx.Done():
			t.Errorf("%s: nothing is written", what)
		}
		cancel()
		s.Flush()
		s.Close(nil)
		<-own
		close(w.by)
		for by := range w.by {
			if by == "Queue" || by == "Pass" {
				t.Errorf("%s: written by %s", what, by)
			}
		}
	}
}
