package main

import (
	"context"
	"time"

	"github.com/holdfast-go/holdfast/coord"
)

func report(context.Context) {}

func loop(ctx context.Context, locks *coord.Coordinator) {
	//snippet
}

func main() { _ = loop }
