//go:build linux

package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
)

func main() {
	if mine, err := child(); mine {
		exit(err)
	}
	exit(command())
}

func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// defaults are the times of a run for a T: short ones, so that there is more time for faults.
func defaults(ttl time.Duration) times {
	return times{TTL: ttl, Grace: ttl*11/10 + 1700*time.Millisecond, Keepalive: ttl / 15, Debounce: 500 * time.Millisecond,
		CallTimeout: ttl / 5} // a slow machine is not a fault
}

type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}

func command() error {
	var cfg config
	flag.StringVar(&cfg.Topology, "topology", "sentinel", "single, sentinel or cluster")
	flag.DurationVar(&cfg.Duration, "duration", 4*time.Minute, "for how long to commit faults")
	flag.Uint64Var(&cfg.Seed, "seed", 1, "what decides which faults are committed, and when")
	flag.IntVar(&cfg.Nodes, "nodes", 5, "number of nodes")
	flag.IntVar(&cfg.Hosts, "hosts", 0, "number of hosts, which the nodes share: those of one see each other's processes end; a cut or a delay concerns all of a host; 0: each node has one of its own")
	flag.IntVar(&cfg.Keys, "keys", 12, "keys that every node locks and unlocks all the time")
	flag.IntVar(&cfg.Slow, "slow", 3, "keys that every node holds for long")
	flag.DurationVar(&cfg.Rest.To, "rest", 120*time.Millisecond, "the longest rest of a client between two locks")
	flag.Float64Var(&cfg.Share, "share", 0.4, "share of locks that are for reading, or permits; 0: only locks of one key that exclude each other")
	flag.IntVar(&cfg.Replicas, "replicas", 0, "redisarbiter.Options.Replicas")
	flag.BoolVar(&cfg.Observed, "observer-clock", false, "redisarbiter.Options.ObserverClock; a single server's clock is then stepped by an hour")
	flag.BoolVar(&cfg.All, "all-replicas", false, "with sentinel: redisarbiter.Options.AllReplicas, with servers whose disks keep each write")
	flag.BoolVar(&cfg.Defaults, "default-replication", false, "with sentinel: Redis's own settings, with which two holders are to be expected")
	flag.StringVar(&cfg.Mutant, "mutant", "", "guards to take out, with commas between them, in a build with -tags mutants")
	flag.StringVar(&cfg.Dir, "dir", "", "where to keep what the nodes write down; by default it is removed if there is no violation")
	ttl := flag.Duration("ttl", 3*time.Second, "T; the other times are made from it")
	hurried := flag.Bool("hurried", false, "Margin is T/20, RenewEvery T/10, Grace 1.1 T: a server that was deposed may answer for T/20; Sentinel waits for 2.5 s instead of 1.5")
	takeover := flag.Duration("takeover", 0, "Cluster.Takeover; 0: its default, negative: off")
	pause := flag.Duration("pause", 2*time.Second, "the longest time between two rounds")
	only := flag.String("only", "", "names of faults, with commas between them (and without those in the names); empty: all")
	flag.BoolVar(&cfg.Soak, "soak", false, "only faults that end no node's process: memory, goroutines and Redis have to stay as they are")
	list := flag.Bool("list", false, "list the faults")
	svg := flag.String("svg", "", "file for the picture")
	log := flag.String("history", "", "file for the history, which go run ./internal/history/judge understands")
	out := flag.String("json", "", "file for the report")
	flag.Parse()
	if *list {
		for _, f := range faults {
			fmt.Printf("%-8s %s\n", f.kind, f.name)
		}
		return nil
	}
	if serverNames[cfg.Topology] == nil {
		return fmt.Errorf("chaos: -topology %s is none of single, sentinel, cluster", cfg.Topology)
	}
	if cfg.Hosts < 0 || cfg.Hosts > cfg.Nodes {
		return fmt.Errorf("chaos: -hosts %d has to be from 0 to -nodes, %d", cfg.Hosts, cfg.Nodes)
	}
	if cfg.All && cfg.Topology != "sentinel" {
		return errors.New("chaos: -all-replicas is for -topology sentinel")
	}
	cfg.Times, cfg.Pause = defaults(*ttl), span{200 * time.Millisecond, *pause}
	if *hurried {
		cfg.Times.Hurried, cfg.Times.Grace = true, *ttl*11/10
	}
	cfg.Times.Takeover, cfg.Rest.From = *takeover, cfg.Rest.To/3
	if *only != "" {
		for name := range strings.SplitSeq(*only, ",") {
			i := slices.IndexFunc(faults, func(f fault) bool { return strings.ReplaceAll(f.name, ",", "") == strings.TrimSpace(name) })
			if i < 0 {
				return fmt.Errorf("chaos: there is no fault %q; see -list", name)
			}
			cfg.Only = append(cfg.Only, faults[i].name)
		}
	}
	redis.SetLogger(silent{}) // clients of servers that are away
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	begun := time.Now()
	rep, err := commit(ctx, cfg)
	if err != nil {
		return err
	}
	rep.Date, rep.Command = begun.UTC().Format("2006-01-02 15:04"), "go run ./internal/chaos "+strings.Join(os.Args[1:], " ")
	rep.write(os.Stdout)
	if *out != "" {
		text, err := json.MarshalIndent(rep, "", " ")
		if err != nil {
			return err
		}
		if err := os.WriteFile(*out, append(text, '\n'), 0o644); err != nil {
			return err
		}
	}
	if *log != "" {
		if err := writeRecords(*log, records(rep.events, rep.run.bands, rep.end)); err != nil {
			return err
		}
	}
	if *svg != "" {
		if err := os.WriteFile(*svg, picture(rep), 0o644); err != nil {
			return err
		}
	}
	if len(rep.Violations) > 0 {
		return errors.New("chaos: there are violations")
	}
	return nil
}
