//go:build linux

package netns

import (
	"context"
	"net"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// Within calls f with this thread in the host's namespace: sockets that f opens are there.
func (h *Host) Within(f func() error) error {
	// The thread must live on: processes that were started from it die with it.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	home, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return err
	}
	defer home.Close()
	there, err := os.Open("/var/run/netns/" + h.ns)
	if err != nil {
		return err
	}
	defer there.Close()
	if err := unix.Setns(int(there.Fd()), unix.CLONE_NEWNET); err != nil {
		return err
	}
	defer func() {
		if err := unix.Setns(int(home.Fd()), unix.CLONE_NEWNET); err != nil {
			panic(err) // nothing that runs on this thread later would be where it thinks
		}
	}()
	return f()
}

// Dial connects from the host to an IP and port.
func (h *Host) Dial(ctx context.Context, network, addr string) (conn net.Conn, err error) {
	err = h.Within(func() error {
		// A dialler with two addresses would take a goroutine, and so a thread elsewhere, for one.
		conn, err = (&net.Dialer{FallbackDelay: -1}).DialContext(ctx, network, addr)
		return err
	})
	return conn, err
}
