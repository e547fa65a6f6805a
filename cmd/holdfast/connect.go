package main

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	driver "github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/fallback/mysql"
	"github.com/holdfast-go/holdfast/fallback/postgres"
	"github.com/holdfast-go/holdfast/fallback/redisarbiter"
	"github.com/holdfast-go/holdfast/fallback/sqlite"
	"github.com/holdfast-go/holdfast/peer"
)

// noNotices has a connection not ask for notices of maintenance: a command is over before there is
// one, and at a slow server each question takes its time.
var noNotices = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}

// dial returns a client of the Redis server that a URL names. It does no I/O.
func dial(u url.URL) (redis.UniversalClient, error) {
	scheme, kind, _ := strings.Cut(u.Scheme, "+")
	u.Scheme = scheme
	switch kind {
	case "":
		o, err := redis.ParseURL(u.String())
		if err != nil {
			return nil, fmt.Errorf("--url: %w", err)
		}
		o.ContextTimeoutEnabled, o.MaxRetries, o.MaintNotificationsConfig = true, 1, noNotices
		return redis.NewClient(o), nil
	case "cluster":
		o, err := redis.ParseClusterURL(u.String())
		if err != nil {
			return nil, fmt.Errorf("--url: %w", err)
		}
		o.ContextTimeoutEnabled, o.MaintNotificationsConfig = true, noNotices
		return redis.NewClusterClient(o), nil
	case "sentinel":
		o, err := redis.ParseFailoverURL(u.String())
		if err != nil {
			return nil, fmt.Errorf("--url: %w", err)
		}
		o.ContextTimeoutEnabled = true
		return redis.NewFailoverClient(o), nil
	}
	return nil, fmt.Errorf("--url: %s+%s is neither a cluster nor Sentinel", scheme, kind)
}

// quiet keeps go-redis's log lines away from the terminal: each failure is an error as well.
type quiet struct{}

func (quiet) Printf(context.Context, string, ...any) {}

// An arbiter is that of a URL.
type arbiter struct {
	fallback.Arbiter
	close func() error
	redis redis.UniversalClient // nil: it is no Redis
}

// Describe implements [fallback.Describer], as each arbiter of this command does.
func (a *arbiter) Describe(ctx context.Context, namespace string) (fallback.Settings, error) {
	return a.Arbiter.(fallback.Describer).Describe(ctx, namespace)
}

// An opener makes arbiters of URLs. It does no I/O.
type opener struct {
	schemes []string
	usage   string // of the schemes
	open    func(s *settings, u url.URL) (*arbiter, error)
}

// openers are all kinds of arbiters that the command knows.
var openers = []opener{
	{
		[]string{"redis", "rediss", "unix", "redis+cluster", "rediss+cluster", "redis+sentinel", "rediss+sentinel"},
		"redis://, rediss:// or unix:// for one server, redis+cluster://, redis+sentinel://host:26379?master_name=NAME", openRedis,
	},
	{[]string{"postgres", "postgresql"}, "postgres://user:password@host/database?table=holdfast", openPostgres},
	{[]string{"mysql"}, "mysql://user:password@host/database?table=holdfast", openMySQL},
	{[]string{"sqlite"}, "sqlite:///path/to/file", openSQLite},
}

// schemes lists the usage of all schemes of URLs.
func schemes() string {
	var all []string
	for _, o := range openers {
		all = append(all, o.usage)
	}
	return strings.Join(all, ", ")
}

func (s *settings) arbiter() (*arbiter, error) {
	u, err := url.Parse(s.url)
	if err != nil {
		return nil, errors.New("--url is no URL, such as redis://user:password@redis:6379/0") // it may have a password in it
	}
	for _, o := range openers {
		if slices.Contains(o.schemes, u.Scheme) {
			return o.open(s, *u)
		}
	}
	return nil, fmt.Errorf("--url has the scheme %q, which is none of %s", u.Scheme, schemes())
}

func openRedis(s *settings, u url.URL) (*arbiter, error) {
	redis.SetLogger(quiet{})
	c, err := dial(u)
	if err != nil {
		return nil, err
	}
	return &arbiter{redisarbiter.New(c, &redisarbiter.Options{Replicas: s.replicas, AllReplicas: s.allReplicas}), c.Close, c}, nil
}

func openPostgres(_ *settings, u url.URL) (*arbiter, error) {
	config, o, err := postgresConfig(u)
	if err != nil {
		return nil, err
	}
	return &arbiter{postgres.New(config, o), func() error { return nil }, nil}, nil
}

// postgresConfig takes the table and mute out of the URL, which the server would refuse.
func postgresConfig(u url.URL) (config *pgxpool.Config, o *postgres.Options, err error) {
	o = &postgres.Options{Conns: 1}
	var mute string
	u.RawQuery, o.Table = cut(u.RawQuery, "table")
	u.RawQuery, mute = cut(u.RawQuery, "mute")
	if o.Mute, err = isTrue("mute", mute); err != nil {
		return nil, nil, fmt.Errorf("--url: %w", err)
	}
	if config, err = pgxpool.ParseConfig(u.String()); err != nil {
		return nil, nil, fmt.Errorf("--url: %w", err) // pgx leaves the password out
	}
	return config, o, nil
}

// isTrue reads a parameter, which may be missing.
func isTrue(name, text string) (bool, error) {
	is, err := strconv.ParseBool(cmp.Or(text, "false"))
	if err != nil {
		return false, fmt.Errorf("%s=%s is neither true nor false", name, text)
	}
	return is, nil
}

// cut returns a query without a parameter, and its value. The rest stays as it is: + is no space
// for libpq, and so for pgx.
func cut(query, name string) (rest, value string) {
	all := slices.DeleteFunc(strings.Split(query, "&"), func(pair string) bool {
		text, found := strings.CutPrefix(pair, name+"=")
		if !found {
			return false
		}
		var err error
		value, err = url.PathUnescape(text)
		return err == nil
	})
	return strings.Join(all, "&"), value
}

func openMySQL(_ *settings, u url.URL) (*arbiter, error) {
	config, o, err := parseMySQL(u)
	if err != nil {
		return nil, fmt.Errorf("--url: %w", err) // the driver leaves the password out
	}
	return &arbiter{mysql.New(config, o), func() error { return nil }, nil}, nil
}

// parseMySQL takes the table, durable and the socket out of the URL; other parameters are the
// driver's.
func parseMySQL(u url.URL) (*driver.Config, *mysql.Options, error) {
	q := u.Query()
	o := &mysql.Options{Conns: 1, Table: q.Get("table")}
	c := driver.NewConfig()
	c.User = u.User.Username()
	c.Passwd, _ = u.User.Password()
	c.Net, c.Addr, c.DBName = "tcp", u.Host, strings.Trim(u.Path, "/")
	if socket := q.Get("socket"); socket != "" {
		c.Net, c.Addr = "unix", socket
	}
	var err error
	if o.Durable, err = isTrue("durable", q.Get("durable")); err != nil {
		return nil, nil, err
	}
	for _, name := range []string{"table", "durable", "socket"} {
		q.Del(name)
	}
	config, err := driver.ParseDSN(c.FormatDSN() + "?" + plain.Replace(q.Encode())) // a DSN of defaults has no parameters
	return config, o, err
}

// plain undoes the escapes that the driver does not: it takes charsets, with commas between them,
// and durations, as "100µs", as they are. All others it unescapes, and they may have these
// characters, too.
var plain = strings.NewReplacer("%2C", ",", url.QueryEscape("µ"), "µ", url.QueryEscape("μ"), "μ")

// openSQLite wants a file that is there: Attach would make one.
func openSQLite(_ *settings, u url.URL) (*arbiter, error) {
	path := u.Path
	if u.Host != "" || path == "" {
		return nil, errors.New("--url: give the file's whole path after three slashes: sqlite:///var/lib/shop/locks.db")
	}
	if _, err := os.Stat(path); err != nil {
		return nil, fmt.Errorf("--url: %w: is this the application's file, on this machine?", err)
	}
	return &arbiter{sqlite.New(path, nil), func() error { return nil }, nil}, nil
}

// cluster has the options for streams to the nodes.
func (s *settings) cluster() (*coord.Cluster, error) {
	if s.cert == "" && s.key == "" && s.authority == "" {
		return s.sharedKeys()
	}
	if s.keys != "" {
		return nil, errors.New("--peer-keys and --peer-cert: nodes have one of them")
	}
	config, err := peer.Files(s.cert, s.key, s.authority, s.tls)
	if err != nil {
		return nil, fmt.Errorf("--peer-cert, --peer-key, --peer-ca, --peer-name: %w", err)
	}
	return &coord.Cluster{PeerTLS: config}, nil
}

// sharedKeys has the option for streams to nodes with PeerKeys, nil without --peer-keys.
func (s *settings) sharedKeys() (*coord.Cluster, error) {
	if s.keys == "" {
		return nil, nil
	}
	text, err := os.ReadFile(s.keys)
	if err != nil {
		return nil, fmt.Errorf("--peer-keys: %w", err)
	}
	all := [][]byte{} // of an empty file: an error, too
	for i, line := range strings.Fields(string(text)) {
		key, err := base64.StdEncoding.DecodeString(line)
		if err != nil {
			return nil, fmt.Errorf("--peer-keys: key %d of %s is not in base64", i+1, s.keys)
		}
		all = append(all, key)
	}
	return &coord.Cluster{PeerKeys: all}, nil
}

// callTimeout is for how long one call of the arbiter or of a node may take. A call of the arbiter
// may be two trips to the server and a new connection, so a slow server needs more than the
// default.
func (s *settings) callTimeout() time.Duration {
	return min(max(s.timeout/4, time.Second), 5*time.Second)
}

// observe starts an observer. done ends it.
func (s *settings) observe(ctx context.Context) (c *coord.Coordinator, done func(), err error) {
	a, err := s.arbiter()
	if err != nil {
		return nil, nil, err
	}
	cluster, err := s.cluster()
	if err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	c, err = coord.New(ctx, a.Arbiter, &coord.Options{Namespace: s.namespace, Name: s.name, Observe: true, CallTimeout: s.callTimeout(), Cluster: cluster})
	if err != nil {
		_ = a.close()
		return nil, nil, s.explain(err)
	}
	return c, func() {
		_ = c.Close(context.Background())
		_ = a.close()
	}, nil
}

// explain adds advice to an error.
func (s *settings) explain(err error) error {
	switch {
	case errors.Is(err, fallback.ErrNoNamespace):
		return fmt.Errorf("no process has used the namespace %q at %s: give the application's coord.Options.Namespace by --namespace: %w",
			s.namespace, s.place(), err)
	case errors.Is(err, coord.ErrUnavailable):
		return fmt.Errorf("%w: is %s the arbiter? holdfast doctor tells more", err, s.place())
	}
	return err
}

// place returns the URL without the parts that may be secret: the query has the password where
// another server's is in front, or pgx has it.
func (s *settings) place() string {
	u, err := url.Parse(s.url)
	if err != nil {
		return "--url"
	}
	u.User, u.RawQuery, u.Fragment = nil, "", ""
	return u.String()
}

// adviceOnly prints the advice about the arbiter, and the errors of a log, such as that it is not
// fit for locks: else two processes may have the lock.
type adviceOnly struct{ slog.Handler }

func (adviceOnly) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelWarn }

func (adviceOnly) Handle(_ context.Context, r slog.Record) error {
	text := ""
	if r.Level >= slog.LevelError {
		text = strings.TrimPrefix(r.Message, "holdfast: ")
	}
	for a := range r.Attrs {
		switch {
		case a.Key == "advice":
			text = a.Value.String()
		case a.Key == "error" && text != "":
			text += ": " + a.Value.String()
		}
	}
	if text != "" {
		inBackground(func() { fmt.Fprintln(os.Stderr, "holdfast:", printable(text)) })
	}
	return nil
}

func (h adviceOnly) WithAttrs([]slog.Attr) slog.Handler { return h }
func (h adviceOnly) WithGroup(string) slog.Handler      { return h }

// longest is the Grace of a member in a namespace with a longer one: the default. The namespace
// would keep a longer one for as long as commands come and go, even if no process of the
// application needs it.
const longest = 12 * time.Second

// fit gives options times that fit a Grace.
func (s *settings) fit(o *coord.Options, grace time.Duration) {
	o.Grace, o.SessionTTL = grace, grace*5/6
	s.margin = o.SessionTTL / 10
}

// member starts a process with a session, which locks at the arbiter. Its Grace is not longer than
// that of the namespace, so that no process has to take over another one for it. done gives
// everything back.
func (s *settings) member(ctx context.Context) (c *coord.Coordinator, done func(), err error) {
	a, err := s.arbiter()
	if err != nil {
		return nil, nil, err
	}
	o := &coord.Options{Namespace: s.namespace, Name: s.name, LongHold: -1, LongWait: -1, Logger: slog.New(adviceOnly{slog.DiscardHandler})}
	s.margin = time.Second // the default
	found, err := a.Describe(ctx, s.namespace)
	switch {
	case err == nil:
		o.Partitions = found.Partitions
		s.fit(o, min(found.Grace, longest))
	case !errors.Is(err, fallback.ErrNoNamespace):
		_ = a.close()
		return nil, nil, s.explain(fmt.Errorf("%w: %w", coord.ErrUnavailable, err))
	}
	c, err = coord.New(ctx, a.Arbiter, o)
	if errors.Is(err, fallback.ErrRefused) && found.Grace > o.Grace { // a slow store may want longer times: fallback.RecordsOptions.MinLease
		s.fit(o, found.Grace)
		c, err = coord.New(ctx, a.Arbiter, o)
	}
	if err != nil {
		_ = a.close()
		return nil, nil, s.explain(err)
	}
	return c, func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		_ = c.Close(ctx)
		_ = a.close()
	}, nil
}
