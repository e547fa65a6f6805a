//go:build !unix

package main

import (
	"fmt"
	"os"
)

func main() {
	fmt.Fprintln(os.Stderr, "holds: needs a Unix, for signals")
	os.Exit(1)
}
