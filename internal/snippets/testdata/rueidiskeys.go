package main

import (
	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/migrate"
)

func open(locks *coord.Coordinator, client *redis.Client) (*migrate.Both, error) {
	//snippet
	return both, err
}

func main() { _ = open }
