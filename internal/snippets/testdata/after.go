package main

import (
	"context"

	"github.com/holdfast-go/holdfast/coord"
)

func sell(context.Context, string) error { return nil }

func handle(ctx context.Context, locks *coord.Coordinator, sku string) error {
	//snippet
}

func main() { _ = handle }
