package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"
)

// masters looks at the memory of each master of a Redis Cluster: one that is full has some of the
// partitions.
func (d *doctor) masters(ctx context.Context, a *arbiter) {
	c, ok := a.redis.(*redis.ClusterClient)
	if !ok {
		return
	}
	var mu sync.Mutex // protects all
	var all []*doctor
	err := c.ForEachMaster(ctx, func(ctx context.Context, m *redis.Client) error {
		x, what := &doctor{settings: d.settings}, "memory of "+m.Options().Addr
		if info, err := m.Info(ctx, "memory").Result(); err != nil {
			x.unknown(what, err)
		} else {
			x.memory(what, infoFields(info))
		}
		mu.Lock()
		defer mu.Unlock()
		all = append(all, x)
		return nil
	})
	if err != nil {
		d.warn("memory", "do what the error says", "the masters of the cluster cannot be asked: %v", err)
	}
	slices.SortFunc(all, func(x, y *doctor) int { return strings.Compare(x.all[0].What, y.all[0].What) })
	for _, x := range all {
		d.all = append(d.all, x.all...)
	}
}

// unknown says why INFO told nothing of a server.
func (d *doctor) unknown(what string, err error) {
	if strings.Contains(err.Error(), "NOPERM") {
		d.warn(what, "permit INFO to the user: README has the ACL", "INFO: %v", err)
	} else {
		d.warn(what, "look after that server and the network to it", "it does not answer INFO: %v", err)
	}
}

// memory checks INFO's fields about a server's memory.
func (d *doctor) memory(what string, fields map[string]string) {
	var used, most int64
	_, _ = fmt.Sscan(fields["used_memory"], &used)
	_, _ = fmt.Sscan(fields["maxmemory"], &most)
	evicts := ""
	if policy := fields["maxmemory_policy"]; most > 0 && strings.HasPrefix(policy, "volatile-") {
		evicts = "; when it is full " + policy + " evicts results of coord.Share, and records of periodic jobs and elections that are kept here"
	}
	switch {
	case most > 0 && used >= most*95/100:
		d.fail(what, "free memory or raise maxmemory now: at the limit no new lock is granted; those that are held stay",
			"%d of %d bytes are used, maxmemory-policy %s%s", used, most, fields["maxmemory_policy"], evicts)
	case most > 0 && used >= most*80/100:
		d.warn(what, "free memory or raise maxmemory", "%d of %d bytes are used, maxmemory-policy %s%s", used, most, fields["maxmemory_policy"], evicts)
	default:
		d.ok(what, "%d bytes are used of maxmemory %d (0: no limit)%s", used, most, evicts)
	}
}

// infoFields returns the fields of INFO, by name.
func infoFields(info string) map[string]string {
	fields := make(map[string]string)
	for line := range strings.Lines(info) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			fields[name] = value
		}
	}
	return fields
}
