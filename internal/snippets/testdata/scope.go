package main

import (
	"context"
	"net/http"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/middleware"
)

func userID(context.Context) string { return "" }

func idempotent(locks *coord.Coordinator, store middleware.Store) func(http.Handler) http.Handler {
	//snippet
	return idempotent
}

func main() { _ = idempotent }
