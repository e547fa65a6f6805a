package main

import (
	"os"

	"github.com/holdfast-go/holdfast/election"
)

func options(buildVersion string) *election.Options {
	//snippet
	return opts
}

func main() { _ = options }
