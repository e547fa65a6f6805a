//go:build unix

package peer

import (
	"net"
	"syscall"
)

// rawConn returns the access to c's descriptor, nil if there is none.
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
		n, err := sysWrite(fd, b)
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

// readNow reads the bytes that are there; ready is false if there are none. At the end n is 0.
func readNow(fd uintptr, b []byte) (n int, ready bool, err error) {
	for {
		n, err := sysRead(fd, b)
		switch err {
		case nil:
			return n, true, nil
		case syscall.EINTR:
		case syscall.EAGAIN:
			return 0, false, nil
		default:
			return 0, true, err
		}
	}
}
