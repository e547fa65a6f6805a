package main

import (
	"context"
	"log"
	"log/slog"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/gossip"
)

func main() {
	ctx := context.Background()
	//snippet
	locks, err := coord.New(ctx, fallback.NewMemory(), opts)
	if err == nil {
		err = locks.Settled(ctx, 1)
	}
	if err == nil {
		err = locks.Close(ctx)
	}
	if err != nil {
		log.Fatal(err)
	}
}
