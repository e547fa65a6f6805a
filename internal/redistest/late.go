package redistest

import (
	"net"
	"time"
)

// Delay makes the proxy pass on each piece late by half of a round trip, in each direction. The
// delay applies to connections that are made from now on. Pieces keep their order and do not wait
// for each other, as in a network.
func (p *Proxy) Delay(roundTrip time.Duration) { p.late.Store(int64(roundTrip / 2)) }

// piece is bytes that are under way. No bytes are the end.
type piece struct {
	b  []byte
	at time.Time
}

// later returns a function that has bytes written to a connection late. Close ends it.
func (p *Proxy) later(to net.Conn, late time.Duration) (write func([]byte), end func()) {
	ch := make(chan piece, 1<<14)
	p.work.Go(func() {
		for x := range ch {
			time.Sleep(time.Until(x.at))
			if x.b == nil {
				_ = to.Close()
			} else if _, err := to.Write(x.b); err != nil {
				_ = to.Close() // the other side's reader notices
			}
		}
	})
	write = func(b []byte) { ch <- piece{append([]byte{}, b...), time.Now().Add(late)} }
	return write, func() { ch <- piece{at: time.Now().Add(late)}; close(ch) }
}
