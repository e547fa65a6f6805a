package main

import (
	"context"
	"fmt"

	"github.com/holdfast-go/holdfast"
)

func inspect(ctx context.Context, locks *holdfast.Coordinator) error {
	//snippet
	return nil
}

func main() { _ = inspect }
