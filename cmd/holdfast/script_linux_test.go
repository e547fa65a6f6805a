package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/internal/await"
)

// Ctrl-C and Ctrl-\ that end a command end the script around it, as they would without holdfast;
// also where the command has not the terminal, and while holdfast waits. Scripts of bash ignore
// Ctrl-\.
func TestTerminal_ScriptsEnd(t *testing.T) {
	n := newNamespace(t)
	app := n.open(&coord.Options{Name: "app"})
	l, err := app.Lock(t.Context(), "taken")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Unlock()
	waiters := func(want int) func() bool {
		return func() bool {
			info, err := app.Inspect(t.Context(), "taken")
			return err == nil && len(info.Waiters) == want
		}
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, []byte("ready\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	const (
		ctrlBackslash = "\x1c"

		has    = `"$HOLDFAST" lock k -- tail -f "$0"; echo on`
		hasNot = `"$HOLDFAST" lock k -- tail -f "$0" </dev/null; echo on`
		waits  = `"$HOLDFAST" lock taken -- true; echo on`
	)
	for _, c := range []struct{ shell, script, key string }{
		{"sh", has, ctrlC}, {"sh", has, ctrlBackslash}, {"sh", hasNot, ctrlC}, {"sh", waits, ctrlC},
		{"bash", has, ctrlC}, {"bash", hasNot, ctrlC}, {"bash", waits, ctrlC},
	} {
		if _, err := exec.LookPath(c.shell); err != nil {
			t.Log(err)
			continue
		}
		x := n.onTerminal(c.shell, "-c", c.script, file)
		if strings.Contains(c.script, "taken") {
			await.Until(t, "it waits", waiters(1))
		} else {
			x.says("ready")
		}
		x.types(c.key)
		err := x.cmd.Wait()
		if s, ok := x.cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || !s.Signaled() {
			t.Errorf("%s -c %s: %q: %v", c.shell, c.script, c.key, err)
		}
		await.Until(t, "none waits", waiters(0))
	}
}
