package peer

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"
	"time"
)

// bare is a blocking 40-byte request and reply on a plain connection: no transport can beat that.
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
func pair(b *testing.B, waiters []chan struct{}, ca *authority) *Stream {
	up := make(chan *Stream, 1)
	var secret [2]*tls.Config
	if ca != nil {
		secret = [2]*tls.Config{ca.config(b), ca.config(b)}
	}
	server := start(b, Options{Node: "b", TLS: secret[0], Handler: echo})
	client := start(b, Options{Node: "a", TLS: secret[1], Handler: handler{
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

// The plain stream, the one under TLS and the bare connection take turns: the machine has fast
// and slow times.
func BenchmarkRoundTrip(b *testing.B) {
	for _, callers := range []int{1, 64} {
		b.Run(fmt.Sprintf("callers=%d", callers), func(b *testing.B) {
			waiters := make([]chan struct{}, callers)
			for i := range waiters {
				waiters[i] = make(chan struct{}, 1)
			}
			streams := []*Stream{pair(b, waiters, nil), pair(b, waiters, newAuthority(b))}
			const chunk = 2000
			var bares time.Duration
			ours := make([]time.Duration, len(streams))
			rounds := 0
			b.ReportAllocs()
			for b.Loop() {
				rounds++
				bares += bare(b, chunk)
				for i, s := range streams {
					begin := time.Now()
					ask(s, waiters, chunk)
					ours[i] += time.Since(begin)
				}
			}
			n := float64(rounds * chunk)
			b.ReportMetric(bares.Seconds()/n*1e6, "bare-us")
			b.ReportMetric(ours[0].Seconds()/bares.Seconds(), "x-bare")
			b.ReportMetric(ours[0].Seconds()/n*1e6, "round-us")
			b.ReportMetric(n*float64(callers)/ours[0].Seconds(), "requests/s")
			b.ReportMetric(ours[1].Seconds()/ours[0].Seconds(), "x-TLS")
		})
	}
}

// ask sends n requests for each waiter, one after another.
func ask(s *Stream, waiters []chan struct{}, n int) {
	var wg sync.WaitGroup
	for i, w := range waiters {
		wg.Go(func() {
			f := request(i)
			for range n {
				if s.Send(f) != nil {
					return
				}
				<-w
			}
		})
	}
	wg.Wait()
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
