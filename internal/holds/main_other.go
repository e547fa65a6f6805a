//go:build !unix

package main

import (
	"fmt"
	"os"
)

func main() {
	fmt.Fprintln(os.Stderr, "chaos: needs Linux, for network namespaces")
	os.Exit(1)
}
