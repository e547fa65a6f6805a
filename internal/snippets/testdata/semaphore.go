package main

import (
	"context"
	"log"

	"github.com/holdfast-go/holdfast/coord"
)

func render(ctx context.Context) error { return ctx.Err() }

func run(ctx context.Context, locks *coord.Coordinator) error {
	//snippet
	return err
}

func main() {
	if err := run(context.Background(), nil); err != nil {
		log.Fatal(err)
	}
}
