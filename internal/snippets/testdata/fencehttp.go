package main

import (
	"context"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/fence"
)

func section(ctx context.Context, locks *coord.Coordinator, mux *http.ServeMux, putOrder http.Handler, url string, body io.Reader) error {
	//snippet
	return err
}

// A write that the server refuses is an error.
func main() {
	ctx := context.Background()
	locks, err := coord.New(ctx, fallback.NewMemory(), nil)
	if err != nil {
		log.Fatal(err)
	}
	for status, ok := range map[int]bool{http.StatusNoContent: true, http.StatusPreconditionFailed: false} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }))
		err := section(ctx, locks, http.NewServeMux(), http.NotFoundHandler(), server.URL, strings.NewReader("paid"))
		if server.Close(); (err == nil) != ok {
			log.Fatalf("%d: %v", status, err)
		}
	}
	if err := locks.Close(ctx); err != nil {
		log.Fatal(fmt.Errorf("close: %w", err))
	}
}
