//go:build unix

package fence

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/holdfast-go/holdfast/coord"
)

// UpdateFile replaces a file's content by the result of fn, unless a higher token was seen. The highest
// one is in a file beside it, with ".fence" at the end of its name, which is locked (flock) until UpdateFile
// returns: by then the new content is on the disk, or the old one is as it was. A file that does not exist
// is empty. If a stopped process has the lock of the file, others wait until ctx ends.
//
// It returns a [*StaleError], which Is [ErrStale]; context.Cause(ctx); an error of the file system; or fn's.
func UpdateFile(ctx context.Context, path string, token coord.Fence, fn func(old []byte) ([]byte, error)) (err error) {
	if err := check(path, token); err != nil {
		return err
	}
	f, err := os.OpenFile(path+".fence", os.O_RDWR|os.O_CREATE, 0o666)
	if err != nil {
		return err
	}
	defer f.Close() // frees it
	if err := lockFile(ctx, f); err != nil {
		return err
	}
	if err := putToken(f, path, token); err != nil { // before reading: a crash leaves a token too many
		return err
	}
	old, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	data, err := fn(old)
	if err != nil {
		return err
	}
	return replaceFile(path, data)
}

// lockFile waits for the lock. Flock itself would wait beyond the end of ctx.
func lockFile(ctx context.Context, f *os.File) error {
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) {
			return fmt.Errorf("fence: flock %s: %w", f.Name(), err)
		}
		select {
		case <-time.After(5 * time.Millisecond):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// putToken raises the token in a locked file.
func putToken(f *os.File, path string, token coord.Fence) error {
	text, err := io.ReadAll(f)
	if err != nil {
		return err
	}
	var seen coord.Fence
	// Fewer digits are those of a write that a crash has cut short, before anything else was written.
	if len(text) == digits {
		if err := seen.UnmarshalText(text); err != nil {
			return fmt.Errorf("fence: %s: %w", f.Name(), err)
		}
	}
	if err := Judge(path, token, seen); err != nil || seen == token {
		return err
	}
	if _, err := fmt.Fprintf(io.NewOffsetWriter(f, 0), "%0*d", digits, uint64(token)); err != nil {
		return err
	}
	return f.Sync()
}

// digits are those of the highest token. All tokens have as many in a file.
const digits = 20

func replaceFile(path string, data []byte) (err error) {
	temp, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(temp.Name())
		}
	}()
	mode := fs.FileMode(0o644)
	if info, err := os.Stat(path); err == nil {
		mode = info.Mode().Perm()
	}
	_, err = temp.Write(data)
	err = errors.Join(err, temp.Chmod(mode), temp.Sync(), temp.Close())
	if err != nil {
		return err
	}
	if err := os.Rename(temp.Name(), path); err != nil {
		return err
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer dir.Close()
	return dir.Sync()
}
