package redistest

import (
	"bytes"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// Pasted returns the arguments that redis-cli gets of a document's command when that is pasted into
// a shell. The shell may take none of it for something else, such as the name of a file to write.
func Pasted(t testing.TB, command string) []string {
	t.Helper()
	rest, ok := strings.CutPrefix(command, "redis-cli ")
	if !ok {
		t.Fatalf("%s does not begin with redis-cli", command)
	}
	dir := t.TempDir()
	c := exec.Command("sh", "-euc", `words() { for word; do printf '%s\0' "$word"; done; }; words `+rest)
	c.Dir = dir
	var errs bytes.Buffer
	c.Stderr = &errs
	out, err := c.Output()
	made, listed := os.ReadDir(dir)
	if err != nil || listed != nil || errs.Len() > 0 || len(made) > 0 {
		t.Fatalf("%s: %v, %v, files %v: %s", command, err, listed, made, errs.String())
	}
	return strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00")
}
