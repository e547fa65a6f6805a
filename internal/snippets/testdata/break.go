package main

import (
	"context"

	"github.com/holdfast-go/holdfast"
)

func unstick(ctx context.Context, locks *holdfast.Coordinator) error {
	//snippet
	return nil
}

func main() { _ = unstick }
