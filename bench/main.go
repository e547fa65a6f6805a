// Bench proves on a real redis-server the claims of Holdfast about its speed.
//
//	go run ./bench                              # about ten minutes
//	go run ./bench -only all                    # about 20
//	go run ./bench -only hot,cold,held          # about two
//	go run ./bench -only hot,cold,held -quick   # about a minute
//	go run ./bench -rivals all                  # etcd, ZooKeeper, and more settings of the others, too
//	go run ./bench -redis localhost:6379 -report
//	go run ./bench -json run.json               # the same as data
//	go run ./bench -from run.json -svg charts   # draw that, measure nothing
//	make figures                                # README's figures and charts: measured, and written
//	make charts                                 # the same from the run in docs/figures.json
//
// It starts a redis-server of its own unless it is given one. It measures both sides of each
// comparison in the same run and by turns. It prints a table for each subject, and below it all
// figures of each lock, beside those of the best rival and of the floor. The claims that must hold
// follow. -h describes the subjects. Rivals that are not installed are not run.
//
// The machine need not be quiet: both sides are measured at nearly the same time, and only ratios
// are judged.
//
// Exit status: 0 if everything holds (or with -report), 1 if something does not or the measurement
// failed, 2 for a bad command line.
package main

import (
	"context"
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

	"github.com/holdfast-go/holdfast/bench/harness"
	"github.com/holdfast-go/holdfast/bench/report"
	"github.com/holdfast-go/holdfast/bench/subjects"
)

func main() {
	harness.IfWorker() // this same program with a task in its environment
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// config is a checked command line.
type config struct {
	harness.Settings
	only   []string
	report bool // print, but do not fail
	sizes  subjects.Sizes

	report.Outputs
	from    string // files of records; not empty: nothing is measured
	quick   bool
	command string
}

// everySubject is all subjects.
var everySubject = subjects.All

// names lists all subjects, or those that are measured by default.
func names(all bool) string {
	var list []string
	for _, s := range everySubject {
		if all || !slices.Contains(subjects.Long, s.Name) {
			list = append(list, s.Name)
		}
	}
	return strings.Join(list, ",")
}

// parseFlags returns flag.ErrHelp after it printed the usage to usage.
func parseFlags(args []string, usage io.Writer) (config, error) {
	var cfg config
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(io.Discard) // the caller prints the error, once
	flags.StringVar(&cfg.Redis, "redis", "", "`address` (host:port) of a Redis server; empty: start one")
	rivals := flags.String("rivals", "fast", "`which` rivals: fast, or all, with those that are known to be slow and more settings")
	only := flags.String("only", names(false), "comma-separated `subjects` to measure; all: all, also "+strings.Join(subjects.Long, ","))
	flags.BoolVar(&cfg.quick, "quick", false, "measure less, and do not fail if something does not hold: hot, cold and held in about a minute, longer on a busy machine")
	flags.BoolVar(&cfg.report, "report", false, "exit with 0 even if something does not hold")
	flags.BoolVar(&cfg.Pin, "pin", true, "pin servers to a core and those who call them to another; not for hot, held and idle, and see -place")
	flags.StringVar(&cfg.Place, "place", "", "what runs where: free, near (the store where the callers are) or apart; empty: shared near, zipf free")
	flags.StringVar(&cfg.JSON, "json", "", "write everything that was found to this `file`")
	flags.StringVar(&cfg.SVG, "svg", "", "write a chart of the ladder and of what each subject compares to this `directory`")
	flags.StringVar(&cfg.Charts, "charts", "", "comma-separated `names` of the charts that -svg writes, as their files; empty: all")
	flags.StringVar(&cfg.Readme, "readme", "", "write the figures of README into this `file`, between the lines that say so")
	flags.StringVar(&cfg.from, "from", "", "measure nothing; print and write what is in these comma-separated `files`, which -json has written")
	flags.Usage = func() {}

	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			fmt.Fprintln(usage, "usage: bench [flags]")
			flags.SetOutput(usage)
			flags.PrintDefaults()
			fmt.Fprintln(usage, "subjects:")
			for _, s := range everySubject {
				fmt.Fprintf(usage, "  %-8s %s\n", s.Name, s.About)
			}
		}
		return config{}, err
	}
	if flags.NArg() > 0 {
		return config{}, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	if _, port, err := net.SplitHostPort(cfg.Redis); cfg.Redis != "" && (err != nil || port == "") {
		return config{}, fmt.Errorf("-redis %q: want host:port", cfg.Redis)
	}
	if cfg.Rivals = *rivals == "all"; !cfg.Rivals && *rivals != "fast" {
		return config{}, fmt.Errorf("-rivals %q: want fast or all", *rivals)
	}
	if !slices.Contains([]string{"", harness.PlaceFree, harness.PlaceNear, harness.PlaceApart}, cfg.Place) {
		return config{}, fmt.Errorf("-place %q: want free, near or apart", cfg.Place)
	}
	cfg.sizes, cfg.Calm = subjects.FullSizes, 4*time.Second
	cfg.command = strings.Join(append([]string{"go run ./bench"}, args...), " ")
	if cfg.quick {
		cfg.sizes, cfg.Calm = subjects.QuickSizes, time.Second
	}
	if *only == "all" {
		*only = names(true)
	}
	cfg.only = strings.Split(*only, ",")
	for i, name := range cfg.only {
		if !slices.ContainsFunc(everySubject, func(s subjects.Subject) bool { return s.Name == name }) {
			return config{}, fmt.Errorf("-only: no subject %q, only %s", name, names(true))
		}
		if slices.Contains(cfg.only[:i], name) {
			return config{}, fmt.Errorf("-only: %s is there twice", name)
		}
	}
	return cfg, nil
}

// run is the parent process. It returns the exit status. Its workers write to stderr as well, so
// stderr must allow concurrent writes.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	cfg, err := parseFlags(args, stdout)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		fmt.Fprintf(stderr, "bench: %v (bench -h lists the flags)\n", err)
		return 2
	}
	if cfg.from != "" {
		rec, err := report.Again(cfg.from, cfg.Outputs, stdout)
		if err != nil {
			fmt.Fprintf(stderr, "bench: FAILED: %v\n", err)
			return 1
		}
		return report.Verdict(rec, cfg.report, stdout)
	}
	return measure(ctx, cfg, stdout, stderr)
}

// measure measures the subjects in their order, whatever that of -only. It returns the exit status.
func measure(ctx context.Context, cfg config, stdout, stderr io.Writer) int {
	b, err := harness.NewBench(ctx, cfg.Settings, stdout, stderr)
	if err != nil {
		fmt.Fprintf(stderr, "bench: FAILED: %v\n", err)
		return 1
	}
	defer b.Progress.Clear()
	rec := &report.Record{Format: report.RecordFormat, Date: time.Now(), Commit: report.Commit(), Command: cfg.command, Quick: cfg.quick}
	var errs []error
	for _, s := range everySubject {
		if !slices.Contains(cfg.only, s.Name) {
			continue
		}
		b.Progress.Begin(s.Name, len(rec.Subjects)+1, len(cfg.only))
		r, err := s.Do(ctx, &subjects.Run{Bench: b, Sizes: cfg.sizes})
		b.Progress.Clear()
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", s.Name, err))
			if ctx.Err() != nil {
				break
			}
			fmt.Fprintf(stderr, "bench: %s: %v\n", s.Name, err) // now as well: the others may take long
			continue
		}
		r.Write(stdout)
		rec.Add(s.Name, r)
	}
	rec.Machine = report.ThisMachine(b.Servers)
	errs = append(errs, b.Close(context.WithoutCancel(ctx)))
	if len(rec.Subjects) > 0 { // these are worth keeping if another subject failed
		errs = append(errs, cfg.Outputs.Write(rec))
	}
	if err := errors.Join(errs...); err != nil {
		fmt.Fprintf(stderr, "bench: FAILED: %v\n", err)
		return 1
	}
	return report.Verdict(rec, cfg.report, stdout)
}
