//go:build unix

package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/redistest"
)

// servers are the present primary and its possible successor. Nodes find the primary's address in a
// file.
type servers struct {
	dir     string
	primary *redistest.Server
	replica *redistest.Server
	hosts   *hosts // nil: on the loopback interface
	durable bool   // each write is on the server's disk before it is answered
}

func newServers(ctx context.Context, dir string, h *hosts, durable bool) (*servers, error) {
	x := &servers{dir: dir, hosts: h, durable: durable}
	if err := x.fresh(); err != nil || h != nil {
		return x, err
	}
	return x, x.follow(ctx)
}

// start starts a server that has nothing.
func (x *servers) start() (*redistest.Server, error) {
	dir, err := os.MkdirTemp(x.dir, "redis")
	if err != nil {
		return nil, err
	}
	if x.hosts != nil {
		return redistest.NewAt(x.hosts.redis(), dir)
	}
	args := []string{"--repl-diskless-sync-delay", "0"}
	if x.durable {
		args = append(args, "--appendonly", "yes", "--appendfsync", "always")
	}
	return redistest.New(dir, args...)
}

// fresh makes a server that has nothing the primary.
func (x *servers) fresh() error {
	s, err := x.start()
	if err != nil {
		return err
	}
	return x.point(s)
}

func (x *servers) file() string { return filepath.Join(x.dir, "primary") }

// point makes nodes that connect from now on go to a server.
func (x *servers) point(s *redistest.Server) error {
	x.primary = s
	next := x.file() + ".next"
	if err := os.WriteFile(next, []byte(s.Addr), 0o600); err != nil {
		return err
	}
	return os.Rename(next, x.file())
}

// follow starts a replica of the primary, and waits until it has everything.
func (x *servers) follow(ctx context.Context) (err error) {
	if x.replica, err = x.start(); err != nil {
		return err
	}
	if err := x.replica.Replicate(ctx, x.primary); err != nil {
		return err
	}
	for {
		info, err := x.info(ctx, x.replica, "replication")
		if err != nil {
			return err
		}
		if strings.Contains(info, "master_link_status:up") {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// failOver kills the primary, and promotes its replica. A durable one gets a replica of its own
// then.
func (x *servers) failOver(ctx context.Context) error {
	x.primary.Kill()
	if err := x.replica.Replicate(ctx, nil); err != nil {
		return err
	}
	s := x.replica
	x.replica = nil
	if err := x.point(s); err != nil || !x.durable {
		return err
	}
	return x.follow(ctx)
}

func (x *servers) info(ctx context.Context, s *redistest.Server, section string) (string, error) {
	c := redis.NewClient(&redis.Options{Addr: s.Addr})
	defer c.Close()
	return c.Info(ctx, section).Result()
}

// used returns the processor time that the primary has used.
func (x *servers) used(ctx context.Context) (time.Duration, error) {
	info, err := x.info(ctx, x.primary, "cpu")
	if err != nil {
		return 0, err
	}
	var all float64
	for _, name := range []string{"used_cpu_sys:", "used_cpu_user:"} {
		_, text, ok := strings.Cut(info, name)
		text, _, _ = strings.Cut(text, "\r\n")
		seconds, err := strconv.ParseFloat(text, 64)
		if !ok || err != nil {
			return 0, fmt.Errorf("INFO cpu: no %s", name)
		}
		all += seconds
	}
	return time.Duration(all * float64(time.Second)), nil
}

func (x *servers) end() {
	for _, s := range []*redistest.Server{x.primary, x.replica} {
		if s != nil {
			s.Kill()
		}
	}
}
