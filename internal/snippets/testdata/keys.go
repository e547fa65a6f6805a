package main

import (
	"context"
	"net/http"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/middleware"
)

func book(context.Context, coord.Fence) {}

func handle(mux *http.ServeMux, locks *coord.Coordinator) {
	//snippet
}

func main() { _ = handle }
