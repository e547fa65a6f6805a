package leasetest

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write transcripts as they are now")

// TestTranscripts executes the commands of each file of testdata, which follow a ">", and compares
// their results with the lines below. A "#" begins a comment. The first line names the nodes.
func TestTranscripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got := transcript(t, string(text))
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
					t.Fatal(err)
				}
				return
			}
			want := strings.Split(string(text), "\n")
			for i, line := range strings.Split(got, "\n") {
				if i >= len(want) || want[i] != line {
					t.Fatalf("line %d is\n%s\nSee what has changed with -update. All of it:\n%s", i+1, line, got)
				}
			}
			if got != string(text) {
				t.Errorf("the file has more lines than\n%s", got)
			}
		})
	}
}

// transcript returns the text with the present results of its commands.
func transcript(t *testing.T, text string) string {
	t.Helper()
	var w *World
	var out []string
	for _, line := range strings.Split(strings.TrimSpace(text), "\n") {
		command, ok := strings.CutPrefix(line, "> ")
		switch {
		case strings.HasPrefix(line, "nodes "):
			w = New(strings.Fields(line)[1:]...)
			out = append(out, line)
		case ok:
			log, err := w.Do(command)
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, line)
			for _, x := range log {
				out = append(out, "  "+x)
			}
		case line == "" || strings.HasPrefix(line, "#"):
			out = append(out, line)
		}
	}
	return strings.Join(out, "\n") + "\n"
}
