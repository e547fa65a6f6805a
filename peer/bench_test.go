package peer

import (
	"fmt"
	"io"
	"net"
	"sync"
	"testing"
	"time"
)

// bare is a blocking 40-byte request and reply on a plain connection: what no transport can
// beat.
func bare(b *testing.B, rounds int) time.Duration {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		var buf [40]byte
		for {
			if _, err := io.ReadFull(c, buf[:]); err != nil {
				return
			}
			c.Write(buf[:])
		}
	})
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	var buf [40]byte
	begin := time.Now()
	for range rounds {
		c.Write(buf[:])
		if _, err := io.ReadFull(c, buf[:]); err != nil {
			b.Fatal(err)
		}
	}
	return time.Since(begin)
}

// pair returns a stream to an echoing node. Replies go to the waiter of that number.
func pair(b *testing.B, waiters []chan struct{}) *Stream {
	up := make(chan *Stream, 1)
	server := start(b, Options{Node: "b", Handler: echo})
	client := start(b, Options{Node: "a", Handler: handler{
		up:    func(s *Stream) { up <- s },
		frame: func(s *Stream, f *Frame) { waiters[f.Partition] <- struct{}{} },
	}})
	client.SetPeers(map[string]string{"b": server.Addr()})
	return await(b, up)
}

// request is a frame of 40 bytes or so.
func request(i int) *Frame {
	return &Frame{Kind: Request, Partition: uint32(i), Request: 1 << 30, Epoch: 12345678, Session: []byte("0123456789"), Key: []byte("orders/12345")}
}

func BenchmarkRoundTrip(b *testing.B) {
	for _, callers := range []int{1, 64} {
		b.Run(fmt.Sprintf("callers=%d", callers), func(b *testing.B) {
			waiters := make([]chan struct{}, callers)
			for i := range waiters {
				waiters[i] = make(chan struct{}, 1)
			}
			s := pair(b, waiters)
			const chunk = 2000 // by turns with the bare one: the machine has fast and slow times
			var ours, theirs time.Duration
			rounds := 0
			b.ReportAllocs()
			for b.Loop() {
				rounds++
				theirs += bare(b, chunk)
				begin := time.Now()
				var wg sync.WaitGroup
				for i, w := range waiters {
					wg.Go(func() {
						f := request(i)
						for range chunk {
							if s.Send(f) != nil {
								return
							}
							<-w
						}
					})
				}
				wg.Wait()
				ours += time.Since(begin)
			}
			n := float64(rounds * chunk)
			b.ReportMetric(ours.Seconds()/theirs.Seconds(), "x-bare")
			b.ReportMetric(theirs.Seconds()/n*1e6, "bare-us")
			b.ReportMetric(ours.Seconds()/n*1e6, "round-us")
			b.ReportMetric(n*float64(callers)/ours.Seconds(), "requests/s")
		})
	}
}

func BenchmarkCodec(b *testing.B) {
	f := request(7)
	buf := AppendFrame(nil, f)
	b.Run("append", func(b *testing.B) {
		b.SetBytes(int64(len(buf)))
		b.ReportAllocs()
		for b.Loop() {
			buf = AppendFrame(buf[:0], f)
		}
	})
	b.Run("decode", func(b *testing.B) {
		b.SetBytes(int64(len(buf)))
		b.ReportAllocs()
		var g Frame
		for b.Loop() {
			if err := g.Decode(buf); err != nil {
				b.Fatal(err)
			}
		}
	})
}
