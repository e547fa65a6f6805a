package peer

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/takes"
)

// Frames of many senders at once, on both sides: all arrive, and those of each sender in
// order.
func TestOrder(t *testing.T) {
	takes.Seconds(t)
	const senders, frames = 16, 3000
	nodes := make([]*Transport, 2)
	done := make(chan struct{}, 2)
	up := make(chan *Stream, 2)
	for i, name := range []string{"a", "b"} {
		next := make([]uint64, senders)
		total := 0
		nodes[i] = start(t, Options{Node: name, Handler: handler{
			up: func(s *Stream) { up <- s },
			frame: func(s *Stream, f *Frame) {
				if f.Request != next[f.Partition] || len(f.Key) != int(f.Request%200) {
					t.Errorf("sender %d: %d with key of %d, want %d", f.Partition, f.Request, len(f.Key), next[f.Partition])
				}
				next[f.Partition]++
				if total++; total == senders*frames {
					done <- struct{}{}
				}
			},
		}})
	}
	peers(nodes...)
	var wg sync.WaitGroup
	for range nodes {
		s := await(t, up)
		for i := range senders {
			wg.Go(func() {
				key := make([]byte, 200)
				for n := range uint64(frames) {
					send := s.Send
					if n%3 == 0 {
						send = s.Queue
					}
					if err := send(&Frame{Kind: Grant, Partition: uint32(i), Request: n, Key: key[:n%200]}); err != nil {
						t.Error(err)
						return
					}
					if n%6 == 0 {
						s.FlushSoon()
					}
				}
			})
		}
	}
	wg.Wait()
	await(t, done)
	await(t, done)
}

// FlushSoon writes the frames that are left, if nothing else does.
func TestFlushSoon(t *testing.T) {
	for _, encrypted := range []bool{false, true} {
		t.Run(fmt.Sprintf("TLS %v", encrypted), func(t *testing.T) {
			up, got := make(chan *Stream, 1), make(chan uint64, 1)
			a, b := Options{Keepalive: time.Minute}, Options{Keepalive: time.Minute} // which would write it as well
			if encrypted {
				ca := newAuthority(t)
				a.TLS, b.TLS = ca.config(t), ca.config(t)
			}
			a.Node, a.Handler = "a", handler{up: func(s *Stream) { up <- s }}
			b.Node, b.Handler = "b", handler{frame: func(_ *Stream, f *Frame) { got <- f.Request }}
			peers(start(t, a), start(t, b))
			s := await(t, up)
			for i := range uint64(200) {
				if err := s.Queue(&Frame{Kind: Release, Request: i}); err != nil {
					t.Fatal(err)
				}
				s.FlushSoon()
				if n := await(t, got); n != i {
					t.Fatalf("got %d, want %d", n, i)
				}
			}
		})
	}
}

// Frames that are sent in Up go ahead of all else, and Stream finds the stream only afterwards.
func TestUpFirst(t *testing.T) {
	a := start(t, Options{Node: "a", Handler: handler{up: func(s *Stream) {
		if s.t.Stream("b") != nil {
			t.Error("published before Up has returned")
		}
		for i := range uint64(100) {
			s.Send(&Frame{Kind: Resume, Request: i})
		}
		s.Data = "mine"
	}}})
	got := make(chan Frame, 101)
	b := start(t, Options{Node: "b", Handler: handler{frame: func(s *Stream, f *Frame) { got <- *f }}})
	a.SetPeers(map[string]string{"b": b.Addr()})
	eventually(t, "a stream", func() bool { return a.Stream("b") != nil })
	s := a.Stream("b")
	s.Send(&Frame{Kind: Ping})
	for i := range uint64(100) {
		if f := await(t, got); f.Kind != Resume || f.Request != i {
			t.Fatalf("%v %d, want Resume %d", f.Kind, f.Request, i)
		}
	}
	if f := await(t, got); f.Kind != Ping {
		t.Fatal(f.Kind)
	}
	if s.Node() != "b" || s.Generation() == 0 || s.Data != "mine" {
		t.Error(s.Node(), s.Generation(), s.Data)
	}
}

// Connections are killed at random under load: within a stream nothing is lost in the
// middle, repeated, or out of order, and each side's calls keep their order.
func TestReconnect(t *testing.T) {
	takes.Seconds(t)
	const kills = 40
	type state struct{ next [4]uint64 }
	var total atomic.Uint64
	var evs [2]*events
	var nodes [2]*Transport
	var all [2]map[*Stream]*state
	for i, name := range []string{"a", "b"} {
		e := newEvents(t)
		states := map[*Stream]*state{}
		all[i] = states
		var mu sync.Mutex
		e.frame = func(s *Stream, f *Frame) {
			mu.Lock()
			defer mu.Unlock()
			st := states[s]
			if st == nil {
				st = &state{}
				states[s] = st
			}
			if f.Request != st.next[f.Partition] {
				t.Errorf("%v sender %d: %d, want %d", s, f.Partition, f.Request, st.next[f.Partition])
			}
			st.next[f.Partition]++
			total.Add(1)
		}
		evs[i] = e
		nodes[i] = start(t, Options{Node: name, Handler: e, Retry: time.Millisecond})
	}
	peers(nodes[:]...)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for i, node := range nodes {
		other := nodes[1-i].opts.Node
		for sender := range uint32(4) {
			wg.Go(func() {
				pace := time.NewTicker(100 * time.Microsecond)
				defer pace.Stop()
				var last *Stream
				var n uint64
				for {
					select {
					case <-stop:
						return
					default:
					}
					s := node.Stream(other)
					if s == nil {
						<-pace.C
						continue
					}
					if s != last {
						last, n = s, 0
					}
					if s.Send(&Frame{Kind: Request, Partition: sender, Request: n}) == nil {
						n++
					}
					if n%64 == 0 {
						<-pace.C // two cores
					}
				}
			})
		}
	}
	for kill := range kills {
		n := total.Load()
		eventually(t, "frames", func() bool { return total.Load() > n+500 })
		if s := nodes[kill%2].Stream(nodes[1-kill%2].opts.Node); s != nil {
			if rand.N(2) == 0 {
				s.sock.Close() // as the network would
			} else {
				s.Close(errors.New("killed"))
			}
		}
	}
	close(stop)
	wg.Wait()
	for _, node := range nodes {
		node.Close()
	}
	// Both sides had the same streams. Only one that was killed before it was Up at a, which
	// decides, may have been Up at b alone. Then nothing has come over it.
	decided, alone := map[uint64]bool{}, 0
	for i, e := range evs {
		if len(e.ups) != len(e.downs) || len(e.up) != 0 {
			t.Errorf("%d Up, %d Down", len(e.ups), len(e.downs))
		}
		last := uint64(0)
		for range len(e.ups) {
			if s := <-e.ups; s.Generation() <= last {
				t.Errorf("generation %d after %d", s.Generation(), last)
			} else {
				last = s.Generation()
				switch {
				case i == 0:
					decided[s.id] = true
				case !decided[s.id]:
					alone++
					if all[1][s] != nil {
						t.Errorf("b had frames on the stream %d, and a had not had it", s.id)
					}
				}
			}
		}
	}
	if alone > kills/4 {
		t.Errorf("%d streams were up at b alone, of %d kills", alone, kills)
	}
}

// Frames pass from node to node in order; the frames that Pass leaves are written though nothing
// else is sent on that stream.
func TestPass(t *testing.T) {
	const frames = 5000
	var b *Transport
	ready := make(chan struct{}, 2)
	b = start(t, Options{Node: "b", Handler: handler{
		up: func(*Stream) { ready <- struct{}{} },
		frame: func(s *Stream, f *Frame) {
			if err := s.Pass(b.Stream("c"), f); err != nil {
				t.Error(err)
			}
		},
	}})
	got := make(chan uint64, frames)
	a := start(t, Options{Node: "a"})
	c := start(t, Options{Node: "c", Handler: handler{frame: func(_ *Stream, f *Frame) { got <- f.Request }}})
	b.SetPeers(map[string]string{"a": a.Addr(), "c": c.Addr()})
	await(t, ready)
	await(t, ready)
	eventually(t, "streams", func() bool { return a.Stream("b") != nil && b.Stream("c") != nil })
	for i := range uint64(frames) {
		if err := a.Stream("b").Send(&Frame{Kind: Cancel, Request: i}); err != nil {
			t.Fatal(err)
		}
	}
	for i := range uint64(frames) {
		if n := await(t, got); n != i {
			t.Fatalf("%d, want %d", n, i)
		}
	}
}

// Queue takes the place in the order, Flush writes; without it the keepalive does.
func TestQueue(t *testing.T) {
	got := make(chan uint64, 10)
	up := make(chan *Stream, 1)
	const k = 400 * time.Millisecond // of both: one that says nothing for 2.5 times that is cut off
	b := start(t, Options{Node: "b", Keepalive: k, Handler: handler{frame: func(_ *Stream, f *Frame) { got <- f.Request }}})
	a := start(t, Options{Node: "a", Keepalive: k, Handler: handler{up: func(s *Stream) { up <- s }}})
	a.SetPeers(map[string]string{"b": b.Addr()})
	s := await(t, up)
	s.Queue(&Frame{Kind: Frozen, Request: 1})
	s.Queue(&Frame{Kind: Frozen, Request: 2})
	s.Flush()
	for want := range uint64(2) {
		if n := await(t, got); n != want+1 {
			t.Fatal(n)
		}
	}
	s.Queue(&Frame{Kind: Frozen, Request: 3})
	s.Send(&Frame{Kind: Pong, Request: 4})
	for want := range uint64(2) {
		if n := await(t, got); n != want+3 {
			t.Fatal(n)
		}
	}
	s.Queue(&Frame{Kind: Frozen, Request: 5})
	await(t, got)
}

func TestSendAllocates(t *testing.T) {
	back := make(chan struct{}, 1)
	up := make(chan *Stream, 1)
	b := start(t, Options{Node: "b", Handler: echo})
	a := start(t, Options{Node: "a", Handler: handler{
		up:    func(s *Stream) { up <- s },
		frame: func(*Stream, *Frame) { back <- struct{}{} },
	}})
	a.SetPeers(map[string]string{"b": b.Addr()})
	s, f := await(t, up), request(1)
	// Both sides of 300 round trips, in one process.
	if n := testing.AllocsPerRun(300, func() { s.Send(f); <-back }); n >= 1 {
		t.Errorf("%v allocations per round trip", n)
	}
	if n := testing.AllocsPerRun(100, func() { _ = a.Stream("b") }); n != 0 {
		t.Errorf("%v allocations per look-up", n)
	}
}

func TestSendErrors(t *testing.T) {
	up := make(chan *Stream, 1)
	downs := make(chan error, 1)
	b := start(t, Options{Node: "b"})
	a := start(t, Options{Node: "a", Handler: handler{
		up:   func(s *Stream) { up <- s },
		down: func(_ *Stream, err error) { downs <- err },
	}})
	a.SetPeers(map[string]string{"b": b.Addr()})
	s := await(t, up)
	if err := s.Send(&Frame{Kind: 99}); !errors.Is(err, ErrFrame) {
		t.Error(err)
	}
	mine := errors.New("mine")
	a.SetPeers(nil)
	s.Close(mine) // too late
	for _, err := range []error{await(t, downs), s.Send(&Frame{Kind: Ping})} {
		if !errors.Is(err, ErrClosed) || !errors.Is(err, ErrRemoved) || errors.Is(err, mine) {
			t.Error(err)
		}
	}
}

// Close while everybody sends and answers.
func TestCloseUnderLoad(t *testing.T) {
	for range 10 {
		var nodes []*Transport
		var evs []*events
		for i := range 3 {
			e := newEvents(t)
			e.frame = func(s *Stream, f *Frame) {
				if f.Count < 50 {
					f.Count++
					s.Send(f)
				}
			}
			evs = append(evs, e)
			nodes = append(nodes, start(t, Options{Node: fmt.Sprint("n", i), Handler: e}))
		}
		peers(nodes...)
		for _, e := range evs {
			await(t, e.ups)
			await(t, e.ups)
		}
		var wg sync.WaitGroup
		for _, n := range nodes {
			for _, m := range nodes {
				wg.Go(func() {
					for {
						if s := n.Stream(m.opts.Node); s == nil || s.Send(request(1)) != nil {
							return
						}
					}
				})
			}
		}
		for _, n := range nodes {
			wg.Go(func() { n.Close() })
			wg.Go(func() { n.Close() })
		}
		wg.Wait()
		for _, e := range evs {
			if len(e.up) != 0 {
				t.Errorf("still up: %v", e.up)
			}
		}
	}
}
