//go:build unix

package sqlite

import (
	"fmt"
	"os"
	"syscall"
)

// fileNumber tells a file from its copies.
func fileNumber(info os.FileInfo) string {
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		return fmt.Sprintf("/%d", s.Ino)
	}
	return ""
}
