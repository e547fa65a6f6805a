//go:build unix && !linux

package sqlite

import (
	"fmt"
	"os"
	"syscall"
)

// fileNumber tells the file from its copies that are there at the same time.
func fileNumber(_ string, info os.FileInfo) string {
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		return fmt.Sprintf("/%d", s.Ino)
	}
	return ""
}
