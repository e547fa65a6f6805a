package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/oauth2"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback/redisarbiter"
	"github.com/holdfast-go/holdfast/tokens"
)

// A rung is one way to keep tokens.
type rung struct {
	name  string // for -rungs
	title string // for the table
	safe  bool   // it must not lose an account
	open  func(o order, client *redis.Client, web *http.Client) (keeper, error)
}

// A keeper keeps the tokens of one process. Its methods but Close are called by many goroutines.
type keeper interface {
	Token(ctx context.Context, account string) (*oauth2.Token, error)
	Replace(ctx context.Context, account string, t *oauth2.Token) error // after a login
	Close()
}

var rungs = []rung{
	{name: "plain", title: "golang.org/x/oauth2, tokens in Redis", open: openPlain},
	{name: "holdfast", title: "Holdfast", safe: true, open: openHoldfast},
}

func config(o order) *oauth2.Config {
	return &oauth2.Config{
		ClientID: "example", ClientSecret: "secret",
		Endpoint: oauth2.Endpoint{TokenURL: o.Provider + tokenPath, AuthStyle: oauth2.AuthStyleInParams},
	}
}

// openHoldfast makes the parts that a program needs to keep its tokens by Holdfast.
func openHoldfast(o order, client *redis.Client, web *http.Client) (keeper, error) {
	// The namespace is new in every run, so there is nothing that an empty server could have lost.
	locks, err := coord.New(context.Background(), redisarbiter.New(client, &redisarbiter.Options{ColdStart: true}), &coord.Options{
		Namespace: o.Namespace, Partitions: 31,
		SessionTTL: 3 * time.Second, CallTimeout: 500 * time.Millisecond, // so that no worker waits long for a killed one
	})
	if err != nil {
		return nil, err
	}
	opts := &tokens.Options{HTTPClient: web, Backoff: 100 * time.Millisecond}
	if o.Grace {
		opts.ReplayInDoubt = graceTime - 5*time.Second
	}
	k, err := tokens.New(locks, config(o), tokens.NewRedisStore(client, o.Namespace+":token:"), opts)
	return holdfast{k, locks}, err
}

type holdfast struct {
	*tokens.Keeper
	locks *coord.Coordinator
}

func (h holdfast) Close() {
	h.Keeper.Close()
	ctx, cancel := context.WithTimeout(context.Background(), closeTime)
	defer cancel()
	_ = h.locks.Close(ctx)
}

// plain works as many programs do: the tokens are in Redis, and a process that finds one expired
// refreshes it. In a process a ReuseTokenSource of golang.org/x/oauth2 makes sure that this is one
// goroutine. Between processes nothing does.
type plain struct {
	conf      *oauth2.Config
	client    *redis.Client
	web       *http.Client
	namespace string

	mu      sync.Mutex // protects sources
	sources map[string]oauth2.TokenSource
}

func openPlain(o order, client *redis.Client, web *http.Client) (keeper, error) {
	return &plain{conf: config(o), client: client, web: web, namespace: o.Namespace, sources: make(map[string]oauth2.TokenSource)}, nil
}

func (p *plain) Token(_ context.Context, account string) (*oauth2.Token, error) {
	p.mu.Lock()
	s := p.sources[account]
	if s == nil {
		s = oauth2.ReuseTokenSourceWithExpiry(nil, stored{p, account}, life/10)
		p.sources[account] = s
	}
	p.mu.Unlock()
	return s.Token()
}

// stored is the account's token in Redis, refreshed if it has expired there as well.
type stored struct {
	*plain
	account string
}

func (s stored) Token() (*oauth2.Token, error) {
	ctx := context.WithValue(context.Background(), oauth2.HTTPClient, s.web)
	text, err := s.client.Get(ctx, s.key(s.account)).Bytes()
	if err != nil {
		return nil, err
	}
	t := new(oauth2.Token)
	if err := json.Unmarshal(text, t); err != nil {
		return nil, err
	}
	if time.Until(t.Expiry) > life/10 {
		return t, nil
	}
	// From here to Replace is the time in which another process does the same.
	if t, err = s.conf.TokenSource(ctx, &oauth2.Token{RefreshToken: t.RefreshToken}).Token(); err != nil {
		return nil, err
	}
	return t, s.Replace(ctx, s.account, t)
}

func (p *plain) key(account string) string { return p.namespace + ":token:" + account }

func (p *plain) Replace(ctx context.Context, account string, t *oauth2.Token) error {
	text, err := json.Marshal(t)
	if err != nil {
		return err
	}
	return p.client.Set(ctx, p.key(account), text, 0).Err()
}

func (p *plain) Close() {}

// loggedOut reports whether the user has to log in again.
func loggedOut(err error) bool {
	r, ok := errors.AsType[*oauth2.RetrieveError](err)
	return errors.Is(err, tokens.ErrInDoubt) || errors.Is(err, tokens.ErrRejected) || ok && r.ErrorCode == "invalid_grant"
}

// named makes a client tell the provider which worker it is.
type named struct {
	http.RoundTripper
	worker int
}

func (n named) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set(header, strconv.Itoa(n.worker))
	return n.RoundTripper.RoundTrip(r)
}

// findRungs looks up a comma-separated list of names; each may be there once.
func findRungs(list string) (found []rung, err error) {
	for name := range strings.SplitSeq(list, ",") {
		same := func(r rung) bool { return r.name == name }
		i := slices.IndexFunc(rungs, same)
		switch {
		case i < 0:
			return nil, fmt.Errorf("-rungs: no rung %q, only plain,holdfast", name)
		case slices.ContainsFunc(found, same):
			return nil, fmt.Errorf("-rungs: %s is there twice", name)
		}
		found = append(found, rungs[i])
	}
	return found, nil
}
