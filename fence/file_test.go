//go:build unix

package fence_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fence"
)

func TestUpdateFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "n")
	increase := func(old []byte) ([]byte, error) {
		n, _ := strconv.Atoi(string(old))
		return []byte(strconv.Itoa(n + 1)), nil
	}
	var work sync.WaitGroup
	var mu sync.Mutex
	done := 0
	for token := range coord.Fence(30) {
		work.Go(func() {
			err := fence.UpdateFile(t.Context(), path, token+1, increase)
			if err != nil && !errors.Is(err, fence.ErrStale) {
				t.Error(err)
			}
			if err == nil {
				mu.Lock()
				done++
				mu.Unlock()
			}
		})
	}
	work.Wait()
	if text, err := os.ReadFile(path); err != nil || string(text) != strconv.Itoa(done) {
		t.Errorf("the file has %q, %v; %d updates", text, err, done)
	}
	if err := fence.UpdateFile(t.Context(), path, 29, increase); !errors.Is(err, fence.ErrStale) {
		t.Errorf("a stale one: %v", err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		t.Fatal(err)
	}
	broken := errors.New("broken")
	if err := fence.UpdateFile(t.Context(), path, 40, func([]byte) ([]byte, error) { return nil, broken }); err != broken {
		t.Errorf("got %v", err)
	}
	if err := fence.UpdateFile(t.Context(), path, 40, increase); err != nil {
		t.Error(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	if files, _ := os.ReadDir(filepath.Dir(path)); len(files) != 2 {
		t.Errorf("left: %v", files)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if err := fence.UpdateFile(t.Context(), path, 41, func(old []byte) ([]byte, error) {
		return old, fence.UpdateFile(ctx, path, 42, increase)
	}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("two at a time: %v", err)
	}
}

func mustUpdate(t *testing.T, path string, token coord.Fence, content string) {
	t.Helper()
	if err := fence.UpdateFile(t.Context(), path, token, func([]byte) ([]byte, error) { return []byte(content), nil }); err != nil {
		t.Fatal(err)
	}
}

// A file has one content and one token, by whatever links it is reached, also before it exists.
func TestUpdateFile_SymbolicLinks(t *testing.T) {
	dir := t.TempDir()
	for _, d := range []string{"etc", "data/v1", "other"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o777); err != nil {
			t.Fatal(err)
		}
	}
	file := filepath.Join(dir, "data/n")
	links := map[string]string{
		"etc/relative": "../data/n", "etc/absolute": file, "etc/chain": "relative",
		"other/folder": "../data/v1", "etc/dots": "../other/folder/../n", "etc/circle": "circle",
	}
	for name, to := range links {
		if err := os.Symlink(to, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	same := func(old []byte) ([]byte, error) { return old, nil }
	paths := []string{"etc/relative", "etc/absolute", "etc/chain", "etc/dots", "data/n"}
	token := coord.Fence(0)
	for _, missing := range []bool{true, false} {
		for _, name := range paths {
			if missing {
				_ = os.Remove(file)
			}
			token++
			path := filepath.Join(dir, name)
			mustUpdate(t, path, token, name)
			if text, err := os.ReadFile(file); string(text) != name {
				t.Errorf("%s, missing %v: the file has %q, %v", name, missing, text, err)
			}
			if to, err := os.Readlink(path); to != links[name] {
				t.Errorf("%s leads to %q, %v", name, to, err)
			}
		}
	}
	for _, name := range paths {
		path := filepath.Join(dir, name)
		var stale *fence.StaleError
		if err := fence.UpdateFile(t.Context(), path, token-1, same); !errors.As(err, &stale) || stale.Key != path {
			t.Errorf("%s: %v", name, err)
		}
	}
	if all, _ := filepath.Glob(filepath.Join(dir, "*/*.fence")); len(all) != 1 || all[0] != file+".fence" {
		t.Errorf("tokens are in %q", all)
	}
	if err := fence.UpdateFile(t.Context(), filepath.Join(dir, "etc/circle"), token, same); err == nil {
		t.Error("a circle of links is a file")
	}
	if err := fence.UpdateFile(t.Context(), filepath.Join(dir, "none/n"), token, same); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a folder that does not exist: %v", err)
	}
}

// Root keeps the owner and the group of a file.
func TestUpdateFile_Owner(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root may give files away")
	}
	path := filepath.Join(t.TempDir(), "n")
	for _, err := range []error{os.WriteFile(path, nil, 0o600), os.Chown(path, 1234, 5678), os.Chmod(path, 0o640)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	mustUpdate(t, path, 1, "new")
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if s := info.Sys().(*syscall.Stat_t); s.Uid != 1234 || s.Gid != 5678 || info.Mode().Perm() != 0o640 {
		t.Errorf("it is of %d:%d, %v", s.Uid, s.Gid, info.Mode())
	}
}
