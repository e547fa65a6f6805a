package peer

import (
	"crypto/tls"
	"net"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/loopback"
)

// A node that cannot be reached is told, with the time of the first attempt, until it has a stream
// or is no longer wanted.
func TestFailing(t *testing.T) {
	a, b, c := start(t, Options{Node: "a"}), start(t, Options{Node: "b"}), start(t, Options{Node: "c", Namespace: "another"})
	nowhere := loopback.Address(t)
	a.SetPeers(map[string]string{"b": nowhere, "c": c.Addr()})
	failure := func(node string) (f Failure) {
		for _, x := range a.Failing() {
			if x.Node == node {
				f = x
			}
		}
		return f
	}
	eventually(t, "failures", func() bool { return failure("b").Err != nil && failure("c").Err != nil })
	first := failure("b")
	if first.Addr != nowhere || first.Connected || time.Since(first.Since) < 0 || time.Since(first.Since) > time.Minute {
		t.Errorf("got %+v", first)
	}
	if f := failure("c"); f.Addr != c.Addr() || !f.Connected {
		t.Errorf("got %+v", f)
	}
	eventually(t, "another attempt", func() bool { return failure("b").Err != first.Err })
	if f := failure("b"); !f.Since.Equal(first.Since) {
		t.Errorf("it fails since %v, then since %v", first.Since, f.Since)
	}
	a.SetPeers(map[string]string{"b": b.Addr()})
	eventually(t, "a stream", func() bool { return a.Stream("b") != nil })
	if all := a.Failing(); len(all) > 0 {
		t.Errorf("got %+v", all)
	}
}

// A failure before there was a stream is no failure of the time after it.
func TestFailing_AfterAStream(t *testing.T) {
	a, at := start(t, Options{Node: "a"}), loopback.Address(t)
	a.SetPeers(map[string]string{"b": at})
	eventually(t, "a failure", func() bool { return len(a.Failing()) > 0 })
	b := start(t, Options{Node: "b", Listen: at})
	b.SetPeers(map[string]string{"a": ""}) // it takes a's stream, and does not dial
	eventually(t, "a stream", func() bool { return a.Stream("b") != nil })
	ended := time.Now()
	b.Close()
	eventually(t, "a failure again", func() bool { return len(a.Failing()) > 0 })
	if f := a.Failing()[0]; f.Since.Before(ended) {
		t.Errorf("it fails since %v before the stream ended: %v", ended.Sub(f.Since), f.Err)
	}
}

// A host that accepts connections and closes them at once, as a proxy that reaches no node, is no
// node that refuses this one.
func TestFailing_ClosedWithoutAWord(t *testing.T) {
	t.Parallel()
	for name, secret := range map[string]*tls.Config{"plain": nil, "TLS": newAuthority(t).config(t)} {
		for how, linger := range map[string]int{"closed": -1, "reset": 0} {
			t.Run(name+" "+how, func(t *testing.T) {
				proxy, err := net.Listen("tcp", "127.0.0.1:0")
				if err != nil {
					t.Fatal(err)
				}
				defer proxy.Close()
				lines := newLogLines()
				a := start(t, Options{Node: "a", TLS: secret, Logger: newLogger(lines)})
				a.SetPeers(map[string]string{"b": proxy.Addr().String()})
				for range 8 {
					c, err := proxy.Accept()
					if err != nil {
						t.Fatal(err)
					}
					c.(*net.TCPConn).SetLinger(linger)
					c.Close()
				}
				all := a.Failing()
				if len(all) != 1 || all[0].Connected {
					t.Errorf("it counts as a node that refuses: %+v", all)
				}
				a.Close()
				if len(lines.c) > 0 {
					t.Error(<-lines.c)
				}
			})
		}
	}
}
