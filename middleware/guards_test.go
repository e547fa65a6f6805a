package middleware_test

import (
	"encoding/json"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	takeOut   = flag.Bool("guards", false, "take each guard out of the code, and look whether its tests fail")
	takeOnly  = flag.String("guards.only", "", "`regexp` of the guards to take out")
	testFuncs = regexp.MustCompile(`(?m)^func ((?:Test|Example)\w*)\(`)
)

// A guard is a line of the code that a test needs: without it, one of the tests fails.
type guard struct {
	what     string // its purpose
	file     string // from this directory
	old, new string // the text, which is there once, and its replacement without the guard
	dir      string // of the tests; empty: this one
	tests    string // with blanks
}

// TestGuards looks for each guard's code and tests. With -guards it takes the guards out, one after
// another: the tests have to fail.
func TestGuards(t *testing.T) {
	only := regexp.MustCompile(*takeOnly)
	named := map[string]string{} // the tests of a directory
	for _, g := range guards {
		text, err := os.ReadFile(g.file)
		if err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(string(text), g.old); n != 1 {
			t.Errorf("%s: %s has %d times %q", g.what, g.file, n, g.old)
			continue
		}
		if _, ok := named[g.dir]; !ok {
			named[g.dir] = testsOf(t, g.dir)
		}
		for name := range strings.FieldsSeq(g.tests) {
			if !strings.Contains(named[g.dir], " "+name+" ") {
				t.Errorf("%s: there is no %s in %q", g.what, name, g.dir)
			}
		}
		if *takeOut && only.MatchString(g.what) {
			t.Run(g.what, func(t *testing.T) { g.takeOut(t, string(text)) })
		}
	}
}

// testsOf returns the names of a directory's tests, between blanks.
func testsOf(t *testing.T, dir string) string {
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil || len(files) == 0 {
		t.Fatal(dir, err)
	}
	names := " "
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range testFuncs.FindAllStringSubmatch(string(text), -1) {
			names += m[1] + " "
		}
	}
	return names
}

// takeOut runs the tests of the guard, compiled without it.
func (g guard) takeOut(t *testing.T, text string) {
	file, err := filepath.Abs(g.file)
	if err != nil {
		t.Fatal(err)
	}
	without, overlay := filepath.Join(t.TempDir(), filepath.Base(g.file)), filepath.Join(t.TempDir(), "overlay.json")
	replaced, err := json.Marshal(map[string]any{"Replace": map[string]string{file: without}})
	if err != nil {
		t.Fatal(err)
	}
	for name, b := range map[string][]byte{without: []byte(strings.Replace(text, g.old, g.new, 1)), overlay: replaced} {
		if err := os.WriteFile(name, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	tests := "^(" + strings.Join(strings.Fields(g.tests), "|") + ")$"
	cmd := exec.CommandContext(t.Context(), "go", "test", "-vet=off", "-count=1", "-failfast", "-timeout=3m", "-overlay", overlay, "-run", tests, ".")
	cmd.Dir = g.dir
	out, err := cmd.CombinedOutput()
	switch failed := regexp.MustCompile(`--- FAIL: (\S+).*\n(.*)|(panic: .*)`).FindStringSubmatch(string(out)); {
	case err == nil:
		t.Error("not noticed")
	case failed == nil:
		t.Errorf("%v: %s", err, out)
	default:
		t.Logf("noticed: %s %s%s", failed[1], strings.TrimSpace(failed[2]), failed[3])
	}
}
