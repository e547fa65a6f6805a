package sqlite

import (
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// fileNumber tells the file at the path from its copies. A file system gives the number of a file
// that is gone to the next one: when it was made tells the two apart, where the file system knows
// that.
func fileNumber(path string, info os.FileInfo) string {
	s, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return ""
	}
	var x unix.Statx_t
	if unix.Statx(unix.AT_FDCWD, path, 0, unix.STATX_BTIME, &x) != nil || x.Mask&unix.STATX_BTIME == 0 {
		return fmt.Sprintf("/%d", s.Ino)
	}
	return fmt.Sprintf("/%d/%d.%09d", s.Ino, x.Btime.Sec, x.Btime.Nsec)
}
