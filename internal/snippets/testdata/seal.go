package main

import (
	"crypto/cipher"
	"log"

	"github.com/redis/go-redis/v9"
	"golang.org/x/oauth2"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/tokens"
)

func keep(client *redis.Client, locks *coord.Coordinator, config *oauth2.Config, aead cipher.AEAD) (*tokens.Keeper, error) {
	//snippet
	return keeper, err
}

func main() { _ = keep }
