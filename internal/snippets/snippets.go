// Package snippets takes the Go code out of the documents, so that tests compile and run it as it
// stands there.
//
// A code block is a fragment, and names its frame behind the language: "```go lock". The frame is
// a program with the line "//snippet" in the place of the block. A block that begins with a
// package clause is a program of its own and needs no frame.
package snippets

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// A Block is a fenced code block of a document.
type Block struct {
	File string // slash-separated, relative to the root of the repository
	Line int    // of the first line of code
	Lang string // first word behind the fence
	Name string // second one: the frame; may be empty
	Text string // with the last newline
}

// Mark is the line of a frame that a block replaces.
const Mark = "//snippet"

// All returns the code blocks of the documents: the Markdown files of the root and of docs.
func All(root string) ([]Block, error) {
	var all []Block
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/*/*.md"} {
		files, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			return nil, err
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				return nil, err
			}
			name, err := filepath.Rel(root, file)
			if err != nil {
				return nil, err
			}
			all = append(all, parse(filepath.ToSlash(name), string(text))...)
		}
	}
	return all, nil
}

// Find returns the Go block of a document that names a frame.
func Find(root, file, name string) (Block, error) {
	all, err := All(root)
	if err != nil {
		return Block{}, err
	}
	for _, b := range all {
		if b.File == file && b.Lang == "go" && b.Name == name {
			return b, nil
		}
	}
	return Block{}, fmt.Errorf("snippets: %s has no block ```go %s", file, name)
}

// parse returns the fenced blocks of a Markdown document.
func parse(file, text string) (blocks []Block) {
	var b *Block
	fence := ""
	n := 0
	for line := range strings.Lines(text) {
		n++
		trimmed := strings.TrimSpace(line)
		switch {
		case b != nil && strings.HasPrefix(trimmed, fence) && strings.Trim(trimmed, fence[:1]) == "":
			blocks = append(blocks, *b)
			b = nil
		case b != nil:
			b.Text += line
		case strings.HasPrefix(trimmed, "```") || strings.HasPrefix(trimmed, "~~~"):
			info := strings.TrimLeft(trimmed, trimmed[:1])
			fence = trimmed[:len(trimmed)-len(info)]
			words := append(strings.Fields(info), "", "")
			b = &Block{File: file, Line: n + 1, Lang: words[0], Name: words[1]}
		}
	}
	return blocks
}

// Program returns the block as a program: in the frame, or by itself if it begins with a package
// clause. Compilers and stack traces report the document's lines.
func (b Block) Program(root, frame string) (string, error) {
	here := fmt.Sprintf("//line %s:%d\n", filepath.Join(root, filepath.FromSlash(b.File)), b.Line)
	if strings.HasPrefix(b.Text, "package ") {
		return here + b.Text, nil
	}
	head, tail, ok := strings.Cut(frame, Mark+"\n")
	if !ok || strings.Contains(tail, Mark+"\n") {
		return "", fmt.Errorf("snippets: the frame of %s:%d must have one line %s", b.File, b.Line, Mark)
	}
	head = strings.TrimRight(head, " \t")
	return fmt.Sprintf("%s%s%s//line frame:%d\n%s", head, here, b.Text, strings.Count(head, "\n")+2, tail), nil
}

// Build compiles a program with the modules of the workspace. It may import internal packages.
func Build(ctx context.Context, root, program, out string, flags ...string) error {
	return run(ctx, root, []string{program}, append([]string{"build", "-o", out}, flags...))
}

// Check compiles programs as Build does, all by one command, and does not take the time to link
// them. Its error names each mistake with the document's line.
func Check(ctx context.Context, root string, programs []string) error {
	return run(ctx, root, programs, []string{"list", "-export"})
}

// run runs a command of go on the programs.
func run(ctx context.Context, root string, programs, args []string) error {
	dir, err := os.MkdirTemp("", "snippet-*")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if err := noteInputs(root); err != nil {
		return err
	}
	// The compiler finds each program in a directory of the root module, which is not on disk.
	replace := map[string]string{}
	overlay := filepath.Join(dir, "overlay.json")
	args = append(args, "-overlay", overlay)
	for i, text := range programs {
		real, place := filepath.Join(dir, fmt.Sprint(i, ".go")), fmt.Sprint("internal/snippets/program", i)
		if err := os.WriteFile(real, []byte(text), 0o600); err != nil {
			return err
		}
		replace[filepath.Join(root, filepath.FromSlash(place), "main.go")] = real
		args = append(args, "./"+place)
	}
	text, err := json.Marshal(map[string]map[string]string{"Replace": replace})
	if err != nil {
		return err
	}
	if err := os.WriteFile(overlay, text, 0o600); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = root
	// Tests of a module by itself set GOWORK=off.
	cmd.Env = append(os.Environ(), "GOWORK="+filepath.Join(root, "go.work"))
	if text, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("snippets: %w\n%s", err, bytes.TrimSpace(text))
	}
	return nil
}

// noteInputs looks at every source file, so that go test does not answer from its cache after one
// has changed: it does not see the files read by a program that a test starts.
func noteInputs(root string) error {
	return filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && strings.HasPrefix(d.Name(), "."):
			return fs.SkipDir
		case strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, "_test.go"),
			d.Name() == "go.mod", d.Name() == "go.work", strings.HasSuffix(path, ".lua"):
			_, err = os.Stat(path)
		}
		return err
	})
}
