package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// An order has the settings of a worker process. It travels in the environment, as JSON.
type order struct {
	Number    int    `json:"number"`
	Processes int    `json:"processes"`
	Rung      string `json:"rung"`
	Redis     string `json:"redis"`
	Namespace string `json:"namespace"`
	Store     string `json:"store"`
	Clients   int    `json:"clients"`
}

const orderEnv = "HOLDFAST_HTTPLOCK_ORDER"

// A hello is the one line that a worker writes to its stdout: it serves.
type hello struct {
	URL string `json:"url"`
}

// closeTime is a worker's time to answer the last requests, and again to give back its locks. A
// connection that another worker has opened and did not need keeps http.Server.Shutdown waiting for
// 5 to 6 s.
const closeTime = 10 * time.Second

// workerMain is the whole life of a worker process. It returns the exit status. The end of stdin
// ends it, so no worker outlives its parent for long.
func workerMain(text string) int {
	// A terminal sends Ctrl-C to all processes. Ending the workers is the parent's business, in
	// order.
	signal.Ignore(os.Interrupt, syscall.SIGTERM)
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	go func() { // ends with stdin, or with the process
		_, _ = io.Copy(io.Discard, os.Stdin)
		stop()
		// If the parent was killed, the servers are gone with it, and unlocking there takes its
		// time.
		time.Sleep(2 * closeTime)
		os.Exit(1)
	}()

	var o order
	err := json.Unmarshal([]byte(text), &o)
	if err == nil {
		err = work(ctx, o, os.Stdout)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "httplock worker %d: %v\n", o.Number, err)
		return 1
	}
	return 0
}

// work serves until ctx ends.
func work(ctx context.Context, o order, out io.Writer) (err error) {
	found, err := findRungs(o.Rung)
	if err != nil {
		return err
	}
	// The port is open before the coordinator tells others of it; they wait the moment until it is
	// served.
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	defer listener.Close()
	url := "http://" + listener.Addr().String()

	client := newRedisClient(o.Redis, o.Clients)
	defer client.Close()
	var commands commandCount
	client.AddHook(&commands)
	guard, err := found[0].open(client, o, url)
	if err != nil {
		return err
	}
	orders := newStore(o.Store, o.Clients)
	defer orders.close()
	s := service{number: o.Number, store: orders, guard: guard, commands: &commands}
	// Idle connections last longer here than in the other processes' transports, which would
	// otherwise meet closed ones.
	server := &http.Server{Handler: s.handler(), ReadHeaderTimeout: 10 * time.Second, IdleTimeout: time.Minute}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()

	// A service need not wait for the processes to share out the keys: until then its locks come
	// from Redis. The table is to show the time after that.
	if guard.locks != nil {
		if err = guard.locks.Settled(ctx, o.Processes); ctx.Err() != nil {
			err = nil // it is to end
		}
	}
	if err == nil {
		err = json.NewEncoder(out).Encode(hello{url})
	}
	if err == nil {
		select {
		case <-ctx.Done():
		case err = <-served: // too early
		}
	}

	// The requests first, then their locks.
	closing := func(f func(context.Context) error) error {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTime)
		defer cancel()
		return f(ctx)
	}
	return errors.Join(err, closing(server.Shutdown), closing(guard.close))
}
