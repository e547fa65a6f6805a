package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/coord"
)

// Inspect tells why it knows nothing from a key's owner: the owner does not answer, or it does, and
// does not serve.
func TestInspect_WhatIsNotKnown(t *testing.T) {
	for want, info := range map[string]coord.KeyInfo{
		"its owner does not answer\n":                  {Unknown: true},
		"its owner does not serve the key's partition": {Unknown: true, NotServing: true},
		"free\n": {},
	} {
		var out bytes.Buffer
		s := &settings{out: &printer{w: &out}}
		info.Owner = &coord.Process{Name: "anna"}
		if err := s.showKey(&info, false); err != nil || !strings.Contains(out.String(), want) || strings.Count(out.String(), "\n") != 2 {
			t.Errorf("%v: %q, want %q", err, out.String(), want)
		}
	}
}
