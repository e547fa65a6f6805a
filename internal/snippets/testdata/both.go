package main

import (
	"context"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/migrate"
)

func sell(context.Context, string) error { return nil }

func handle(ctx context.Context, locks *coord.Coordinator, client *redis.Client, sku string) error {
	//snippet
}

func main() { _ = handle }
