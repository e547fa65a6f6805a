package main

import (
	"context"

	"github.com/holdfast-go/holdfast/election"
)

type target struct{}

func (target) Set(string) {}
func (target) Unset()     {}

func follow(ctx context.Context, e *election.Election, proxy target) {
	//snippet
}

func main() { _ = follow }
