package main

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/coord"
)

func open(ctx context.Context, client redis.UniversalClient) (*coord.Coordinator, error) {
	//snippet
	return locks, err
}

func main() { _ = open }
