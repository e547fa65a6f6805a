package main

import (
	"context"
	"net/http"

	"github.com/redis/go-redis/v9"
	"golang.org/x/oauth2"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/middleware"
	"github.com/holdfast-go/holdfast/tokens"
)

func loadRates(context.Context, coord.Fence) (map[string]float64, error) { return nil, nil }

func serve(ctx context.Context, client *redis.Client, locks *coord.Coordinator, addItem, getOrder http.Handler,
	user middleware.KeyFunc, config *oauth2.Config, tokenStore tokens.Store) error {
	mux := http.NewServeMux()
	store := middleware.NewRedisStore(client, nil)
	keeper, err := tokens.New(locks, config, tokenStore, nil)
	if err != nil {
		return err
	}
	//snippet
	_, _ = rates, api
	return err
}

func main() { _ = serve }
