package peer

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	watching "github.com/holdfast-go/holdfast/internal/await"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// handler is a Handler made of functions. Any of them may be nil.
type handler struct {
	up    func(*Stream)
	frame func(*Stream, *Frame)
	down  func(*Stream, error)
}

func (h handler) Up(s *Stream) {
	if h.up != nil {
		h.up(s)
	}
}

func (h handler) Frame(s *Stream, f *Frame) {
	if h.frame != nil {
		h.frame(s, f)
	}
}

func (h handler) Down(s *Stream, err error) {
	if h.down != nil {
		h.down(s, err)
	}
}

// echo answers each frame with itself.
var echo = handler{frame: func(s *Stream, f *Frame) { s.Send(f) }}

// start starts a transport that the test closes.
func start(tb testing.TB, opts Options) *Transport {
	tb.Helper()
	if opts.Handler == nil {
		opts.Handler = handler{}
	}
	if opts.Retry == 0 {
		opts.Retry = 5 * time.Millisecond
	}
	t, err := Start(opts)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { t.Close() })
	return t
}

// peers makes the transports dial each other.
func peers(ts ...*Transport) {
	m := make(map[string]string)
	for _, t := range ts {
		m[t.opts.Node] = t.Addr()
	}
	for _, t := range ts {
		t.SetPeers(m)
	}
}

// events is a handler that reports Up and Down, and complains if they do not alternate.
type events struct {
	tb    testing.TB
	ups   chan *Stream
	downs chan error
	frame func(*Stream, *Frame)

	mu sync.Mutex
	up map[string]*Stream // protected by mu
}

func newEvents(tb testing.TB) *events {
	return &events{tb: tb, ups: make(chan *Stream, 4096), downs: make(chan error, 4096), up: make(map[string]*Stream)}
}

func (e *events) Up(s *Stream) {
	e.mu.Lock()
	if e.up[s.Node()] != nil {
		e.tb.Errorf("%v is up before Down of %v", s, e.up[s.Node()])
	}
	e.up[s.Node()] = s
	e.mu.Unlock()
	e.ups <- s
}

func (e *events) Frame(s *Stream, f *Frame) {
	e.mu.Lock()
	if e.up[s.Node()] != s {
		e.tb.Errorf("frame of %v, which is not up", s)
	}
	e.mu.Unlock()
	if e.frame != nil {
		e.frame(s, f)
	}
}

func (e *events) Down(s *Stream, err error) {
	e.mu.Lock()
	if e.up[s.Node()] != s {
		e.tb.Errorf("Down of %v, which is not up", s)
	}
	if err == nil {
		e.tb.Errorf("Down of %v without a cause", s)
	}
	delete(e.up, s.Node())
	e.mu.Unlock()
	e.downs <- err
}

// await returns the next value of c.
func await[T any](tb testing.TB, c <-chan T) T {
	tb.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(20 * time.Second):
		tb.Fatal("nothing came for 20 s")
		panic("unreachable")
	}
}

// eventually waits for a condition that has no event.
func eventually(tb testing.TB, what string, ok func() bool) {
	tb.Helper()
	watching.Until(tb, what, ok)
}

// logLines is a slog.Handler that keeps lines.
type logLines struct{ c chan string }

func newLogger(l logLines) *slog.Logger { return slog.New(l) }

func newLogLines() logLines { return logLines{make(chan string, 1000)} }

func (l logLines) Enabled(context.Context, slog.Level) bool { return true }
func (l logLines) WithAttrs([]slog.Attr) slog.Handler       { return l }
func (l logLines) WithGroup(string) slog.Handler            { return l }

func (l logLines) Handle(_ context.Context, r slog.Record) error {
	var b strings.Builder
	b.WriteString(r.Message)
	r.Attrs(func(a slog.Attr) bool {
		fmt.Fprintf(&b, " %s=%v", a.Key, a.Value)
		return true
	})
	select {
	case l.c <- b.String():
	default:
	}
	return nil
}

// await waits for a line with this text.
func (l logLines) await(tb testing.TB, text string) {
	tb.Helper()
	var seen []string
	timeout := time.After(20 * time.Second)
	for {
		select {
		case line := <-l.c:
			if strings.Contains(line, text) {
				return
			}
			seen = append(seen, line)
		case <-timeout:
			tb.Fatalf("no line with %q in\n%s", text, strings.Join(seen, "\n"))
		}
	}
}
