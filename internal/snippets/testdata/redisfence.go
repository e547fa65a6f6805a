package main

import (
	"context"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fence/redisfence"
)

func section(ctx context.Context, client *redis.Client, l coord.Lock) error {
	//snippet
	return err
}

func main() { _ = section }
