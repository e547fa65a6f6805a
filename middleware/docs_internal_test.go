package middleware

import (
	"maps"
	"os"
	"regexp"
	"slices"
	"testing"
)

// The list of headers in docs/http.md is the one that Coalesce goes by.
func TestDocs_HarmlessHeaders(t *testing.T) {
	text, err := os.ReadFile("../docs/http.md")
	if err != nil {
		t.Fatal(err)
	}
	block := regexp.MustCompile("(?s)```text\n(B3, .*?)\n```").FindSubmatch(text)
	if block == nil {
		t.Fatal("docs/http.md has no list")
	}
	listed := regexp.MustCompile(`,\s+`).Split(string(block[1]), -1)
	if want := slices.Sorted(maps.Keys(harmless)); !slices.Equal(listed, want) {
		t.Errorf("docs/http.md has\n%v\nthe code\n%v", listed, want)
	}
}
