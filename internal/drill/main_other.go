//go:build !linux

package main

import (
	"fmt"
	"os"
)

func main() {
	fmt.Fprintln(os.Stderr, "drill: needs network namespaces, so Linux")
	os.Exit(1)
}
