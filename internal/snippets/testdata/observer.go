package main

import (
	"context"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
)

func observer(ctx context.Context, arbiter fallback.Arbiter) error {
	//snippet
	if err != nil {
		return err
	}
	return locks.Close(ctx)
}

func main() { _ = observer }
