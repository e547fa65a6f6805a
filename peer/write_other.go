//go:build !unix

package peer

import (
	"net"
	"syscall"
)

// Elsewhere there is no write that does not wait: the stream's own goroutine writes.

func rawConn(net.Conn) syscall.RawConn { return nil }

func writeNow(uintptr, []byte) (int, error) { return 0, syscall.EINVAL }

func readNow(uintptr, []byte) (int, bool, error) { return 0, true, syscall.EINVAL }
