package redisarbiter

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/fallback"
)

// firstLook is the servers' answers at the start. A slow server is asked as few times as possible.
type firstLook struct {
	guarded bool // every server tells its name
	kind    kind
	mark    *redis.StringCmd // the format mark; nil: it was not asked for
}

// checkServers asks every server that may hold a record whether it is fit. A single server is asked
// for the format mark, the field f of the hash, in the same round trip. One that observes takes no
// locks, so it may look at a server that evicts them.
func checkServers(ctx context.Context, c redis.UniversalClient, hash string, observes bool) (look firstLook, err error) {
	switch c := c.(type) {
	case *redis.ClusterClient:
		look = firstLook{guarded: true, kind: clustered}
		var mu sync.Mutex // protects look: the masters are asked concurrently
		err = c.ForEachMaster(ctx, func(ctx context.Context, m *redis.Client) error {
			g, err := checkServer(ctx, m, observes, nil)
			mu.Lock()
			defer mu.Unlock()
			look.guarded = look.guarded && g
			return err
		})
		if errors.Is(err, errReplica) {
			c.ReloadState(ctx) // for the next time
		}
		return look, err
	case *redis.Client:
		var cluster *redis.StringCmd
		look.guarded, err = checkServer(ctx, c, observes, func(pipe redis.Pipeliner) {
			cluster, look.mark = pipe.Info(ctx, "cluster"), pipe.HGet(ctx, hash, "f")
		})
		if err == nil && parseInfo(cluster.Val())["cluster_enabled"] == "0" {
			look.kind = single
		}
		return look, err
	default:
		look.guarded, err = checkServer(ctx, c, observes, nil)
		return look, err
	}
}

// kind says how a namespace's keys are spread over servers.
type kind int

const (
	unknown   kind = iota // a server or proxy that does not say
	single                // one server has all keys
	clustered             // the client knows which server has a slot
)

// loadAll makes every server know the scripts. A digest is the same everywhere.
func loadAll(ctx context.Context, c redis.UniversalClient, x *scripts) (digests [scriptCount]string, err error) {
	cluster, ok := c.(*redis.ClusterClient)
	if !ok {
		return x.load(ctx, c)
	}
	var mu sync.Mutex // protects digests: the masters are asked concurrently
	err = cluster.ForEachMaster(ctx, func(ctx context.Context, m *redis.Client) error {
		d, err := x.load(ctx, m)
		mu.Lock()
		defer mu.Unlock()
		digests = d
		return err
	})
	return digests, err
}

// checkServer asks one server, and more, if that is not nil, in the same round trip.
func checkServer(ctx context.Context, c redis.Cmdable, observes bool, more func(redis.Pipeliner)) (guarded bool, err error) {
	var clock *redis.TimeCmd
	info, err := readInfo(ctx, c, func(pipe redis.Pipeliner) {
		clock = pipe.Time(ctx)
		if more != nil {
			more(pipe)
		}
	})
	if err != nil {
		return false, err
	}
	if guarded, err = checkInfo(info); observes && errors.Is(err, errEvicts) {
		guarded, err = tellsName(info), nil
	}
	if err != nil {
		return guarded, err
	}
	return guarded, checkClock(clock)
}

// readInfo returns a server's INFO. If INFO is not permitted, it uses the answers of other
// commands: HELLO, which is always permitted, and CONFIG, if it is. The commands of more, if it is
// not nil, are sent in the same round trip.
func readInfo(ctx context.Context, c redis.Cmdable, more func(redis.Pipeliner)) (map[string]string, error) {
	var text strings.Builder
	var told []*redis.StringCmd
	_, failed := c.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		for _, section := range []string{"server", "replication", "memory"} {
			told = append(told, pipe.Info(ctx, section))
		}
		if more != nil {
			more(pipe)
		}
		return nil
	})
	for _, cmd := range told {
		s, err := cmd.Result()
		if s == "" && err == nil {
			err = failed // there was no connection: the commands do not know
		}
		if err == nil {
			text.WriteString(s)
			continue
		}
		e, answered := errors.AsType[redis.Error](err)
		switch {
		case answered && strings.HasPrefix(e.Error(), "NOPERM"):
			return otherInfo(ctx, c)
		case answered && forGood(e.Error()): // an embedded server that has no such section: it works, but its failover is not noticed
			return map[string]string{}, nil
		}
		return nil, err
	}
	return parseInfo(text.String()), nil
}

// notPermitted is set in the info of a server that does not permit INFO.
const notPermitted = "INFO is not permitted"

func otherInfo(ctx context.Context, c redis.Cmdable) (map[string]string, error) {
	pipe := c.Pipeline()
	hello := pipe.Do(ctx, "HELLO")
	config := pipe.ConfigGet(ctx, "maxmemory-policy")
	if _, err := pipe.Exec(ctx); err != nil {
		if _, answered := errors.AsType[redis.Error](err); !answered {
			return nil, err
		}
	}
	info := map[string]string{notPermitted: "yes", "maxmemory_policy": config.Val()["maxmemory-policy"]}
	tell := func(key, value any) {
		switch key {
		case "version":
			info["redis_version"], _ = value.(string)
		case "role":
			info["role"], _ = value.(string)
		}
	}
	switch v := hello.Val().(type) {
	case map[any]any:
		for key, value := range v {
			tell(key, value)
		}
	case []any:
		for i := 0; i+1 < len(v); i += 2 {
			tell(v[i], v[i+1])
		}
	}
	return info, nil
}

// checkClock refuses a server with a clock far ahead of this process's. A new namespace has no
// epoch yet that would tell.
func checkClock(told *redis.TimeCmd) error {
	theirs, err := told.Result()
	if err != nil {
		if _, answered := errors.AsType[redis.Error](err); answered {
			return nil // the scripts will have the error
		}
		return err
	}
	return compareClocks(theirs, time.Now())
}

func compareClocks(theirs, ours time.Time) error {
	if theirs.After(ours.AddDate(1, 0, 0)) {
		return fmt.Errorf("%w: the server's clock is more than a year ahead of this process's: it says %s, this one %s: set the wrong one",
			fallback.ErrRefused, theirs.UTC().Format(time.DateOnly), ours.UTC().Format(time.DateOnly))
	}
	return nil
}

// errEvicts says that the server may delete keys of its own accord.
var errEvicts = fmt.Errorf("%w: maxmemory-policy", fallback.ErrRefused)

var errReplica = fmt.Errorf("fallback: the server is a %w replica", fallback.ErrReadOnly)

func checkInfo(info map[string]string) (guarded bool, err error) {
	if v := info["redis_version"]; v != "" && !atLeast(v, 6, 2) {
		return false, fmt.Errorf("%w: redis_version is %s, 6.2 or later is needed", fallback.ErrRefused, v)
	}
	if r := info["role"]; r != "" && r != "master" {
		// It may have been deposed a moment ago, and the client not know of the new primary yet.
		return false, fmt.Errorf("%w: role is %s: give the client its primary", errReplica, r)
	}
	if p := info["maxmemory_policy"]; strings.HasPrefix(p, "allkeys-") {
		return false, fmt.Errorf("%w is %s, so the server may evict locks: use noeviction or volatile-*", errEvicts, p)
	}
	return tellsName(info), nil
}

// tellsName reports whether a failover would be noticed.
func tellsName(info map[string]string) bool { return len(info["master_replid"]) == 40 }

func parseInfo(text string) map[string]string {
	info := make(map[string]string)
	for line := range strings.Lines(text) {
		if k, v, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			info[k] = v
		}
	}
	return info
}

func atLeast(version string, want ...int) bool {
	fields := strings.Split(version, ".")
	for i, w := range want {
		is := 0
		if i < len(fields) {
			is, _ = strconv.Atoi(fields[i])
		}
		if is != w {
			return is > w
		}
	}
	return true
}

// forGood reports whether an answer to INFO says that it will never be told. A server that is busy
// or loads its data, or a password that is wrong, must not decide whether a namespace is guarded.
func forGood(text string) bool {
	if errors.Is(refused(errors.New(text)), errDenied) {
		return false
	}
	return strings.HasPrefix(text, "NOPERM") || strings.Contains(text, "is not supported") || // as miniredis puts it
		strings.HasPrefix(text, "ERR ") && !strings.Contains(text, "max number of clients")
}

var errPermission = fmt.Errorf("%w: %w", fallback.ErrRefused, fallback.ErrDenied)

// refusals are answers of a server that another try does not change, by a part of their text, with
// the setting to look at. A script wraps the text of the command that failed in it.
var refusals = []struct {
	text, setting string
	is            error
}{
	{"NOPERM", "the user's ACL lacks a permission", errPermission},
	{"The user executing the script can't", "the user's ACL lacks a permission", errPermission}, // 6.2 and 7.0, in a script
	{"ACL failure in script", "the user's ACL lacks a permission", errPermission},               // 7.2 and later
	{"OOM command not allowed", "the server has reached maxmemory", fallback.ErrFull},
	{"MISCONF", "the server stopped accepting writes (stop-writes-on-bgsave-error)", fallback.ErrRefused},
	{"unknown command", "the server lacks a command", fallback.ErrRefused},
	{"FARCLOCK", fallback.ClockSetting, fallback.ErrRefused},
	{"NOEPOCH", fallback.EpochSetting, fallback.ErrRefused},
}

// errDenied says that the server does not let the client in. A password that is rotated may be
// right again soon, so this is an outage like any other, but for a process that starts.
var errDenied = fmt.Errorf("fallback: %w: the server does not let the client in", fallback.ErrDenied)

// denials are answers of such a server.
var denials = []struct{ text, setting string }{
	{"NOAUTH", noPassword},
	{"Protocol error: unauthenticated", noPassword}, // to a long command
	{"WRONGPASS", wrongPassword},
	{"invalid password", wrongPassword},
	{"invalid username-password pair", wrongPassword},
}

const (
	noPassword    = "the server wants a password: set it in the client's options"
	wrongPassword = "user name or password is wrong: set those of the server in the client's options"
)

// refusal marks the error of a process that starts, and is not let in, as ErrRefused.
type refusal struct{ err error }

// Error begins with the text of ErrRefused, with one prefix for both.
func (r refusal) Error() string {
	return fallback.ErrRefused.Error() + ": " + strings.TrimPrefix(r.err.Error(), "fallback: ")
}

func (r refusal) Unwrap() []error { return []error{fallback.ErrRefused, r.err} }

// atStart makes errDenied a refusal: at work it is an outage.
func atStart(err error) error {
	if errors.Is(err, errDenied) {
		return refusal{err}
	}
	return err
}

// refused marks such an answer as [ErrRefused], or as errDenied, and that of a replica as
// errReplica.
func refused(err error) error {
	if err == nil || errors.Is(err, fallback.ErrRefused) || errors.Is(err, errDenied) || errors.Is(err, errReplica) {
		return err
	}
	text := err.Error()
	for _, d := range denials {
		if strings.Contains(text, d.text) {
			return fmt.Errorf("%w: %s: %w", errDenied, d.setting, err)
		}
	}
	for _, r := range refusals {
		if strings.Contains(text, r.text) {
			return fmt.Errorf("%w: %s: %w", r.is, r.setting, err)
		}
	}
	if strings.Contains(text, "READONLY") {
		return fmt.Errorf("%w: %w", errReplica, err)
	}
	return err
}
