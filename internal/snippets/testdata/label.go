package main

import (
	"net/http"

	"github.com/holdfast-go/holdfast/coord"
)

func serve(mux *http.ServeMux, route, serialize func(http.Handler) http.Handler, addItem http.Handler) {
	//snippet
}

func main() { _ = serve }
