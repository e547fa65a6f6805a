//go:build unix

package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"time"
)

func main() {
	if text := os.Getenv(nodeVariable); text != "" {
		if err := runNode(text); err != nil {
			fmt.Fprintln(os.Stderr, "node:", err)
			os.Exit(1)
		}
		return
	}
	var s setup
	flag.IntVar(&s.Holds, "holds", 1_000_000, "`locks` that are held")
	flag.IntVar(&s.Nodes, "nodes", 8, "`processes`; two of them hold nothing and go")
	flag.IntVar(&s.Partitions, "partitions", 1021, "Options.Partitions")
	flag.DurationVar(&s.TTL, "ttl", 10*time.Second, "Options.SessionTTL")
	flag.DurationVar(&s.Renew, "renew", 0, "Options.RenewEvery; 0: its default")
	flag.BoolVar(&s.Log, "log", false, "what the nodes log, on standard error")
	flag.DurationVar(&s.Takeover, "takeover", 0, "Cluster.Takeover; 0: its default, negative: off")
	flag.BoolVar(&s.Unwatched, "unwatched", false, "Cluster.Unwatched: no process sees another one end")
	kills := flag.Int("kills", 0, "kill so many nodes under load, one after the other, and tell how the others fared; 0: show events")
	sizes := flag.String("kill-nodes", "2,3,5,8", "with -kills: clusters of so many `processes`; 5:2 is two of five at once")
	by := flag.String("by", "kill", "with -kills: what happens to them, of "+harmNames()+", separated by commas; all but the first two need root, on Linux")
	lasts := flag.Duration("lasts", 0, "with -kills: how long a stop or a cut lasts; 0: 5 s longer than SessionTTL")
	away := flag.Duration("away", 0, "stop Redis for so long under load, and tell how the nodes fared")
	awayKill := flag.Bool("away-kill", false, "with -away: half-way a node is killed")
	again := flag.Bool("again", false, "with -kills: the process starts again, at its address and under its name")
	after := flag.Duration("again-after", 0, "with -again: so long after it died")
	apart := flag.Duration("apart", 0, "with -kills and -kill-nodes 5:2: so long between the deaths, by a signal; the times count from the last one")
	workers := flag.Int("workers", 16, "goroutines of each process that lock, with -kills and -rolling")
	roll := flag.Bool("rolling", false, "restart each node in turn under load, and tell how the others fared")
	guaranteed := flag.Int("guarantees", 0, "have each event of README's table of guarantees happen so many `times`, eight of them at once")
	flag.Float64Var(&s.Cores, "cores", 0, "what each node gets of a core, by a control group; 0: no limit")
	flag.BoolVar(&s.AllReplicas, "all-replicas", false, "redisarbiter.Options.AllReplicas, with servers whose disks keep each write; not with -kills, -rolling, -away and -guarantees")
	only := flag.String("only", "", "of "+eventNames()+", with -guarantees also still and apart: these `events`, separated by commas; default: all")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	var lost uint64
	var err error
	good := true
	switch {
	case s.AllReplicas && (*roll || *away > 0 || *kills > 0 || *guaranteed > 0):
		err = errors.New("-all-replicas is not for -kills, -rolling, -away and -guarantees")
	case *guaranteed > 0:
		err = s.showGuarantees(ctx, os.Stdout, *guaranteed, 8, *only)
	case *roll || *away > 0:
		good, err = rolling{setup: s, Workers: *workers, Pause: time.Second, Away: *away, Kill: *awayKill}.run(ctx, os.Stdout)
	case *kills > 0:
		if s.Holds > 100_000 {
			s.Holds = 1000
		}
		k := killing{setup: s, Kills: *kills, Lasts: cmp.Or(*lasts, s.TTL+5*time.Second), Apart: *apart, Again: *again, After: *after, Workers: *workers}
		good, err = k.run(ctx, os.Stdout, *sizes, *by)
	default:
		lost, err = s.run(ctx, os.Stdout, *only)
	}
	stop()
	switch {
	case err != nil:
		fmt.Fprintln(os.Stderr, "holds:", err)
		os.Exit(2)
	case lost > 0 || !good:
		os.Exit(1)
	}
}
