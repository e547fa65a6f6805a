package main

import (
	"context"
	"log"
	"os/signal"
	"syscall"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/election"
)

func sendInvoices(context.Context, coord.Fence) error { return nil }

func lead(locks *coord.Coordinator) error {
	//snippet
	return err
}

func main() { _ = lead }
