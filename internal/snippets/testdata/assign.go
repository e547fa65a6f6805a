package main

import (
	"context"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/election"
)

func consume(context.Context, int, coord.Fence) error { return nil }

func share(ctx context.Context, e *election.Election) (err error) {
	//snippet
	return err
}

func main() { _ = share }
