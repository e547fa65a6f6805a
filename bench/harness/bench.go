// Package harness runs a measurement: the Redis server, the worker processes and where they run,
// and the meters of their usage.
//
// A worker is this same program, started again. A subject adds tasks (NewTask) for workers. The
// parent gives a task to one worker (Do), to several (All), or to one of its own (Alone).
package harness

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"github.com/holdfast-go/holdfast/internal/redistest"
)

// The calls of go-redis return as errors all that go-redis would print here.
func init() { logging.Disable() }

// Settings are the settings of all subjects.
type Settings struct {
	Redis  string // address of a server; empty: one of our own
	Rivals bool   // all of them
	Pin    bool
	Place  string        // where server and workers run in shared and zipf
	Calm   time.Duration // the longest wait for the machine to calm down between two rounds

	Debounce time.Duration // of clusters, for tests; 0: the library's default
}

// Bench is one run of the command: the server, and the state that all subjects share.
type Bench struct {
	Settings
	stdout, stderr io.Writer
	Admin          *redis.Client
	Addr           string
	prefix         string // no other program's keys begin like this, or like "{" and this
	Dir            string // for the files of this run
	own            *redistest.Server
	PID            int // of the server; 0 if it is not ours
	Progress       *progress
	Servers        []string // with their versions
	ends           []func(failed bool) error
}

// Part runs a subject or a part of one, and then calls the functions that it gave to AtEnd.
func (b *Bench) Part(f func() error) (err error) {
	first := len(b.ends)
	defer func() {
		for _, end := range slices.Backward(b.ends[first:]) {
			err = errors.Join(err, end(err != nil))
		}
		b.ends = b.ends[:first]
	}()
	return f()
}

// AtEnd has a function called at the end of the part, and told whether anything has failed. The
// last function is called first.
func (b *Bench) AtEnd(end func(failed bool) error) { b.ends = append(b.ends, end) }

// NewBench starts the server, or makes sure that the one given answers.
func NewBench(ctx context.Context, cfg Settings, stdout, stderr io.Writer) (*Bench, error) {
	b := &Bench{Settings: cfg, stdout: stdout, stderr: stderr, Addr: cfg.Redis, Progress: newProgress(stderr)}
	b.prefix = "hfbench" + strings.ToLower(rand.Text()[:8])
	var err error
	if b.Dir, err = os.MkdirTemp("", "holdfast-bench-"); err != nil {
		return nil, err
	}
	if b.Addr == "" {
		// Durability as redis-server has it by default does not matter here: neither side waits for
		// the disk.
		if b.own, err = redistest.New(b.Dir); err != nil {
			return nil, errors.Join(fmt.Errorf("no redis-server (give a running one by -redis): %w", err), os.RemoveAll(b.Dir))
		}
		b.Addr = b.own.Addr
	}
	b.Admin = redis.NewClient(&redis.Options{Addr: b.Addr})
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	info := b.Admin.InfoMap(ctx, "server")
	if err := info.Err(); err != nil {
		return nil, errors.Join(fmt.Errorf("no Redis at %s: %w", b.Addr, err), b.Close(context.WithoutCancel(ctx)))
	}
	name := "at " + b.Addr
	if b.own != nil {
		name = "started for this run"
		_, _ = fmt.Sscan(info.Item("Server", "process_id"), &b.PID)
	}
	b.Servers = []string{"redis-server " + info.Item("Server", "redis_version")}
	fmt.Fprintf(stdout, "%s %s; %s, %d cores, %s/%s\n", b.Servers[0], name, runtime.Version(), runtime.NumCPU(), runtime.GOOS, runtime.GOARCH)
	return b, nil
}

// Serves notes a server that took part, by name and version.
func (b *Bench) Serves(server string) {
	if !slices.Contains(b.Servers, server) {
		b.Servers = append(b.Servers, server)
	}
}

// Close stops our own server, or removes this run's keys from one that outlives it.
func (b *Bench) Close(ctx context.Context) error {
	var err error
	if b.own == nil {
		err = b.deleteKeys(ctx)
	}
	err = errors.Join(err, b.Admin.Close())
	if b.own != nil {
		b.own.Kill()
	}
	return errors.Join(err, os.RemoveAll(b.Dir))
}

func (b *Bench) deleteKeys(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	// Holdfast puts its namespace into a hash tag, so a brace comes first.
	keys := b.Admin.Scan(ctx, 0, "*"+b.prefix+"*", 1000).Iterator()
	var err error
	for keys.Next(ctx) && err == nil {
		err = b.Admin.Unlink(ctx, keys.Val()).Err()
	}
	return errors.Join(err, keys.Err())
}

// Placement is the cores of the processes that call, of the store and of the servers, negative
// numbers if the kernel decides.
type Placement struct {
	Callers, Store, Servers int
	Note                    string
}

// The values of -place.
const (
	PlaceFree  = "free"
	PlaceNear  = "near"
	PlaceApart = "apart"
)

func (b *Bench) Places(subject string) Placement {
	mine, its, why := b.TwoCores()
	place := b.Place
	if place == "" {
		place = map[string]string{"shared": PlaceNear}[subject]
	}
	switch {
	case why != "":
		return Placement{-1, -1, -1, why}
	case place == PlaceNear:
		return Placement{mine, mine, its, fmt.Sprintf("-place %s: the processes and the store on core %d, the servers on core %d", place, mine, its)}
	case place == PlaceApart:
		return Placement{mine, its, its, fmt.Sprintf("-place %s: the processes on core %d, the store and the servers on core %d", place, mine, its)}
	}
	return Placement{-1, -1, -1, "-place " + PlaceFree + ": the kernel decides what runs where"}
}

// TwoCores returns a core for the callers and one for the callees, or negative numbers and why not.
func (b *Bench) TwoCores() (mine, its int, why string) {
	list, err := cores()
	switch {
	case !b.Pin:
		why = "nothing is pinned (-pin=false)"
	case err != nil:
		why = fmt.Sprintf("nothing is pinned: %v", err)
	case len(list) < 2:
		why = "nothing is pinned: there is only one core"
	default:
		return list[0], list[1], ""
	}
	return -1, -1, why
}

// Placed calls f, on a core unless its number is negative. A process that f starts stays there.
func Placed(core int, f func() error) error {
	if core < 0 {
		return f()
	}
	return onCore(core, f)
}
