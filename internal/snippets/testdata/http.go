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

type Rates map[string]float64

func loadRates(ctx context.Context, _ coord.Fence) (Rates, error) { return nil, nil }

func userID(r *http.Request) string { return r.PathValue("user") }

func addItem(w http.ResponseWriter, r *http.Request)  {}
func getOrder(w http.ResponseWriter, r *http.Request) {}

func serve(ctx context.Context, client *redis.Client, locks *coord.Coordinator, config *oauth2.Config, tokenStore tokens.Store) error {
	keeper, err := tokens.New(locks, config, tokenStore, nil)
	if err != nil {
		return err
	}
	//snippet
	_, _ = rates, api
	return err
}

func main() { _ = serve }
