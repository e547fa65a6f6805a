package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"github.com/holdfast-go/holdfast/internal/redistest"
)

// What go-redis would print here is what its calls return as errors anyway.
func init() { logging.Disable() }

// bench is one run of the command: the server, and what all subjects need.
type bench struct {
	config
	stdout, stderr io.Writer
	admin          *redis.Client
	addr           string
	prefix         string // no other program's keys begin like this, or like "{" and this
	dir            string // for the files of this run
	own            *redistest.Server
	pid            int       // of the server; 0 if it is not ours
	progress       *progress // may be nil
	servers        []string  // with their versions
}

// newBench starts the server, or makes sure that the one given answers.
func newBench(ctx context.Context, cfg config, stdout, stderr io.Writer) (*bench, error) {
	b := &bench{config: cfg, stdout: stdout, stderr: stderr, addr: cfg.redis}
	b.prefix = "hfbench" + strings.ToLower(rand.Text()[:8])
	var err error
	if b.dir, err = os.MkdirTemp("", "holdfast-bench-"); err != nil {
		return nil, err
	}
	if b.profile != "" {
		if err := os.MkdirAll(b.profile, 0o755); err != nil {
			return nil, errors.Join(err, os.RemoveAll(b.dir))
		}
	}
	if b.addr == "" {
		// Durability as redis-server has it by default does not matter here: neither side waits for the disk.
		if b.own, err = redistest.New(b.dir); err != nil {
			return nil, errors.Join(fmt.Errorf("no redis-server (give a running one by -redis): %w", err), os.RemoveAll(b.dir))
		}
		b.addr = b.own.Addr
	}
	b.admin = redis.NewClient(&redis.Options{Addr: b.addr})
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	info, err := b.info(ctx, "server")
	if err != nil {
		return nil, errors.Join(fmt.Errorf("no Redis at %s: %w", b.addr, err), b.close(context.WithoutCancel(ctx)))
	}
	if b.own != nil {
		_, _ = fmt.Sscan(info["process_id"], &b.pid)
	}
	name := "started for this run"
	if b.own == nil {
		name = "at " + b.addr
	}
	b.servers = []string{"redis-server " + info["redis_version"]}
	fmt.Fprintf(stdout, "redis-server %s %s; %s\n", info["redis_version"], name, machine())
	return b, nil
}

// serves notes a server that took part, by name and version.
func (b *bench) serves(server string) {
	if !slices.Contains(b.servers, server) {
		b.servers = append(b.servers, server)
	}
}

// use notes those that are running.
func (b *bench) use(all *servers) {
	for _, name := range slices.Sorted(maps.Keys(all.running)) {
		b.serves(all.running[name].name)
	}
}

// close stops our own server, or removes this run's keys from one that outlives it.
func (b *bench) close(ctx context.Context) error {
	var err error
	if b.own == nil {
		err = b.deleteKeys(ctx)
	}
	err = errors.Join(err, b.admin.Close())
	if b.own != nil {
		b.own.Kill()
	}
	return errors.Join(err, os.RemoveAll(b.dir))
}

func (b *bench) deleteKeys(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	// Holdfast puts its namespace into a hash tag, so a brace comes first.
	keys := b.admin.Scan(ctx, 0, "*"+b.prefix+"*", 1000).Iterator()
	var err error
	for keys.Next(ctx) && err == nil {
		err = b.admin.Unlink(ctx, keys.Val()).Err()
	}
	return errors.Join(err, keys.Err())
}

// machine says what this runs on.
func machine() string {
	return fmt.Sprintf("%s, %d cores, %s", runtime.Version(), runtime.NumCPU(), runtime.GOOS+"/"+runtime.GOARCH)
}

// info returns the fields of a section of INFO.
func (b *bench) info(ctx context.Context, section string) (map[string]string, error) {
	return info(ctx, b.admin, section)
}

func info(ctx context.Context, c *redis.Client, section string) (map[string]string, error) {
	text, err := c.Info(ctx, section).Result()
	if err != nil {
		return nil, err
	}
	fields := make(map[string]string)
	for line := range strings.Lines(text) {
		if k, v, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			fields[k] = v
		}
	}
	return fields, nil
}

// commandStat is what the server says about one command since it started.
type commandStat struct{ calls, usec int64 }

func (s commandStat) since(before commandStat) commandStat {
	return commandStat{s.calls - before.calls, s.usec - before.usec}
}

// mean is the time that the server took for one.
func (s commandStat) mean() time.Duration {
	if s.calls == 0 {
		return 0
	}
	return time.Duration(s.usec) * time.Microsecond / time.Duration(s.calls)
}

// commandStats reads the statistics of a command. Those of EVALSHA tell how many scripts were called, because a script
// cannot call another: for all other commands the server does not tell a client's from a script's.
func commandStats(ctx context.Context, c *redis.Client, command string) (s commandStat, err error) {
	all, err := info(ctx, c, "commandstats")
	if err != nil {
		return s, err
	}
	if text := all["cmdstat_"+command]; text != "" {
		_, err = fmt.Sscanf(text, "calls=%d,usec=%d", &s.calls, &s.usec)
	}
	return s, err
}
