// Package loopback gives tests addresses to tell before any process listens there.
package loopback

import (
	"fmt"
	"math/rand/v2"
	"net"
	"testing"
)

// Address returns a host and port without a listener, for TCP and UDP, and without one by chance
// later: its host is one of
// 127.0.0.0/8 at random, and a program that asks for any free port asks for one of 127.0.0.1. Where the system has
// 127.0.0.1 only, it is a port of that, which was free a moment ago.
func Address(t testing.TB) string {
	t.Helper()
	host := fmt.Sprintf("127.%d.%d.%d", 1+rand.IntN(254), rand.IntN(256), 1+rand.IntN(254))
	for range 100 {
		tcp, err := net.Listen("tcp", host+":0")
		if err != nil {
			host = "127.0.0.1"
			continue
		}
		addr := tcp.Addr().String()
		udp, err := net.ListenPacket("udp", addr)
		tcp.Close()
		if err == nil {
			udp.Close()
			return addr
		}
	}
	t.Fatal("no address is free")
	return ""
}
