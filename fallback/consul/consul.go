// Package consul is an arbiter on Consul's key-value store, which loses nothing that it has
// acknowledged.
//
//	client, err := api.NewClient(api.DefaultConfig())
//	c, err := coord.New(ctx, consul.New(client, nil), &coord.Options{Namespace: "orders"})
//
// README.md lists its costs, the failures that it survives, and the untried cases.
package consul

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/holdfast-go/holdfast/fallback"
)

// Options are the options of [New]. The zero value is valid, and so is a nil pointer.
type Options struct {
	// Prefix begins all keys, without a slash at the beginning. Empty: "holdfast/".
	Prefix string

	// ColdStart says that a namespace that is missing is new. Without it, one begins with Grace (12
	// s by default): its records may have been deleted while processes use it. For tests, demos and
	// development, and for tools that make a namespace before processes use it.
	ColdStart bool
}

// New returns an arbiter on the key-value store of a client's datacenter. The client stays the
// caller's. New does no I/O. opts may be nil. The arbiter is Durable, needs no clock of the
// store's, and has no messages ([fallback.Mute]). It uses no sessions of Consul's.
func New(client *api.Client, opts *Options) fallback.Arbiter {
	return fallback.NewRecords(newStore(client, opts), recordsOptions(opts))
}

func recordsOptions(opts *Options) *fallback.RecordsOptions {
	return &fallback.RecordsOptions{Durable: true, NoClock: true, ColdStart: opts != nil && opts.ColdStart}
}

func newStore(client *api.Client, opts *Options) *store {
	s := &store{client: client, prefix: "holdfast/"}
	if opts != nil && opts.Prefix != "" {
		s.prefix = opts.Prefix
	}
	return s
}

const (
	// A transaction has up to 128 operations.
	maxReads = 120

	// A transaction's body has up to 512 KiB (txn_max_req_len), in which a value takes four bytes
	// for three.
	maxBytes = 380_000

	// tryFor is for how long a read is tried at first.
	tryFor = 2 * time.Second

	// atOnce is how many requests of one call are on their way.
	atOnce = 16

	pauseFor = 50 * time.Millisecond
)

// store is a prefix of the keys of a datacenter, a [fallback.Records].
type store struct {
	client *api.Client
	prefix string

	mu   sync.Mutex // protects mark
	mark string     // as it was seen last
}

func refusal(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{fallback.ErrRefused}, args...)...)
}

// denied marks the answer of a server that does not let this client in, or refuses it a right.
func denied(err error) error { return fmt.Errorf("%w: %w", fallback.ErrDenied, err) }

func notSent(err error) error { return fmt.Errorf("%w: %w", fallback.ErrNotSent, err) }

// nameKey has the mark, a random text. It tells these data from those of another datacenter, and
// from those that come after all was deleted.
func (s *store) nameKey() string { return s.prefix + "mark" }

// markKey is there as long as the records of a mark are.
func (s *store) markKey(mark string) string { return s.prefix + mark + "/mark" }

func (s *store) recordKey(mark, key string) string { return s.prefix + mark + "/records/" + key }

// Open implements [fallback.Records]. It makes the mark.
func (s *store) Open(ctx context.Context) error {
	switch {
	case s.client == nil:
		return refusal("the client is nil")
	case strings.HasPrefix(s.prefix, "/") || strings.ContainsAny(s.prefix, " %?#") || strings.Contains(s.prefix, ".."):
		return refusal("Prefix is %q, must have none of: a slash at the beginning, blanks, two dots, percent and question marks", s.prefix)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	_, err := s.Load(ctx, nil)
	return err
}

// Close implements [fallback.Records].
func (s *store) Close() error { return nil }

// Load implements [fallback.Records]. It asks again until it has an answer, is refused, or ctx
// ends.
func (s *store) Load(ctx context.Context, keys []string) (fallback.Look, error) {
	for patience := tryFor; ; patience = min(2*patience, 8*tryFor) {
		try, cancel := context.WithTimeout(ctx, patience)
		look, err := s.read(try, keys)
		cancel()
		if err == nil || errors.Is(err, fallback.ErrRefused) {
			return look, err
		}
		if errors.Is(err, errMarked) && ctx.Err() == nil {
			continue
		}
		select {
		case <-time.After(pauseFor):
		case <-ctx.Done():
			return fallback.Look{}, err
		}
	}
}

var errMarked = errors.New("consul: there is another mark")

// read reads once. Each part is a transaction at the leader, which makes sure that it still leads.
func (s *store) read(ctx context.Context, keys []string) (look fallback.Look, err error) {
	s.mu.Lock()
	mark := s.mark
	s.mu.Unlock()
	look.Values = make([]fallback.Versioned, 0, len(keys))
	for first := true; first || len(keys) > 0; first = false {
		part := keys[:min(len(keys), maxReads)]
		keys = keys[len(part):]
		names := []string{s.nameKey(), s.markKey(mark)}
		for _, k := range part {
			names = append(names, s.recordKey(mark, k))
		}
		pairs, err := s.get(ctx, names)
		if err != nil {
			return fallback.Look{}, err
		}
		if name := string(pairs[0].Value); mark == "" || name != mark || pairs[1].ModifyIndex == 0 {
			return fallback.Look{}, s.prepare(ctx, pairs[0])
		}
		look.Server = serverName(mark, pairs[1].ModifyIndex)
		for _, p := range pairs[2:] {
			var v fallback.Versioned
			if p.ModifyIndex > 0 {
				v = fallback.Versioned{Version: strconv.FormatUint(p.ModifyIndex, 10), Value: p.Value}
			}
			look.Values = append(look.Values, v)
		}
	}
	return look, nil
}

func serverName(mark string, index uint64) string { return mark + "-" + strconv.FormatUint(index, 10) }

// get reads keys. One that is missing has no ModifyIndex.
func (s *store) get(ctx context.Context, keys []string) ([]*api.KVPair, error) {
	var ops api.TxnOps
	for _, k := range keys {
		ops = append(ops, &api.TxnOp{KV: &api.KVTxnOp{Verb: api.KVGetOrEmpty, Key: k}})
	}
	ok, r, _, err := s.client.Txn().Txn(ops, (&api.QueryOptions{RequireConsistent: true}).WithContext(ctx))
	switch {
	case err != nil:
		return nil, s.explain(err)
	case !ok:
		return nil, s.conflict(r.Errors)
	case len(r.Results) < len(keys): // keys that the token must not read are left out
		return nil, s.rights(errors.New("some keys cannot be read"))
	}
	pairs := make([]*api.KVPair, len(keys))
	for i, k := range keys {
		if pairs[i] = r.Results[i].KV; pairs[i] == nil || pairs[i].Key != k {
			return nil, fmt.Errorf("consul: the answer for the key %q is about another one", k)
		}
	}
	return pairs, nil
}

// prepare notes the mark that there is, or makes one. It returns errMarked then.
func (s *store) prepare(ctx context.Context, name *api.KVPair) error {
	mark := string(name.Value)
	if mark != "" {
		pairs, err := s.get(ctx, []string{s.markKey(mark)})
		if err != nil {
			return err
		}
		if pairs[0].ModifyIndex == 0 {
			mark = ""
		}
	}
	if mark == "" {
		mark = rand.Text()
		_, err := s.write(ctx, api.TxnOps{
			{KV: &api.KVTxnOp{Verb: api.KVCAS, Key: s.nameKey(), Value: []byte(mark), Index: name.ModifyIndex}},
			{KV: &api.KVTxnOp{Verb: api.KVCAS, Key: s.markKey(mark), Value: []byte("its records are beside it")}},
		})
		if err != nil {
			return err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mark = mark
	return errMarked
}

// write reports whether a transaction was executed: if not, a key has another version.
func (s *store) write(ctx context.Context, ops api.TxnOps) (bool, error) {
	ok, r, _, err := s.client.Txn().Txn(ops, new(api.QueryOptions).WithContext(ctx))
	if err != nil {
		return false, s.explain(err)
	}
	if !ok {
		return false, s.conflict(r.Errors)
	}
	return true, nil
}

// conflict tells why a transaction was not executed: nil if a key has another version.
func (s *store) conflict(errs api.TxnErrors) error {
	for _, e := range errs {
		switch what := e.What; {
		case strings.Contains(what, "Permission denied"):
			return s.rights(errors.New(what))
		case strings.Contains(what, "unknown KV"):
			return refusal("the servers are older than Consul 1.14: %s", what)
		case strings.Contains(what, "index is stale"), strings.Contains(what, "failed to check index"), strings.Contains(what, "failed index check"):
		default:
			return notSent(errors.New("consul: " + what))
		}
	}
	return nil
}

func (s *store) rights(err error) error {
	return refusal("the client's token must have the policy write for the key_prefix %q: %w", s.prefix, denied(err))
}

// Swap implements [fallback.Records]. Each change is a transaction, which looks at the mark, too.
func (s *store) Swap(ctx context.Context, server string, changes []fallback.Change) ([]bool, error) {
	mark, text, _ := strings.Cut(server, "-")
	index, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return nil, refusal("the server %q: %w", server, err)
	}
	if err := fallback.CheckSizes(changes, maxBytes); err != nil {
		return nil, err
	}
	done, errs := make([]bool, len(changes)), make([]error, len(changes))
	places := make(chan struct{}, atOnce)
	var all sync.WaitGroup
	for i, c := range changes {
		places <- struct{}{}
		all.Go(func() {
			defer func() { <-places }()
			done[i], errs[i] = s.swap(ctx, mark, index, c)
		})
	}
	all.Wait()
	return fallback.Swapped(done, errs)
}

// swap writes one record.
func (s *store) swap(ctx context.Context, mark string, index uint64, c fallback.Change) (bool, error) {
	version := uint64(0) // there must be none
	if c.Version != "" {
		var err error
		if version, err = strconv.ParseUint(c.Version, 10, 64); err != nil || version == 0 {
			return false, refusal("the version %q", c.Version)
		}
	}
	if err := ctx.Err(); err != nil {
		return false, notSent(err)
	}
	return s.write(ctx, api.TxnOps{
		{KV: &api.KVTxnOp{Verb: api.KVCheckIndex, Key: s.markKey(mark), Index: index}},
		{KV: &api.KVTxnOp{Verb: api.KVCAS, Key: s.recordKey(mark, c.Key), Value: c.Value, Index: version}},
	})
}

// explain marks errors of calls that were not executed. For a server's answer to a transaction the
// client has only words.
func (s *store) explain(err error) error {
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "dial" {
		return notSent(err)
	}
	has := func(texts ...string) bool {
		for _, t := range texts {
			if strings.Contains(err.Error(), t) {
				return true
			}
		}
		return false
	}
	switch {
	case has("Permission denied", "ACL not found"):
		return s.rights(err)
	case has("too large", "too many operations"):
		return refusal("a transaction is larger than the servers' txn_max_req_len, which must be 512 KiB, its default, or more: %w", err)
	case has("rate limit", http.StatusText(http.StatusTooManyRequests)):
		return notSent(err)
	}
	return err
}
