package recipes_test

import (
	"context"
	"fmt"
	"sync"

	"github.com/holdfast-go/holdfast/election"
)

// A leader: three processes campaign, one leads, and a load balancer is told which. When the
// leader's process is told to stop, another one leads as soon as the first one's function has
// returned.
func Example_leader() {
	all, stop := processes(3)
	defer stop()
	leads := make(chan int)
	var work sync.WaitGroup
	sigterm := make([]context.CancelFunc, len(all))
	for i, locks := range all {
		e, err := election.New(locks, "invoices", &election.Options{Value: fmt.Sprintf("http://10.0.0.%d:8080", i+1)})
		if err != nil {
			fmt.Println(err)
			return
		}
		ctx, cancel := context.WithCancel(context.Background()) // in a service: signal.NotifyContext
		sigterm[i] = cancel
		work.Go(func() {
			err := e.Run(ctx, func(ctx context.Context, _ *election.Term) error {
				leads <- i
				<-ctx.Done() // in a service: work, until ctx ends, with the token of the term
				return nil
			})
			if err != nil {
				fmt.Println(err)
			}
		})
	}

	balancer, err := election.New(all[0], "invoices", nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	terms := map[string]bool{}
	for range all {
		i := <-leads
		ctx, cancel := context.WithCancel(context.Background())
		for leader := range balancer.Observe(ctx) {
			if leader.Value == fmt.Sprintf("http://10.0.0.%d:8080", i+1) { // pushed when it is published
				terms[leader.Value] = true
				break
			}
		}
		cancel()
		sigterm[i]()
	}
	work.Wait()
	fmt.Println("each of", len(terms), "processes has led")
	// Output:
	// each of 3 processes has led
}
