// Tokens shows the fate of OAuth 2.0 tokens when several processes share them, and the provider
// rotates refresh tokens: used twice, one is taken for stolen, and everything since the login is
// revoked.
//
//	go run ./examples/tokens
//	go run ./examples/tokens -chaos
//	go run ./examples/tokens -chaos -grace
//
// It needs no server: a provider (provider.go) and a Redis-protocol server run inside the parent
// process. On each rung worker processes use the access tokens of some accounts, until these have
// been refreshed as often as wanted. An access token lives for a second only. On the first rung the
// tokens are in Redis, and each process refreshes those that it finds expired, by
// golang.org/x/oauth2. On the second one Holdfast keeps them (openHoldfast in rung.go).
//
// With -chaos the process that asks the provider is killed some times, when the provider has
// committed and not yet answered. With Holdfast the account is then in doubt: the user has to log
// in again, here the parent. With -grace the provider forgives one repetition, and Holdfast makes
// it.
//
// Exit status: 0 if with Holdfast no login was revoked, no token refreshed twice, and every doubt
// dealt with; 1 if not or if something failed, 2 for a bad command line.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	// A worker is this same program; its order is in the environment (see trial.go).
	if order := os.Getenv(orderEnv); order != "" {
		os.Exit(workerMain(order))
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// options is a checked command line.
type options struct {
	processes  int
	goroutines int // per process
	accounts   int
	expiries   int // of all accounts together, on each rung
	rungs      []rung
	chaos      bool
	grace      bool
}

// parseFlags returns flag.ErrHelp after it printed the usage to usage.
func parseFlags(args []string, usage io.Writer) (options, error) {
	var o options
	flags := flag.NewFlagSet("tokens", flag.ContinueOnError)
	flags.SetOutput(io.Discard) // the caller prints the error, once
	flags.IntVar(&o.processes, "processes", 8, "worker processes")
	flags.IntVar(&o.goroutines, "goroutines", 32, "goroutines in each process")
	flags.IntVar(&o.accounts, "accounts", 5, "accounts, whose tokens all of them use")
	flags.IntVar(&o.expiries, "expiries", 50, "how many times tokens expire on each rung, all accounts together")
	names := flags.String("rungs", "plain,holdfast", "comma-separated `names` of the rungs to climb")
	flags.BoolVar(&o.chaos, "chaos", false, "kill processes while they ask the provider")
	flags.BoolVar(&o.grace, "grace", false, "the provider accepts a used refresh token once more, for a while")
	flags.Usage = func() {}
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			fmt.Fprintln(usage, "usage: tokens [flags]")
			flags.SetOutput(usage)
			flags.PrintDefaults()
		}
		return o, err
	}
	if flags.NArg() > 0 {
		return o, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	var err error
	if o.rungs, err = findRungs(*names); err != nil {
		return o, err
	}
	for _, f := range []struct {
		name          string
		got, min, max int
	}{
		{"processes", o.processes, 1, 64},
		{"goroutines", o.goroutines, 1, 1024},
		{"accounts", o.accounts, 1, 1000},
		{"expiries", o.expiries, o.accounts, 100_000},
	} {
		if f.got < f.min || f.got > f.max {
			return o, fmt.Errorf("-%s %d: want %d to %d", f.name, f.got, f.min, f.max)
		}
	}
	return o, nil
}

// run is the parent process. It returns the exit status. Its workers write to stderr as well, so
// stderr must allow concurrent writes.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	o, err := parseFlags(args, stdout)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		fmt.Fprintf(stderr, "tokens: %v (tokens -h lists the flags)\n", err)
		return 2
	}
	fmt.Fprintf(stdout, "%d processes x %d goroutines use the tokens of %d accounts; access tokens live for %v\n",
		o.processes, o.goroutines, o.accounts, life)
	var outcomes []outcome
	for _, r := range o.rungs {
		var x outcome
		if x, err = try(ctx, o, r, stderr); err != nil {
			err = fmt.Errorf("%s: %w", r.title, err)
			break
		}
		fmt.Fprintf(stdout, "%s: %.1f s\n", r.title, x.elapsed.Seconds())
		outcomes = append(outcomes, x)
	}
	if len(outcomes) > 0 {
		fmt.Fprintln(stdout)
		writeTable(stdout, outcomes)
	}
	if err == nil {
		err = verdict(outcomes)
	}
	if err != nil {
		fmt.Fprintf(stderr, "tokens: FAILED: %v\n", err)
		return 1
	}
	return 0
}
