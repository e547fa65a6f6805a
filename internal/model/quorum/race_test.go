//go:build race

package quorum

import (
	"fmt"
	"os"
)

func init() {
	fmt.Println("quorum: nothing is explored with the race detector: go test ./internal/model/quorum, without it")
	os.Exit(0)
}
