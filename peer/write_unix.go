//go:build unix

package peer

import (
	"net"
	"syscall"
)

// rawConn returns what gives access to c's descriptor, nil if nothing does.
func rawConn(c net.Conn) syscall.RawConn {
	if sc, ok := c.(syscall.Conn); ok {
		if rc, err := sc.SyscallConn(); err == nil {
			return rc
		}
	}
	return nil
}

// writeNow writes as much of b as the socket takes without waiting, maybe nothing. Go's
// sockets are non-blocking.
func writeNow(fd uintptr, b []byte) (int, error) {
	for {
		n, err := syscall.Write(int(fd), b)
		switch err {
		case nil:
			return n, nil
		case syscall.EINTR:
		case syscall.EAGAIN:
			return 0, nil
		default:
			return 0, err
		}
	}
}
