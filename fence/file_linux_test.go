package fence_test

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"

	"github.com/holdfast-go/holdfast/fence"
)

// A process that may not give a file away keeps its group if it is a member. Else the new group has
// no more permissions than all others.
func TestUpdateFile_OwnerOfAnother(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can be another user")
	}
	for _, tt := range []struct {
		gid       int
		mode, now os.FileMode
		of        string
	}{
		{5678, 0o664, 0o664, "1234:5678"},
		{8765, 0o664, 0o644, "1234:5678"},
		{8765, 0o604, 0o604, "1234:5678"},
	} {
		dir := t.TempDir()
		path := filepath.Join(dir, "n")
		for _, err := range []error{
			os.Chmod(filepath.Dir(dir), 0o755), os.Chmod(dir, 0o777),
			os.WriteFile(path, nil, 0o600), os.Chown(path, 4321, tt.gid), os.Chmod(path, tt.mode),
		} {
			if err != nil {
				t.Fatal(err)
			}
		}
		for up := dir; up != "/"; up = filepath.Dir(up) {
			if info, err := os.Stat(up); err != nil || info.Mode()&0o001 == 0 {
				t.Skipf("another user does not reach %s", up)
			}
		}
		done := make(chan error)
		go func() {
			runtime.LockOSThread() // which ends with this goroutine, as it is another user's
			err := syscall.Setfsgid(5678)
			if err == nil {
				err = syscall.Setfsuid(1234)
			}
			if err == nil {
				err = fence.UpdateFile(t.Context(), path, 1, func([]byte) ([]byte, error) { return []byte("new"), nil })
			}
			done <- err
		}()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		s := info.Sys().(*syscall.Stat_t)
		if of := fmt.Sprintf("%d:%d", s.Uid, s.Gid); of != tt.of || info.Mode().Perm() != tt.now {
			t.Errorf("%v of group %d: it is %v of %s, want %v of %s", tt.mode, tt.gid, info.Mode(), of, tt.now, tt.of)
		}
	}
}
