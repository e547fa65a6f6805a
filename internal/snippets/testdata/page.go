package main

import (
	"expvar"
	"net/http"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/debug"
)

func page(mux *http.ServeMux, locks *holdfast.Coordinator) {
	//snippet
}

func main() { _ = page }
