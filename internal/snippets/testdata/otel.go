package main

import (
	"context"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
	holdfastotel "github.com/holdfast-go/holdfast/metrics/otel"
)

func open(ctx context.Context, arbiter fallback.Arbiter, opts *coord.Options) error {
	//snippet
	_ = stop
	return err
}

func main() { _ = open }
