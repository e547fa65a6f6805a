// Command chaos stops lock holders by SIGSTOP, between any two statements of their transactions,
// and counts the updates that are lost: with the token checked in several ways, and without.
// Processes, redis-server and the databases are real. The counter is in a database, in Redis or in
// a file; the latter two run with SQLite.
//
//	go run ./chaos                               # all databases that are installed, 20 s for each variant
//	go run ./chaos -db mariadb -duration 2m -json run.json
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/holdfast-go/holdfast/fence/internal/dbtest"
)

func main() {
	if text := os.Getenv(workerEnv); text != "" {
		os.Exit(work(text))
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := chaos(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "chaos:", err)
		os.Exit(1)
	}
}

// kinds are the values of -db.
var kinds = map[string]dbtest.Kind{"postgres": dbtest.Postgres, "mariadb": dbtest.MariaDB, "sqlite": dbtest.SQLite}

func chaos(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("chaos", flag.ContinueOnError)
	flags.SetOutput(out)
	var (
		db       = flags.String("db", "all", "postgres, mariadb, sqlite, or all that are installed")
		only     = flags.String("variants", "", "names of variants, separated by commas; default all")
		duration = flags.Duration("duration", 20*time.Second, "for each variant")
		workers  = flags.Int("workers", 4, "processes")
		jsonFile = flags.String("json", "", "write the results to this file, too")
	)
	if err := flags.Parse(args); err != nil {
		return err
	}
	var chosen []dbtest.Kind
	for _, kind := range dbtest.Kinds {
		if *db == "all" || kinds[*db] == kind {
			chosen = append(chosen, kind)
		}
	}
	if len(chosen) == 0 {
		return fmt.Errorf("-db is %q, must be postgres, mariadb, sqlite or all", *db)
	}
	var names []string
	if *only != "" {
		names = strings.Split(*only, ",")
	}
	for _, name := range names {
		if !slices.ContainsFunc(variants, func(v variant) bool { return v.name == name }) {
			return fmt.Errorf("-variants has %q, which is none", name)
		}
	}
	if *workers < 2 || *duration < 2*stopTime {
		return fmt.Errorf("-workers %d must be 2 or more, and -duration %v at least %v", *workers, *duration, 2*stopTime)
	}
	var results []result
	for _, kind := range chosen {
		rs, err := runAll(ctx, kind, names, *workers, *duration)
		results = append(results, rs...)
		if errors.Is(err, dbtest.ErrNotInstalled) && *db == "all" {
			fmt.Fprintln(out, err)
			continue
		}
		if err != nil {
			return err
		}
	}
	if err := print(out, results); err != nil {
		return err
	}
	if *jsonFile != "" {
		text, err := json.MarshalIndent(results, "", "\t")
		if err != nil {
			return err
		}
		if err := os.WriteFile(*jsonFile, append(text, '\n'), 0o644); err != nil {
			return err
		}
	}
	return judge(results)
}

func print(out io.Writer, results []result) error {
	w := tabwriter.NewWriter(out, 0, 0, 1, ' ', 0)
	fmt.Fprintln(w, "| resource\t| variant\t| updates acknowledged\t| stops\t| refused as stale\t| outcome unknown\t| lost updates\t|")
	fmt.Fprintln(w, "| ---\t| ---\t| ---\t| ---\t| ---\t| ---\t| ---\t|")
	for _, r := range results {
		fmt.Fprintf(w, "| %s\t| %s\t| %d\t| %d\t| %d\t| %d\t| %d\t|\n", r.Resource, r.Variant, r.Done, r.Stops, r.Stale, r.Unknown, r.Lost)
	}
	return w.Flush()
}

// judge returns an error if something was lost that was guarded, or if the run has shown nothing.
func judge(results []result) error {
	var wrong []error
	for _, r := range results {
		switch {
		case r.Lost > 0 && r.Guarded:
			wrong = append(wrong, fmt.Errorf("%s, %s: %d updates were lost", r.Resource, r.Variant, r.Lost))
		case r.Lost < 0:
			wrong = append(wrong, fmt.Errorf("%s, %s: %d updates were not acknowledged, though %d outcomes were unknown", r.Resource, r.Variant, -r.Lost, r.Unknown))
		case r.Done == 0 || r.Stops == 0:
			wrong = append(wrong, fmt.Errorf("%s, %s: %d updates, %d stops", r.Resource, r.Variant, r.Done, r.Stops))
		}
		for text, n := range r.Errors {
			wrong = append(wrong, fmt.Errorf("%s, %s: %d times %s", r.Resource, r.Variant, n, text))
		}
	}
	return errors.Join(wrong...)
}
