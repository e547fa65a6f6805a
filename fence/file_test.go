//go:build unix

package fence_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"sync"
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
