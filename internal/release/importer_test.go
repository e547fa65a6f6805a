package main

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/repo"
	"github.com/holdfast-go/holdfast/internal/takes"
)

var buildAll = flag.Bool("release.build", false, "compile importers: what they require, in versions of their own, takes minutes")

// Each released module can be required by a program elsewhere, which has neither this repository's
// replacements nor its workspace: modules come from a proxy that is made of the working tree.
func TestRelease_EachModuleCanBeRequired(t *testing.T) {
	takes.Seconds(t)
	root, err := repo.Root()
	if err != nil {
		t.Fatal(err)
	}
	all, err := Modules(t.Context(), root)
	if err != nil {
		t.Fatal(err)
	}
	// A version that was never used: the go command keeps all modules from a proxy for ever.
	version := "v0.0.1-test." + strconv.FormatInt(time.Now().UnixNano(), 36)
	proxy := t.TempDir()
	if err := Publish(t.Context(), root, proxy, version); err != nil {
		t.Fatal(err)
	}
	cache := goenv(t, "GOMODCACHE")
	t.Cleanup(func() { forget(t, cache, version) })
	// With the flags of the tests: packages that they have compiled are not compiled again.
	env := append(os.Environ(), "GOWORK=off", "GOFLAGS="+os.Getenv("GOFLAGS")+" -mod=mod -modcacherw", "GOSUMDB=off", "GONOPROXY=", "GOPRIVATE=",
		"GOPROXY=file://"+proxy+",file://"+cache+"/cache/download,"+goenv(t, "GOPROXY"))
	released := 0
	for _, m := range all {
		if !m.Released {
			continue
		}
		released++
		t.Run(strings.ReplaceAll(m.Dir, "/", "_"), func(t *testing.T) {
			dir := t.TempDir()
			source := "package importer\n\nimport (\n"
			for _, p := range packages(t, root, m) {
				source += "\t_ " + strconv.Quote(p) + "\n"
			}
			write(t, filepath.Join(dir, "importer.go"), source+")\n")
			write(t, filepath.Join(dir, "go.mod"),
				fmt.Sprintf("module example.com/importer\n\ngo 1.26.0\n\nrequire %s %s\n", m.Path, version))
			args := []string{"build", "./..."}
			if !*buildAll {
				args = []string{"list", "-deps", "./..."} // finds each package, and compiles none
			}
			cmd := exec.CommandContext(t.Context(), "go", args...)
			cmd.Dir, cmd.Env = dir, env
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("go %s: %v\n%s", args[0], err, out)
			}
		})
	}
	t.Run("command", func(t *testing.T) {
		args := []string{"install", "-n", Path + "/cmd/holdfast@" + version} // finds each package, and compiles none
		if *buildAll {
			args = slices.Delete(args, 1, 2)
		}
		bin := t.TempDir()
		cmd := exec.CommandContext(t.Context(), "go", args...)
		cmd.Dir, cmd.Env = t.TempDir(), slices.Concat(env, []string{"GOBIN=" + bin})
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("go install: %v\n%s", err, out[max(0, len(out)-1000):])
		}
		if !*buildAll {
			return
		}
		if out, err := run(t.Context(), bin, filepath.Join(bin, "holdfast"), "--version"); err != nil || string(out) != "holdfast version "+version+"\n" {
			t.Errorf("holdfast --version: %q, %v", out, err)
		}
	})
	if released < 5 {
		t.Errorf("%d modules are released", released)
	}
}

// packages returns a module's packages that others can import.
func packages(t *testing.T, root string, m Module) (list []string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-f", "{{if .GoFiles}}{{.Name}} {{.ImportPath}}{{end}}", "./...")
	cmd.Dir, cmd.Env, cmd.Stderr = filepath.Join(root, m.Dir), append(os.Environ(), "GOWORK=off"), t.Output()
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(out)) {
		name, p, _ := strings.Cut(strings.TrimSpace(line), " ")
		if name != "" && name != "main" && !strings.Contains(p+"/", "/internal/") && path.Base(p) != "testdata" {
			list = append(list, p)
		}
	}
	return list
}

// forget removes a version from the go command's cache.
func forget(t *testing.T, cache, version string) {
	t.Helper()
	for _, pattern := range []string{
		"github.com/holdfast-go/holdfast@" + version, "github.com/holdfast-go/holdfast/*@" + version,
		"github.com/holdfast-go/holdfast/*/*@" + version,
		"cache/download/github.com/holdfast-go/holdfast/@v/" + version + ".*",
		"cache/download/github.com/holdfast-go/holdfast/*/@v/" + version + ".*",
		"cache/download/github.com/holdfast-go/holdfast/*/*/@v/" + version + ".*",
	} {
		found, err := filepath.Glob(filepath.Join(cache, pattern))
		if err != nil {
			t.Error(err)
		}
		for _, f := range found {
			if err := os.RemoveAll(f); err != nil {
				t.Error(err)
			}
		}
	}
}

func goenv(t *testing.T, name string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "env", name).Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}
