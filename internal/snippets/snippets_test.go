package snippets

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/repo"
	"github.com/holdfast-go/holdfast/internal/takes"
)

func root(t *testing.T) string {
	t.Helper()
	dir, err := repo.Root()
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// program returns the block in its frame, a file of testdata with its name.
func program(t *testing.T, b Block) string {
	t.Helper()
	var frame []byte
	if b.Name != "" {
		var err error
		if frame, err = os.ReadFile(filepath.Join("testdata", b.Name+".go")); err != nil {
			t.Fatalf("%s:%d names a frame that is not there: %v", b.File, b.Line, err)
		}
	}
	text, err := b.Program(root(t), string(frame))
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// The Go code of all documents compiles as it stands there.
func TestDocumentsCompile(t *testing.T) {
	takes.Seconds(t)
	all, err := All(root(t))
	if err != nil {
		t.Fatal(err)
	}
	var programs []string
	for _, b := range all {
		if b.Lang != "go" {
			continue
		}
		if b.Name == "" && !strings.HasPrefix(b.Text, "package ") {
			t.Errorf("%s:%d: Go code must name its frame, as in \"```go lock\", or be a whole program", b.File, b.Line)
			continue
		}
		programs = append(programs, program(t, b))
	}
	if len(programs) < 2 {
		t.Errorf("%d blocks of Go code; README alone has more", len(programs))
	}
	if err := Check(t.Context(), root(t), programs); err != nil {
		t.Error(err)
	}
}

// README's first program sells a unit, with the advice that README gives for a new Redis.
func TestReadmeRuns(t *testing.T) {
	takes.Seconds(t)
	b, err := Find(root(t), "README.md", "lock")
	if err != nil {
		t.Fatal(err)
	}
	server := redistest.Start(t)
	b.Text = replace(t, b.Text, `"localhost:6379"`, `"`+server.Addr+`"`)
	b.Text = replace(t, b.Text, `Logger: slog.Default()}`, `Logger: slog.Default(), Redis: &holdfast.RedisOptions{ColdStart: true}}`)
	binary := filepath.Join(t.TempDir(), "readme")
	if err := Build(t.Context(), root(t), program(t, b), binary); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, binary).CombinedOutput()
	if err != nil || !strings.Contains(string(out), "1 left, with a token: true") {
		t.Errorf("%v\n%s", err, out)
	}
}

// The frames of these documents' programs check them: they end with an error if a program is wrong.
func TestDocumentsDoWhatTheySay(t *testing.T) {
	takes.Seconds(t)
	for name, file := range map[string]string{"election": "docs/election.md", "fencehttp": "docs/fencing.md", "once": "docs/once.md"} {
		t.Run(name, func(t *testing.T) {
			b, err := Find(root(t), file, name)
			if err != nil {
				t.Fatal(err)
			}
			binary := filepath.Join(t.TempDir(), name)
			if err := Build(t.Context(), root(t), program(t, b), binary); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			if out, err := exec.CommandContext(ctx, binary).CombinedOutput(); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

func replace(t *testing.T, text, old, replacement string) string {
	t.Helper()
	if strings.Count(text, old) != 1 {
		t.Fatalf("README's program has %d times %s", strings.Count(text, old), old)
	}
	return strings.Replace(text, old, replacement, 1)
}

func TestParse(t *testing.T) {
	got := parse("a.md", "x\n```go lock\na\n\n  b\n```\n    ```sh\n~~~~\n```go\n~~~~\n```\n")
	want := []Block{{"a.md", 3, "go", "lock", "a\n\n  b\n"}, {"a.md", 8, "sh", "", "~~~~\n```go\n~~~~\n"}}
	if len(got) != len(want) {
		t.Fatalf("%+v", got)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("%+v, not %+v", got[i], want[i])
		}
	}
}

// A mistake is reported where it stands in the document.
func TestErrorsNameTheDocument(t *testing.T) {
	b := Block{File: "README.md", Line: 7, Lang: "go", Text: "missing()\n"}
	text, err := b.Program(root(t), "package main\n\nfunc main() {\n"+Mark+"\n}\n")
	if err != nil {
		t.Fatal(err)
	}
	err = Check(t.Context(), root(t), []string{text})
	if err == nil || !strings.Contains(err.Error(), "README.md:7") || !strings.Contains(err.Error(), "missing") {
		t.Errorf("got %v", err)
	}
	if _, err := b.Program(root(t), "package main\n"); err == nil {
		t.Error("a frame without the mark is accepted")
	}
}
