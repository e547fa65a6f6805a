package budget

import (
	"context"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/gossip"
	"github.com/holdfast-go/holdfast/internal/await"
	"github.com/holdfast-go/holdfast/internal/coordtest"
	"github.com/holdfast-go/holdfast/peer"
)

// patient returns options with times so long that no timer fires while instructions are counted:
// the clock hardly moves then.
func patient() *coord.Options {
	o := &coord.Options{SessionTTL: time.Hour, RenewEvery: 15 * time.Minute, Grace: 2 * time.Hour, Partitions: 61}
	o.Handoff.Linger = time.Hour
	return o
}

// alone starts a coordinator over an arbiter in memory.
func alone(t testing.TB, change func(*coord.Options)) *coord.Coordinator {
	o := patient()
	if change != nil {
		change(o)
	}
	return start(t, fallback.NewMemory(), o)
}

var start = coordtest.Start

// nodes starts a cluster and waits until it has shared out its partitions.
func nodes(t testing.TB, n int, change func(*coord.Options)) []*coord.Coordinator {
	t.Helper()
	a := fallback.NewMemory()
	var all []*coord.Coordinator
	for range n {
		o := patient()
		o.Cluster = &coord.Cluster{Membership: gossip.Start, Gossip: "127.0.0.1:0", Debounce: 200 * time.Millisecond}
		if change != nil {
			change(o)
		}
		all = append(all, start(t, a, o))
	}
	await.Until(t, "61 partitions are shared out", func() bool {
		owned, least := 0, 61
		for _, c := range all {
			owned, least = owned+c.Stats().Owned, min(least, c.Stats().Owned)
		}
		return owned == 61 && least > 0
	})
	return all
}

// watch gives a coordinator the same functions as metrics/prometheus and metrics/otel, but empty.
func watch(o *coord.Options) {
	o.Trace = &coord.Trace{
		Waited: func(context.Context, coord.WaitInfo) {}, Flight: func(context.Context, coord.FlightInfo) {},
		Lost: func(coord.LossError) {}, Call: func(coord.CallInfo) {},
	}
}

// handler is a peer.Handler made of functions.
type handler struct {
	up    func(*peer.Stream)
	frame func(*peer.Stream, *peer.Frame)
}

func (h handler) Up(s *peer.Stream) {
	if h.up != nil {
		h.up(s)
	}
}

func (h handler) Frame(s *peer.Stream, f *peer.Frame) { h.frame(s, f) }
func (h handler) Down(*peer.Stream, error)            {}

// roundTrip sends a frame to a node that sends it back, and waits for that.
func roundTrip(t testing.TB) func() {
	ups, answers := make(chan *peer.Stream, 1), make(chan struct{}, 1)
	node := func(name string, h peer.Handler) *peer.Transport {
		x, err := peer.Start(peer.Options{Node: name, Handler: h, Keepalive: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { x.Close() })
		return x
	}
	echo := node("b", handler{frame: func(s *peer.Stream, f *peer.Frame) { _ = s.Send(f) }})
	asks := node("a", handler{
		up:    func(s *peer.Stream) { ups <- s },
		frame: func(*peer.Stream, *peer.Frame) { answers <- struct{}{} },
	})
	asks.SetPeers(map[string]string{"b": echo.Addr()})
	s, f := <-ups, request()
	return func() {
		if err := s.Send(f); err != nil {
			t.Error(err)
		}
		<-answers
	}
}
