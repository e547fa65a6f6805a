package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/fallback/redisarbiter"
	"github.com/holdfast-go/holdfast/peer"
)

const schemes = "redis://, rediss:// or unix:// for one server, redis+cluster://, redis+sentinel://host:26379?master_name=NAME"

// dial returns a client of the server that a URL names. It does no I/O.
func dial(text string) (redis.UniversalClient, error) {
	u, err := url.Parse(text)
	if err != nil {
		return nil, errors.New("--url is no URL, such as redis://user:password@redis:6379/0") // it may have a password in it
	}
	scheme, kind, _ := strings.Cut(u.Scheme, "+")
	u.Scheme = scheme
	if scheme != "redis" && scheme != "rediss" && scheme != "unix" {
		return nil, fmt.Errorf("--url has the scheme %q, which is none of %s", u.Scheme, schemes)
	}
	switch kind {
	case "":
		o, err := redis.ParseURL(u.String())
		if err != nil {
			return nil, fmt.Errorf("--url: %w", err)
		}
		o.ContextTimeoutEnabled, o.MaxRetries = true, 1
		return redis.NewClient(o), nil
	case "cluster":
		o, err := redis.ParseClusterURL(u.String())
		if err != nil {
			return nil, fmt.Errorf("--url: %w", err)
		}
		o.ContextTimeoutEnabled = true
		return redis.NewClusterClient(o), nil
	case "sentinel":
		o, err := redis.ParseFailoverURL(u.String())
		if err != nil {
			return nil, fmt.Errorf("--url: %w", err)
		}
		o.ContextTimeoutEnabled = true
		return redis.NewFailoverClient(o), nil
	}
	return nil, fmt.Errorf("--url has the scheme %s+%q, which is none of %s", scheme, kind, schemes)
}

// quiet keeps what go-redis logs away from the terminal: what fails is an error as well.
type quiet struct{}

func (quiet) Printf(context.Context, string, ...any) {}

// an arbiter of a URL.
type arbiter struct {
	*redisarbiter.Arbiter
	client redis.UniversalClient
}

func (s *settings) arbiter() (*arbiter, error) {
	redis.SetLogger(quiet{})
	c, err := dial(s.url)
	if err != nil {
		return nil, err
	}
	return &arbiter{redisarbiter.New(c, &redisarbiter.Options{Replicas: s.replicas}), c}, nil
}

// cluster has the options for streams to the nodes.
func (s *settings) cluster() (*coord.Cluster, error) {
	if s.cert == "" && s.key == "" && s.authority == "" {
		return nil, nil
	}
	config, err := peer.Files(s.cert, s.key, s.authority, s.tls)
	if err != nil {
		return nil, fmt.Errorf("--peer-cert, --peer-key, --peer-ca, --peer-name: %w", err)
	}
	return &coord.Cluster{PeerTLS: config}, nil
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
	c, err = coord.New(ctx, a, &coord.Options{Namespace: s.namespace, Name: s.name, Observe: true, Cluster: cluster})
	if err != nil {
		_ = a.client.Close()
		return nil, nil, s.explain(err)
	}
	return c, func() {
		_ = c.Close(context.Background())
		_ = a.client.Close()
	}, nil
}

// explain adds to an error what to do.
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

// place is the URL without what is secret.
func (s *settings) place() string {
	u, err := url.Parse(s.url)
	if err != nil {
		return "--url"
	}
	return u.Redacted()
}

// member starts a process with a session, which locks at the arbiter. Its times fit those of the namespace, so that no process has to take
// over another Grace for it. done gives everything back.
func (s *settings) member(ctx context.Context) (c *coord.Coordinator, done func(), err error) {
	a, err := s.arbiter()
	if err != nil {
		return nil, nil, err
	}
	o := &coord.Options{Namespace: s.namespace, Name: s.name, LongHold: -1, LongWait: -1}
	found, err := a.Describe(ctx, s.namespace)
	switch {
	case err == nil:
		o.Partitions, o.Grace, o.SessionTTL = found.Partitions, found.Grace, found.Grace*5/6
	case !errors.Is(err, fallback.ErrNoNamespace):
		_ = a.client.Close()
		return nil, nil, s.explain(fmt.Errorf("%w: %w", coord.ErrUnavailable, err))
	}
	if c, err = coord.New(ctx, a, o); err != nil {
		_ = a.client.Close()
		return nil, nil, s.explain(err)
	}
	return c, func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		_ = c.Close(ctx)
		_ = a.client.Close()
	}, nil
}
