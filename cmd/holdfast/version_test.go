package main

import (
	"bytes"
	"strings"
	"testing"
)

func TestVersion(t *testing.T) {
	root, out := newRoot(), new(bytes.Buffer)
	root.SetArgs([]string{"--version"})
	root.SetOut(out)
	if err := root.ExecuteContext(t.Context()); err != nil || !strings.HasPrefix(out.String(), "holdfast version ") {
		t.Errorf("%q, %v", out, err)
	}
}
