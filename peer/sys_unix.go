//go:build unix && (!linux || race)

package peer

import "syscall"

func sysWrite(fd uintptr, b []byte) (int, error) { return syscall.Write(int(fd), b) }
func sysRead(fd uintptr, b []byte) (int, error)  { return syscall.Read(int(fd), b) }
