package main

import (
	"context"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback/redisquorum"
)

func open(ctx context.Context, a, b, c *redis.Client) (*coord.Coordinator, error) {
	//snippet
	return locks, err
}

func main() { _ = open }
