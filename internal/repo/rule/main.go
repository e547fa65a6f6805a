// Rule shows a rule's page, for `make rule`: its text, the functions that keep it, its transcripts
// and stories, and the tests, guards and comments that name it.
//
//	go run ./internal/repo/rule N
//
// N is 1 to 17, I1 to I8 or E1 to E8 (docs/protocol.md), or G1 to G11 (docs/takeover.md).
package main

import (
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/holdfast-go/holdfast/internal/repo"
)

func main() {
	if err := run(os.Stdout, strings.Join(os.Args[1:], " ")); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(w io.Writer, name string) error {
	root, err := repo.Root()
	if err != nil {
		return err
	}
	r, err := read(root)
	if err != nil {
		return err
	}
	return r.show(w, name)
}
