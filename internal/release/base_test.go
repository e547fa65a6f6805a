package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestRelease_ComparesWithTheTagBelow(t *testing.T) {
	tags := []string{"v0.10.0", "v0.2.0", "v0.1.0", "v0.1.2", "v0.1.1", "v0.11.0-rc1", "vendor"}
	for _, x := range []struct {
		tags          []string
		version, want string // "refused": an error
	}{
		{nil, "v0.1.0", ""},
		{nil, "", ""},
		{tags, "", "v0.10.0"},
		{tags, "v0.10.1", "v0.10.0"},
		{tags, "v0.11.0", "v0.10.0"},
		{tags, "v1.0.0", "v0.10.0"},
		{tags, "v0.1.3", "v0.1.2"},
		{tags, "v0.2.1", "v0.2.0"},
		{tags, "v0.1.2", "refused"},
		{tags, "v0.1.1", "refused"},
		{tags, "v0.3.0", "refused"},
		{tags, "v0.10.0", "refused"},
	} {
		got, err := baseOf(x.tags, x.version)
		if err != nil {
			got = "refused"
		}
		if got != x.want {
			t.Errorf("%q is compared with %q, want %q", x.version, got, x.want)
		}
	}
}

func TestRelease_BreaksNoPromise(t *testing.T) {
	for _, x := range []struct {
		before, version string
		refused         bool
	}{
		{"", "v0.1.0", false},
		{"v0.1.0", "v0.1.1", true},
		{"v0.1.5", "v0.2.0", false},
		{"v0.9.0", "v1.0.0", false},
		{"v1.0.0", "v1.0.1", true},
		{"v1.0.0", "v1.1.0", true},
	} {
		if err := permits(x.before, x.version, true); (err != nil) != x.refused {
			t.Errorf("%s, incompatible with %s: %v", x.version, x.before, err)
		}
		if err := permits(x.before, x.version, false); err != nil {
			t.Errorf("%s, compatible with %s: %v", x.version, x.before, err)
		}
	}
}

// A module that uses the root's internal packages is built beside a later root.
func TestRelease_BuildsModulesOfBeforeBesideThisRoot(t *testing.T) {
	module := func(function string) (root string, all []Module) {
		root = t.TempDir()
		for file, text := range map[string]string{
			"go.mod":           "module " + Path + "\n\ngo 1.26.0\n",
			"internal/in/x.go": "package in\n\nfunc " + function + "() {}\n",
			"fence/go.mod":     "module " + Path + "/fence\n\ngo 1.26.0\n\nrequire " + Path + " v0.1.0\n\nreplace " + Path + " => ../\n",
			"fence/fence.go":   "package fence\n\nimport \"" + Path + "/internal/in\"\n\nvar _ = in." + function + "\n",
		} {
			at := filepath.Join(root, filepath.FromSlash(file))
			if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
				t.Fatal(err)
			}
			write(t, at, text)
		}
		all, err := Modules(t.Context(), root)
		if err != nil || len(all) != 2 || !strings.HasSuffix(all[1].Path, "/fence") {
			t.Fatal(all, err)
		}
		return root, all
	}
	old, before := module("F")
	for function, want := range map[string]bool{"F": true, "G": false} {
		root, _ := module(function)
		if compile, err := beside(t.Context(), old, root, before); compile != want || err != nil {
			t.Errorf("beside a root with %s: %t, %v", function, compile, err)
		}
	}
}
