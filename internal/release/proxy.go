package main

import (
	"archive/zip"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Publish writes the released modules into dir as a module proxy has them (GOPROXY=file://dir), as
// they would be tagged with the version: the working tree, without files that Git ignores.
func Publish(ctx context.Context, root, dir, version string) error {
	all, err := Modules(ctx, root)
	if err != nil {
		return err
	}
	list, err := files(ctx, root)
	if err != nil {
		return err
	}
	for _, m := range all {
		if !m.Released {
			continue
		}
		if err := publish(ctx, root, dir, version, m, own(m, all, list)); err != nil {
			return fmt.Errorf("%s: %w", m.Path, err)
		}
	}
	return nil
}

// own returns the files of a module: those below its directory, but for modules within it.
func own(m Module, all []Module, files []string) (list []string) {
	in := func(file, dir string) bool { return dir == "." || strings.HasPrefix(file, dir+"/") }
	for _, f := range files {
		nearest := "."
		for _, other := range all {
			if in(f, other.Dir) && len(other.Dir) > len(nearest) {
				nearest = other.Dir
			}
		}
		if nearest == m.Dir {
			list = append(list, f)
		}
	}
	return list
}

func publish(ctx context.Context, root, dir, version string, m Module, files []string) error {
	at := filepath.Join(dir, filepath.FromSlash(m.Path), "@v")
	if err := os.MkdirAll(at, 0o755); err != nil {
		return err
	}
	mod, err := os.ReadFile(filepath.Join(root, m.Dir, "go.mod"))
	if err != nil {
		return err
	}
	tmp := filepath.Join(at, "go.mod")
	if err := os.WriteFile(tmp, mod, 0o644); err != nil {
		return err
	}
	for _, path := range m.Requires {
		if _, err := run(ctx, at, "go", "mod", "edit", "-require="+path+"@"+version, tmp); err != nil {
			return err
		}
	}
	if m.IsCommand() {
		if err := m.unreplace(ctx, tmp); err != nil {
			return err
		}
	}
	if mod, err = os.ReadFile(tmp); err != nil {
		return err
	}
	if err := os.Remove(tmp); err != nil {
		return err
	}
	var packed bytes.Buffer
	z := zip.NewWriter(&packed)
	prefix := m.Path + "@" + version + "/"
	for _, f := range files {
		text, err := os.ReadFile(filepath.Join(root, f))
		if os.IsNotExist(err) {
			continue // deleted, and still in the index
		} else if err != nil {
			return err
		}
		name := f
		if m.Dir != "." {
			name = strings.TrimPrefix(f, m.Dir+"/")
		}
		if name == "go.mod" {
			text = mod
		}
		w, err := z.Create(prefix + name)
		if err != nil {
			return err
		}
		if _, err := io.Copy(w, bytes.NewReader(text)); err != nil {
			return err
		}
	}
	if err := z.Close(); err != nil {
		return err
	}
	info := fmt.Sprintf("{\"Version\":%q,\"Time\":%q}\n", version, time.Now().UTC().Format(time.RFC3339))
	for name, text := range map[string][]byte{
		"list": []byte(version + "\n"), version + ".info": []byte(info), version + ".mod": mod, version + ".zip": packed.Bytes(),
	} {
		if err := os.WriteFile(filepath.Join(at, name), text, 0o644); err != nil {
			return err
		}
	}
	return nil
}
