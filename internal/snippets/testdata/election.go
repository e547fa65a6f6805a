package main

import (
	"context"
	"log"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/election"
	"github.com/holdfast-go/holdfast/fallback"
)

var (
	sent  atomic.Int32
	first = make(chan struct{})
)

func sendDueInvoices(context.Context, coord.Fence) error {
	if sent.Add(1) == 1 {
		close(first)
	}
	return nil
}

func lead(locks *coord.Coordinator) error {
	//snippet
	return err
}

// Of three candidates one sends the invoices, until the process is told to stop.
func main() {
	ctx := context.Background()
	arbiter := fallback.NewMemory()
	ends := make(chan error, 3)
	for range cap(ends) {
		locks, err := coord.New(ctx, arbiter, nil)
		if err != nil {
			log.Fatal(err)
		}
		defer locks.Close(ctx)
		go func() { ends <- lead(locks) }()
	}
	<-first
	select {
	case err := <-ends:
		log.Fatalf("a candidate ends in the middle: %v", err)
	case <-time.After(300 * time.Millisecond): // others would have led by then
	}
	if n := sent.Load(); n != 1 {
		log.Fatalf("they were sent %d times", n)
	}
	if err := syscall.Kill(syscall.Getpid(), syscall.SIGTERM); err != nil {
		log.Fatal(err)
	}
	for range cap(ends) {
		if err := <-ends; err != nil {
			log.Fatal(err)
		}
	}
}
