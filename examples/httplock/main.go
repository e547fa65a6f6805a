// Httplock is a service in several processes behind a round-robin load balancer. Each request adds
// an item to one of a few orders, by reading the order from a store and writing it back. Requests
// for the same order meet in all processes: without a lock they overwrite each other's items; with
// one they do not, and the question becomes the lock's cost.
//
//	go run ./examples/httplock
//	go run ./examples/httplock -redis localhost:6379 -duration 20s
//	go run ./examples/httplock -clients 50 -resources 1 -rungs setnx,route
//
// It needs no server: a Redis-protocol server, the store, the load balancer and the clients run
// inside the parent process, and the service's processes are this program again. One rung after
// another the same service is locked in another way (rung.go has the list), and the table at the
// end compares them. The service is in service.go, and all that has to do with Holdfast is
// withHoldfast in rung.go and the header with the token in service.go.
//
// The store is the referee as well (store.go). It sees an update that overwrites another one, and a
// fencing token that is not above the one before it. It also sees a request that reads an order
// while another one is between its read and its write.
//
// All of this shares the processors of one machine, where a hop between processes costs as much as
// it saves. So look at the lock's commands to Redis, and at the longest waits. The requests per
// second of the last two rungs tell less.
//
// Exit status: 0 if no rung with a lock showed any of these; 1 if one did, if one answered no
// request with success, or if something could not be started; 2 for a bad command line. Requests
// that failed are in the table, and do not change the status.
package main

import (
	"context"
	"crypto/rand"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

func main() {
	// A worker is this same program; its order is in the environment (see worker.go).
	if order := os.Getenv(orderEnv); order != "" {
		os.Exit(workerMain(order))
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// config is a checked command line.
type config struct {
	redis     string        // address of a real server, or empty for the embedded one
	duration  time.Duration // of the requests of each rung's clients
	processes int
	clients   int // of all processes together
	resources int
	rungs     []rung
}

// parseFlags returns flag.ErrHelp after it printed the usage to usage.
func parseFlags(args []string, usage io.Writer) (config, error) {
	var cfg config
	flags := flag.NewFlagSet("httplock", flag.ContinueOnError)
	flags.SetOutput(io.Discard) // the caller prints the error, once
	flags.StringVar(&cfg.redis, "redis", "", "`address` (host:port) of a Redis server; empty: an embedded one")
	flags.DurationVar(&cfg.duration, "duration", 2*time.Second, "time for which the clients of each rung send requests")
	flags.IntVar(&cfg.processes, "processes", 4, "processes behind the load balancer")
	flags.IntVar(&cfg.clients, "clients", 200, "clients that send requests, each one after the other")
	flags.IntVar(&cfg.resources, "resources", 10, "orders that the requests are about; fewer are hotter")
	names := flags.String("rungs", publicRungs(), "comma-separated `names` of the rungs to climb")
	flags.Usage = func() {}

	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			fmt.Fprintln(usage, "usage: httplock [flags]")
			flags.SetOutput(usage)
			flags.PrintDefaults()
		}
		return config{}, err
	}
	if flags.NArg() > 0 {
		return config{}, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	var err error
	if cfg.rungs, err = findRungs(*names); err != nil {
		return config{}, err
	}
	return cfg, cfg.validate()
}

func (c config) validate() error {
	if c.redis != "" {
		if _, port, err := net.SplitHostPort(c.redis); err != nil || port == "" {
			return fmt.Errorf("-redis %q: want host:port", c.redis)
		}
	}
	for _, f := range []struct {
		name          string
		got, min, max int
	}{
		{"processes", c.processes, 1, 16}, // more would leave some without a partition
		{"clients", c.clients, 1, 2000},
		{"resources", c.resources, 1, 1_000_000},
	} {
		if f.got < f.min || f.got > f.max {
			return fmt.Errorf("-%s %d: want %d to %d", f.name, f.got, f.min, f.max)
		}
	}
	if c.duration < 100*time.Millisecond || c.duration > 10*time.Minute {
		return fmt.Errorf("-duration %v: want 100ms to 10m", c.duration)
	}
	return nil
}

// run is the parent process. It returns the exit status. Its workers write to stderr as well, so
// stderr must allow concurrent writes.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	cfg, err := parseFlags(args, stdout)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		fmt.Fprintf(stderr, "httplock: %v (httplock -h lists the flags)\n", err)
		return 2
	}
	outcomes, err := climb(ctx, cfg, stdout, stderr)
	if len(outcomes) > 0 {
		fmt.Fprintln(stdout)
		writeTable(stdout, outcomes)
	}
	if err == nil {
		err = verdict(outcomes)
	}
	if err != nil {
		fmt.Fprintf(stderr, "httplock: FAILED: %v\n", err)
		return 1
	}
	fmt.Fprintf(stdout, "\n%s\n", summary(outcomes))
	return 0
}

// climb starts Redis and runs one rung after the other. With an error it returns the outcomes of
// the rungs before.
func climb(ctx context.Context, cfg config, stdout, stderr io.Writer) (_ []outcome, err error) {
	server, err := startRedis(ctx, cfg.redis)
	if err != nil {
		return nil, err
	}
	defer server.close()

	// No other program's keys begin like this, so the run can use a server that is in use, and
	// clean up.
	prefix := "http" + strings.ToLower(rand.Text()[:8])
	defer func() {
		err = errors.Join(err, server.deleteKeys(context.WithoutCancel(ctx), prefix))
	}()

	fmt.Fprintf(stdout, "%d clients, %d orders, %d processes behind a load balancer, %v on each rung; %s\n",
		cfg.clients, cfg.resources, cfg.processes, cfg.duration, server.name)
	var outcomes []outcome
	for i, r := range cfg.rungs {
		t := trial{
			config:    cfg,
			rung:      r,
			namespace: fmt.Sprintf("%s-%d", prefix, i+1),
			redisAddr: server.addr,
			progress:  newProgress(stdout, fmt.Sprintf("[%d/%d] %s", i+1, len(cfg.rungs), r.title), cfg.duration),
			stderr:    stderr,
		}
		o, err := t.run(ctx)
		if err != nil {
			return outcomes, fmt.Errorf("%s: %w", r.title, err)
		}
		outcomes = append(outcomes, o)
	}
	return outcomes, nil
}
