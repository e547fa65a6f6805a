// Inventory is a sale: several processes sell the last units of a few hot articles at the same
// time, by reading a row and writing it back. Without a lock they sell the same unit twice; under a
// lock they do not, and the question becomes how many units per second the lock lets through.
//
//	go run ./examples/inventory
//	go run ./examples/inventory -redis localhost:6379 -duration 20s
//	go run ./examples/inventory -chaos
//	go run ./examples/inventory -catalogue
//	go run ./examples/inventory -postgres local
//	go run ./examples/inventory -arbiter etcd
//	go run -tags stores ./examples/inventory -arbiter kubernetes
//	go run ./examples/inventory -postgres postgres://user:password@localhost/test
//
// It needs no server: a Redis-protocol server and an SQL database run inside the parent process,
// unless the flags name others. -arbiter starts a store for Holdfast's rungs, of the machine's
// packages (stores.go has the list). With the build tag "stores" there are more, which are compiled
// first (stores_more.go): S3, Kubernetes, FerretDB in the place of MongoDB, and the fake Consul of
// its arbiter's tests. One rung after another, worker processes sell the same stock under a
// different lock. The table at the end compares them (rung.go has the list). With -chaos worker
// processes are killed during each sale, and others take their places (chaos.go). With -catalogue
// nothing is sold: prices are read, a thousand times as often as they are changed, with read locks
// and without (catalogue.go). The sale itself is in worker.go, and all that has to do with Holdfast
// is newHoldfast in rung.go and four lines in worker.go.
//
// Exit status: 0 if no unit was sold twice and every fencing token was above the one before it; 1
// if not or if something failed; 2 for a bad command line.
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
	"slices"
	"strings"
	"syscall"
	"time"
)

func main() {
	// A worker is this same program; its order is in the environment (see sale.go).
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
	redis      string        // address of a real server, or empty for the embedded one
	arbiter    string        // the store that Holdfast's rungs go by: one of arbiterStores
	postgres   string        // how to connect to a server, or local, or empty for the embedded database
	duration   time.Duration // of each rung's sale, unless everything is sold before
	processes  int
	goroutines int // per process
	skus       int
	stock      int64 // units per SKU when the sale starts
	rungs      []rung
	chaos      bool
	catalogue  bool // look-ups of prices, not a sale
	reads      int  // look-ups for each change of a price
}

// parseFlags returns flag.ErrHelp after it printed the usage to usage.
func parseFlags(args []string, usage io.Writer) (config, error) {
	var cfg config
	flags := flag.NewFlagSet("inventory", flag.ContinueOnError)
	flags.SetOutput(io.Discard) // the caller prints the error, once
	flags.StringVar(&cfg.redis, "redis", "", "`address` (host:port) of a Redis server; empty: an embedded one")
	flags.StringVar(&cfg.postgres, "postgres", "", "`DSN` of a PostgreSQL server, or local to start the machine's own; empty: an embedded database")
	flags.StringVar(&cfg.arbiter, "arbiter", "redis", "`store` of Holdfast's rungs, which is started: "+arbiterNames()+" (postgres is as -postgres says, or local)")
	flags.DurationVar(&cfg.duration, "duration", 5*time.Second, "time that each rung sells")
	flags.IntVar(&cfg.processes, "processes", 4, "worker processes")
	flags.IntVar(&cfg.goroutines, "goroutines", 16, "selling goroutines in each process")
	flags.IntVar(&cfg.skus, "skus", 3, "articles on sale; fewer are hotter")
	flags.Int64Var(&cfg.stock, "stock", 1_000_000, "units of each article; a small number ends the sale by selling out")
	names := flags.String("rungs", "", "comma-separated `names` of the rungs to climb; empty: "+publicRungs(false)+", or "+publicRungs(true)+" with -catalogue")
	flags.BoolVar(&cfg.catalogue, "catalogue", false, "look up prices, and change some, instead of selling")
	flags.IntVar(&cfg.reads, "reads", 1000, "with -catalogue: look-ups for each change of a price")
	flags.BoolVar(&cfg.chaos, "chaos", false, "kill worker processes during each sale, and start others")
	flags.Usage = func() {}

	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			fmt.Fprintln(usage, "usage: inventory [flags]")
			flags.SetOutput(usage)
			flags.PrintDefaults()
		}
		return config{}, err
	}
	if flags.NArg() > 0 {
		return config{}, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	given := false
	flags.Visit(func(f *flag.Flag) { given = given || f.Name == "rungs" })
	if !given {
		*names = publicRungs(cfg.catalogue)
	}
	var err error
	if cfg.rungs, err = findRungs(*names); err != nil {
		return config{}, err
	}
	if cfg.arbiter == "postgres" && cfg.postgres == "" {
		cfg.postgres = local
	}
	return cfg, cfg.validate()
}

func (c config) validate() error {
	if c.redis != "" {
		if _, port, err := net.SplitHostPort(c.redis); err != nil || port == "" {
			return fmt.Errorf("-redis %q: want host:port", c.redis)
		}
	}
	if _, err := findArbiterStore(c.arbiter); err != nil {
		return err
	}
	if c.catalogue && c.chaos {
		return errors.New("-catalogue: not with -chaos, which would kill a process between the two halves of a change")
	}
	for _, r := range c.rungs {
		if r.looks != c.catalogue {
			return fmt.Errorf("-rungs: %s is%s one of a catalogue", r.name, map[bool]string{true: "", false: " not"}[r.looks])
		}
	}
	for _, f := range []struct {
		name     string
		got      int64
		min, max int64
	}{
		{"processes", int64(c.processes), 1, 64},
		{"goroutines", int64(c.goroutines), 1, 1024},
		{"skus", int64(c.skus), 1, 1000},
		{"stock", c.stock, 1, 1_000_000_000},
		{"reads", int64(c.reads), 1, 1_000_000},
	} {
		if f.got < f.min || f.got > f.max {
			return fmt.Errorf("-%s %d: want %d to %d", f.name, f.got, f.min, f.max)
		}
	}
	if c.duration < 100*time.Millisecond || c.duration > time.Hour {
		return fmt.Errorf("-duration %v: want 100ms to 1h", c.duration)
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
		fmt.Fprintf(stderr, "inventory: %v (inventory -h lists the flags)\n", err)
		return 2
	}
	table, judge := writeTable, verdict
	if cfg.catalogue {
		table, judge = writeLookUps, verdictOnCatalogue
	}
	outcomes, err := climb(ctx, cfg, stdout, stderr)
	if len(outcomes) > 0 {
		fmt.Fprintln(stdout)
		table(stdout, outcomes)
	}
	if err == nil {
		err = judge(outcomes)
	}
	if err != nil {
		fmt.Fprintf(stderr, "inventory: FAILED: %v\n", err)
		return 1
	}
	if cfg.catalogue {
		fmt.Fprintln(stdout, "\nNo price was seen half changed, and no change was lost.")
		return 0
	}
	fmt.Fprint(stdout, "\nNo unit was sold twice")
	if slices.ContainsFunc(cfg.rungs, func(r rung) bool { return r.fenced }) {
		fmt.Fprint(stdout, ", and every fencing token was above the one before it")
	}
	fmt.Fprintln(stdout, ".")
	return 0
}

// climb starts the servers and sells on one rung after the other. With an error it returns the
// outcomes of the rungs before.
func climb(ctx context.Context, cfg config, stdout, stderr io.Writer) (_ []outcome, err error) {
	server, err := startRedis(ctx, cfg.redis)
	if err != nil {
		return nil, err
	}
	defer server.close()
	// No other program's keys begin like this, so the run can use servers that are in use, and
	// clean up.
	prefix := "inv" + strings.ToLower(rand.Text()[:8])
	shop, err := startDatabase(ctx, cfg.postgres, prefix)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, shop.close()) }()
	db, err := shop.open(1)
	if err != nil {
		return nil, err
	}
	defer db.Close()
	defer func() {
		err = errors.Join(err, server.deleteKeys(context.WithoutCancel(ctx), prefix))
	}()

	var at []string
	locks, err := findArbiterStore(cfg.arbiter)
	if err != nil {
		return nil, err
	}
	if locks.start != nil {
		var stop func() error
		if at, stop, err = locks.start(ctx); err != nil {
			return nil, fmt.Errorf("-arbiter %s: %w", cfg.arbiter, err)
		}
		defer func() { err = errors.Join(err, stop()) }()
	}

	verb := "sell"
	if cfg.catalogue {
		verb = "look up"
	}
	fmt.Fprintf(stdout, "%d processes x %d goroutines %s %d articles, %v on each rung; %s, %s; the arbiter is on %s\n",
		cfg.processes, cfg.goroutines, verb, cfg.skus, cfg.duration, server.name, shop.name, cfg.arbiter)
	var outcomes []outcome
	for i, r := range cfg.rungs {
		s := sale{
			config:    cfg,
			rung:      r,
			namespace: fmt.Sprintf("%s-%d", prefix, i+1),
			redisAddr: server.addr,
			place:     shop.place,
			store:     at,
			db:        db,
			progress:  newProgress(stdout, fmt.Sprintf("[%d/%d] %s", i+1, len(cfg.rungs), r.title), cfg.duration),
			stderr:    stderr,
		}
		if cfg.catalogue {
			s.progress.done = "looked up"
		}
		o, err := s.run(ctx)
		if err != nil {
			return outcomes, fmt.Errorf("%s: %w", r.title, err)
		}
		outcomes = append(outcomes, o)
	}
	return outcomes, nil
}
