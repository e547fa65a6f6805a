//go:build unix

package fence

import (
	"cmp"
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

// UpdateFile replaces a file's content by the result of fn, unless a higher token was seen. The
// highest one is in a file beside it, with ".fence" at the end of its name, which is locked (flock)
// until UpdateFile returns: by then the new content is on the disk, or the old one is as it was. A
// file that does not exist is empty. If a stopped process has the lock of the file, others wait
// until ctx ends.
//
// A symbolic link stays: the file that it leads to is replaced, which may not exist yet, and the
// one with the token is beside that. The new file has the permissions of the old one, and its owner
// and group where the process may set them, as root may. Where it may not set the group, that may
// do no more than all others. Hard links, ACLs and extended attributes are not kept.
//
// It returns a [*StaleError], which Is [ErrStale]; context.Cause(ctx); an error of the file system;
// or fn's.
func UpdateFile(ctx context.Context, path string, token coord.Fence, fn func(old []byte) ([]byte, error)) (err error) {
	if err := check(path, token); err != nil {
		return err
	}
	name := path
	if path, err = target(path); err != nil {
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
	if err := putToken(f, name, token); err != nil { // before reading: a crash leaves a token too many
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

// target returns the path of the file behind all symbolic links of a path, so that all paths of a
// file have one lock. The file need not exist, but its folder has to.
func target(path string) (string, error) {
	const most = 40 // the links that Linux follows
	for range most {
		file, err := filepath.EvalSymlinks(path)
		if !errors.Is(err, fs.ErrNotExist) {
			return file, err
		}
		dir, base := filepath.Split(path) // unlike Dir it leaves "link/.." to the file system
		link, err := os.Readlink(path)
		if err != nil { // there is no link, and no file
			dir, err = filepath.EvalSymlinks(cmp.Or(dir, "."))
			return filepath.Join(dir, base), err
		}
		if path = link; !filepath.IsAbs(link) {
			path = dir + link
		}
	}
	return "", &fs.PathError{Op: "open", Path: path, Err: syscall.ELOOP}
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
func putToken(f *os.File, name string, token coord.Fence) error {
	text, err := io.ReadAll(f)
	if err != nil {
		return err
	}
	var seen coord.Fence
	// Fewer digits are those of a write that a crash has cut short, before anything else was
	// written.
	if len(text) == digits {
		if err := seen.UnmarshalText(text); err != nil {
			return fmt.Errorf("fence: %s: %w", f.Name(), err)
		}
	}
	if err := Judge(name, token, seen); err != nil || seen == token {
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
	_, err = temp.Write(data)
	err = errors.Join(err, liken(temp, path), temp.Sync(), temp.Close())
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

// liken gives a file of this process the permissions of the file at path, if that exists. It also
// sets the owner and the group of that file where the process may do so.
func liken(temp *os.File, path string) error {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return temp.Chmod(0o644)
	}
	if err != nil {
		return err
	}
	own, err := temp.Stat()
	if err != nil {
		return err
	}
	was, is := info.Sys().(*syscall.Stat_t), own.Sys().(*syscall.Stat_t)
	mode := info.Mode().Perm()
	if was.Gid != is.Gid {
		if err := temp.Chown(-1, int(was.Gid)); refused(err) {
			mode &= 0o707 | mode&0o007<<3 // another group may do no more than all others
		} else if err != nil {
			return err
		}
	}
	if err := temp.Chmod(mode); err != nil { // before the owner is another one
		return err
	}
	if was.Uid != is.Uid {
		if err := temp.Chown(int(was.Uid), -1); err != nil && !refused(err) {
			return err
		}
	}
	return nil
}

// refused reports whether a process may not give a file to an owner or a group, or cannot: EINVAL
// is about one that its user namespace does not know.
func refused(err error) bool {
	return errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EINVAL)
}
