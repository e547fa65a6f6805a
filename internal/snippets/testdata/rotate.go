package main

import (
	"context"

	"github.com/holdfast-go/holdfast/coord"
)

func rotate(ctx context.Context, locks *coord.Coordinator) error {
	//snippet
	return err
}

func main() { _ = rotate }
