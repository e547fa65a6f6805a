package main

import (
	"os"
	"strings"
	"testing"
)

// Each block of code of docs/routers.md is a part of an example that runs.
func TestRoutersPage(t *testing.T) {
	page, err := os.ReadFile("../../docs/routers.md")
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile("routers_example_test.go")
	if err != nil {
		t.Fatal(err)
	}
	code, n := flat(string(source)), 0
	for i, part := range strings.Split(string(page), "```") {
		block, ok := strings.CutPrefix(part, "golang\n") // not "go": internal/snippets compiles in the root module, which has no routers
		if i%2 == 0 || !ok {
			continue
		}
		if n++; !strings.Contains(code, flat(block)) {
			t.Errorf("is no part of routers_example_test.go:\n%s", block)
		}
	}
	if n < 5 {
		t.Errorf("%d blocks", n)
	}
}

// flat is code without its indentation.
func flat(code string) string {
	var b strings.Builder
	for line := range strings.Lines(code) {
		if line = strings.TrimSpace(line); line != "" {
			b.WriteString(line + "\n")
		}
	}
	return b.String()
}
