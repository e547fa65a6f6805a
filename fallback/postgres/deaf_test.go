package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/fallback/postgres"
	"github.com/holdfast-go/holdfast/internal/await"
)

// earWay leads to a server for messages, which end at times.
type earWay struct {
	s     *server
	ways  atomic.Pointer[[]error] // of further dials, the last one of all that follow; nil: the server
	dials atomic.Int32
}

func (w *earWay) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	n := int(w.dials.Add(1))
	if ways := *w.ways.Load(); len(ways) > 0 {
		if err := ways[min(n, len(ways))-1]; err != nil {
			return nil, err
		}
	}
	return w.s.connect(ctx)
}

// lead has further dials end so.
func (w *earWay) lead(ways ...error) {
	w.dials.Store(0)
	w.ways.Store(&ways)
}

// Why messages do not come is told for as long as that is so, whatever further tries meet, and no
// longer.
func TestPostgres_AdviceOfMessages(t *testing.T) {
	s := startServer(t)
	w := &earWay{s: s}
	w.lead()
	opts := options()
	opts.Listen = s.config("app").ConnConfig
	opts.Listen.DialFunc = w.dial
	opts.Listen.RuntimeParams["application_name"] = "ear"
	n := attach(t, postgres.New(s.config("app"), opts))
	advice := func() string {
		all, err := n.(fallback.Adviser).Advise(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return strings.Join(all, "\n")
	}
	listen := func() (stop func()) {
		stop, err := n.Listen(t.Context(), "alice", func(fallback.Message) {})
		if err != nil {
			t.Fatal(err)
		}
		return stop
	}
	stop := listen()
	w.lead(fmt.Errorf("%w: deaf", fallback.ErrRefused), errors.New("nothing answers"))
	s.must(`SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'ear'`)
	await.Until(t, "advice", func() bool { return strings.Contains(advice(), "deaf") })
	await.Until(t, "further tries", func() bool { _ = advice(); return w.dials.Load() >= 4 })
	if told := advice(); !strings.Contains(told, "deaf") {
		t.Errorf("after tries that failed for another reason: %q", told)
	}
	stop() // as when the session ends
	w.lead()
	defer listen()()
	if told := advice(); told != "" {
		t.Errorf("messages come again, and it is told: %q", told)
	}
}
