// Package zookeeper is an arbiter on ZooKeeper, which loses nothing that it has acknowledged.
//
//	connect := func() (*zk.Conn, error) {
//		conn, _, err := zk.Connect(servers, 5*time.Second)
//		return conn, err
//	}
//	c, err := coord.New(ctx, zookeeper.New(connect, nil), &coord.Options{Namespace: "orders"})
//
// README.md lists its costs, and the failures that it survives.
package zookeeper

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/holdfast-go/holdfast/fallback"
)

// Options are the options of [New]. The zero value is valid, and so is a nil pointer.
type Options struct {
	// Root is the znode below which everything is kept. It is made if it is missing, with those
	// above it. Empty: "/holdfast".
	Root string

	// ACL is that of the znodes that are made. Empty: every client may do anything.
	ACL []zk.ACL

	// ColdStart says that a namespace that is missing is new. Without it, one begins with Grace (12
	// s by default): its records may have been deleted while processes use it. For tests, demos and
	// development, and for tools that make a namespace before processes use it.
	ColdStart bool
}

// New returns an arbiter on an ensemble. It does no I/O. opts may be nil. The arbiter is Durable,
// needs no clock of the store's, and has no messages ([fallback.Mute]).
//
// connect makes a connection. It is called in a goroutine of its own when a namespace is attached,
// and again when a connection has given no answer for seconds. It may block until the ensemble
// answers, as [zk.Conn.AddAuth] does. The arbiter closes the connection: with its last namespace,
// or when it takes another one. Sessions of ZooKeeper count for nothing: nothing is lost with one.
func New(connect func() (*zk.Conn, error), opts *Options) fallback.Arbiter {
	return fallback.NewRecords(newStore(connect, opts), recordsOptions(opts))
}

func recordsOptions(opts *Options) *fallback.RecordsOptions {
	return &fallback.RecordsOptions{Durable: true, NoClock: true, ColdStart: opts != nil && opts.ColdStart}
}

func newStore(connect func() (*zk.Conn, error), opts *Options) *store {
	s := &store{connect: connect, root: "/holdfast", acl: zk.WorldACL(zk.PermAll)}
	if opts != nil && opts.Root != "" {
		s.root = opts.Root
	}
	if opts != nil && len(opts.ACL) > 0 {
		s.acl = opts.ACL
	}
	return s
}

const (
	// A server closes the connection of a request above its jute.maxbuffer, which is 1,048,575
	// bytes by default.
	maxBytes = 1_000_000

	// tryFor is for how long a read is tried at first. The next try has another connection, and up
	// to twice the time.
	tryFor = 2 * time.Second

	// silentFor is for how long a connection may have failed only. Servers refuse one that has seen
	// later changes than they have, for ever.
	silentFor = 4 * time.Second

	// atOnce is how many requests of one call are on their way.
	atOnce = 16

	pauseFor = 50 * time.Millisecond
)

// store is the tree below a znode of an ensemble, a [fallback.Records].
type store struct {
	connect func() (*zk.Conn, error)
	root    string
	acl     []zk.ACL

	mu      sync.Mutex // protects the fields below
	opened  int
	link    *link // nil: there is none
	mark    mark
	leaving sync.WaitGroup // links that others took the place of
}

func refusal(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{fallback.ErrRefused}, args...)...)
}

// denied marks the answer of a server that does not let this client in, or refuses it a right.
func denied(err error) error { return fmt.Errorf("%w: %w", fallback.ErrDenied, err) }

func notSent(err error) error { return fmt.Errorf("%w: %w", fallback.ErrNotSent, err) }

// Open implements [fallback.Records]. It makes the mark.
func (s *store) Open(ctx context.Context) error {
	switch {
	case s.connect == nil:
		return refusal("there is no function that connects")
	case !strings.HasPrefix(s.root, "/") || strings.HasSuffix(s.root, "/"):
		return refusal("Root is %q, must begin with a slash, and not end with one", s.root)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	s.opened++
	s.mu.Unlock()
	_, err := s.Load(ctx, nil)
	if err != nil {
		return errors.Join(err, s.Close())
	}
	return nil
}

// Close implements [fallback.Records]. The last one closes the connection, which takes up to three
// seconds if no server answers.
func (s *store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.opened--; s.opened == 0 {
		s.leave()
		s.leaving.Wait()
	}
	return nil
}

// recordPath is that of a record of the server that a mark names. With the mark it is gone.
func (s *store) recordPath(server, key string) string {
	return s.root + "/" + server + "/" + url.PathEscape(key)
}

// Load implements [fallback.Records]. It asks again until it has an answer, is refused, or ctx
// ends.
func (s *store) Load(ctx context.Context, keys []string) (fallback.Look, error) {
	for patience := tryFor; ; patience = min(2*patience, 8*tryFor) {
		look, err := s.try(ctx, patience, keys)
		if err == nil || errors.Is(err, fallback.ErrRefused) {
			return look, err
		}
		if errors.Is(err, errMoved) {
			continue
		}
		select {
		case <-time.After(pauseFor):
		case <-ctx.Done():
			return fallback.Look{}, err
		}
	}
}

// try reads once.
func (s *store) try(ctx context.Context, patience time.Duration, keys []string) (look fallback.Look, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	l, err := s.use(ctx)
	if err != nil {
		return look, err
	}
	begun := time.Now()
	look, err = s.read(ctx, l.conn, keys)
	if s.heard(l, err); err != nil && time.Since(begun) >= patience {
		s.drop(l)
	}
	return look, s.explain(err)
}

var errMoved = errors.New("zookeeper: the session has ended")

// read reads after a barrier: a transaction that changes nothing. ZooKeeper's sync is none, for a
// leader answers that by itself, also one that others have replaced. Later reads of the barrier's
// session are as late as the barrier, at any server: one that is behind does not take the session.
// A later session may be at any.
func (s *store) read(ctx context.Context, conn *zk.Conn, keys []string) (look fallback.Look, err error) {
	session := conn.SessionID()
	m, err := s.barrier(ctx, conn)
	if err != nil {
		return look, err
	}
	look.Server, look.Values = m.server, make([]fallback.Versioned, len(keys))
	errs := inParallel(len(keys), func(i int) error {
		v, err := get(ctx, conn, s.recordPath(m.server, keys[i]))
		if err == nil {
			look.Values[i] = fallback.Versioned{Version: strconv.Itoa(int(v.version)), Value: v.data}
		}
		if errors.Is(err, zk.ErrNoNode) {
			return nil
		}
		return err
	})
	if err := errors.Join(errs...); err != nil {
		return fallback.Look{}, err
	}
	if session == 0 || conn.SessionID() != session {
		return fallback.Look{}, errMoved
	}
	return look, nil
}

// inParallel calls f for each of n indices.
func inParallel(n int, f func(i int) error) []error {
	errs := make([]error, n)
	places := make(chan struct{}, atOnce)
	var all sync.WaitGroup
	for i := range n {
		places <- struct{}{}
		all.Go(func() {
			defer func() { <-places }()
			errs[i] = f(i)
		})
	}
	all.Wait()
	return errs
}

// Swap implements [fallback.Records].
func (s *store) Swap(ctx context.Context, server string, changes []fallback.Change) ([]bool, error) {
	if err := fallback.CheckSizes(changes, maxBytes); err != nil {
		return nil, err
	}
	l, err := s.use(ctx)
	if err != nil {
		return nil, err
	}
	done := make([]bool, len(changes))
	errs := inParallel(len(changes), func(i int) (err error) {
		done[i], err = s.swap(ctx, l.conn, server, changes[i])
		s.heard(l, err)
		return s.explain(err)
	})
	return fallback.Swapped(done, errs)
}

// swap writes one record.
func (s *store) swap(ctx context.Context, conn *zk.Conn, server string, c fallback.Change) (bool, error) {
	path := s.recordPath(server, c.Key)
	_, err := ask(ctx, func() (any, error) {
		if c.Version == "" {
			return conn.Create(path, c.Value, zk.FlagPersistent, s.acl)
		}
		version, err := strconv.ParseInt(c.Version, 10, 32)
		if err != nil || version == -1 { // which is any version
			return nil, refusal("the version %q", c.Version)
		}
		return conn.Set(path, c.Value, int32(version))
	})
	switch {
	case errors.Is(err, zk.ErrBadVersion), errors.Is(err, zk.ErrNodeExists), errors.Is(err, zk.ErrNoNode):
		return false, nil
	}
	return err == nil, err
}

// explain marks errors of calls that were not executed.
func (s *store) explain(err error) error {
	switch {
	case errors.Is(err, zk.ErrNoAuth), errors.Is(err, zk.ErrInvalidACL), errors.Is(err, zk.ErrAuthFailed):
		return refusal("the connection must have the rights to read, write and create below %s: %w", s.root, denied(err))
	case errors.Is(err, zk.ErrNoServer):
		return notSent(err)
	}
	return err
}
