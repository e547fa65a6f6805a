package presence

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"sync"
	"syscall"
)

// Place names this host's boot and the network namespace of the calling thread. Processes with the
// same one can see each other's signs, but for those of another machine that began as the same
// snapshot. It is "" if it is not known.
func Place() string {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil || len(boot) == 0 {
		return ""
	}
	for _, path := range []string{"/proc/thread-self/ns/net", "/proc/self/ns/net"} {
		var st syscall.Stat_t
		if syscall.Stat(path, &st) == nil {
			return digest(fmt.Sprintf("%s %d %d", boot, st.Dev, st.Ino))[:16]
		}
	}
	return ""
}

// digest returns 32 hex digits.
func digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:16])
}

// address returns that of the name. The @ stands for the zero byte of abstract names.
func address(name string) *syscall.SockaddrUnix {
	return &syscall.SockaddrUnix{Name: "@holdfast/" + digest(name)}
}

// A Sign shows that this process lives. No finalizer takes it down: a Sign that nothing refers to
// stays up until the process ends.
type Sign struct {
	mu  sync.Mutex // protects fds
	fds []int      // descriptors of the same socket; none: closed
}

const (
	most = 1 << 16 // connections in the backlog; net.core.somaxconn is a limit as well
	high = 512     // the lowest number of the second descriptor; a process has 1024 by default
	some = 64      // connections that Tidy closes
)

// Show shows this process under the name until Close, or until the process ends. It starts no
// goroutine. A name that another process has is an error, EADDRINUSE.
func Show(name string) (*Sign, error) { return show(name, most) }

func show(name string, backlog int) (*Sign, error) {
	fd, err := socket()
	if err != nil {
		return nil, fmt.Errorf("presence: socket: %w", err)
	}
	s := &Sign{fds: []int{fd}}
	if err := syscall.Bind(fd, address(name)); err != nil {
		s.Close()
		return nil, fmt.Errorf("presence: bind %q: %w", name, err)
	}
	second, err := duplicate(fd, high)
	if err != nil {
		s.Close()
		return nil, fmt.Errorf("presence: a descriptor from %d on: %w", high, err)
	}
	s.fds = append(s.fds, second)
	if err := syscall.Listen(fd, backlog); err != nil {
		s.Close()
		return nil, fmt.Errorf("presence: listen: %w", err)
	}
	return s, nil
}

// duplicate returns another descriptor of a socket, with that number or a higher one.
func duplicate(fd, least int) (int, error) {
	n, _, errno := syscall.Syscall(syscall.SYS_FCNTL, uintptr(fd), syscall.F_DUPFD_CLOEXEC, uintptr(least))
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}

// socket returns one that does not block, and that programs executed later do not get.
func socket() (int, error) {
	return syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC|syscall.SOCK_NONBLOCK, 0)
}

// Tidy lets go of the 64 oldest connections. Those of watchers that are gone rest in the backlog as
// well, until it is full and no process can watch any more: call it once an hour. A watcher whose
// connection goes gets an error from Ended, and can watch anew.
func (s *Sign) Tidy() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.fds) == 0 {
		return
	}
	var old []int
	for len(old) < some {
		fd, _, err := syscall.Accept4(s.fds[0], syscall.SOCK_CLOEXEC)
		if err == syscall.EINTR {
			continue
		}
		if err != nil { // EAGAIN: it was the last one
			break
		}
		old = append(old, fd)
	}
	for _, fd := range old { // after the loop, which would else meet their watchers again
		_ = syscall.Close(fd)
	}
}

// Close takes the sign down: watchers see it as the end of the process. It may be called again.
func (s *Sign) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, fd := range s.fds {
		_ = syscall.Close(fd)
	}
	s.fds = nil
}
