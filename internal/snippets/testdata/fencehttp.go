package main

import (
	"context"
	"io"
	"net/http"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fence"
)

func section(ctx context.Context, locks *coord.Coordinator, mux *http.ServeMux, putOrder http.Handler, url string, body io.Reader) error {
	//snippet
	return err
}

func main() { _ = section }
