//go:build linux

package main

import (
	"fmt"
	"os"
	"testing"

	"github.com/holdfast-go/holdfast/internal/lan"
	"github.com/holdfast-go/holdfast/internal/leak"
	"github.com/holdfast-go/holdfast/internal/takes"
)

func TestMain(m *testing.M) {
	if mine, err := child(); mine {
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	leak.Main(m)
}

// Each fault is named by doctor, top, the page and the metrics.
func TestDrill(t *testing.T) {
	takes.Seconds(t)
	if err := lan.Needs(); err != nil {
		t.Skip("without network namespaces there is no drill: ", err)
	}
	if err := run(t.Context(), &options{short: true, out: t.Output()}); err != nil {
		t.Fatal(err)
	}
}
