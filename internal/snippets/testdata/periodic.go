package main

import (
	"context"
	"time"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/periodic"
)

func report(context.Context) error { return nil }

func loop(ctx context.Context, locks *coord.Coordinator) error {
	//snippet
	return err
}

func main() { _ = loop }
