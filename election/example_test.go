package election_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"os/signal"
	"syscall"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/election"
	"github.com/holdfast-go/holdfast/fallback"
)

// newElection is the examples' election: without a server.
func newElection(opts *election.Options) (e *election.Election, stop func()) {
	c, err := coord.New(context.Background(), fallback.NewMemory(), nil)
	if err != nil {
		log.Fatal(err)
	}
	if e, err = election.New(c, "invoices", opts); err != nil {
		log.Fatal(err) // names the setting that is wrong
	}
	return e, func() { c.Close(context.Background()) }
}

func ExampleElection_Campaign() {
	e, stop := newElection(&election.Options{Value: "http://10.0.0.7:8080"})
	defer stop()
	ctx := context.Background()
	term, err := e.Campaign(ctx)
	if err != nil {
		log.Print(err)
		return
	}
	fmt.Println("leads:", term.Context().Err() == nil, "with a token:", term.Fence() > 0)
	if err := term.Resign(ctx); err != nil {
		log.Print(err)
	}
	fmt.Println(context.Cause(term.Context()))
	// Output:
	// leads: true with a token: true
	// coord: already unlocked
}

// SIGTERM ends the context, fn returns, and the next candidate leads a few milliseconds later.
func ExampleElection_Run() {
	e, stop := newElection(nil)
	defer stop()
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer cancel()
	err := e.Run(ctx, func(ctx context.Context, t *election.Term) error {
		fmt.Println("this process leads")
		return nil // the work is done; a service would wait for ctx.Done
	})
	fmt.Println(err)
	// Output:
	// this process leads
	// <nil>
}

func ExampleElection_Observe() {
	e, stop := newElection(&election.Options{Value: "http://10.0.0.7:8080"})
	defer stop()
	ctx := context.Background()
	term, err := e.Campaign(ctx)
	if err != nil {
		log.Print(err)
		return
	}
	for l := range e.Observe(ctx) {
		if l.Fence == 0 {
			continue // no leader now
		}
		fmt.Println("send writes to", l.Value)
		break
	}
	if err := term.Resign(ctx); err != nil {
		log.Print(err)
	}
	// Output: send writes to http://10.0.0.7:8080
}

func ExampleElection_Assign() {
	e, stop := newElection(nil)
	defer stop()
	ctx, cancel := context.WithCancel(context.Background())
	err := e.Assign(ctx, 1, func(ctx context.Context, s election.Shard) error {
		fmt.Printf("shard %d of %d\n", s.Number, s.Of)
		cancel() // a service would work on the shard until ctx ends
		return nil
	})
	fmt.Println(err)
	// Output:
	// shard 0 of 1
	// <nil>
}
