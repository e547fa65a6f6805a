// Package etcd is an arbiter on etcd, which loses nothing that it has acknowledged.
//
//	client, err := clientv3.New(clientv3.Config{Endpoints: endpoints})
//	c, err := coord.New(ctx, etcd.New(client, nil), &coord.Options{Namespace: "orders"})
//
// README.md lists its costs, and the failures that it survives.
package etcd

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/fallback"
)

// Options are the options of [New]. The zero value is valid, and so is a nil pointer.
type Options struct {
	// Prefix begins all keys. Empty: "holdfast/".
	Prefix string

	// ColdStart says that a namespace that is missing is new. Without it, one begins with Grace (12
	// s by default): its records may have been deleted while processes use it. For tests, demos and
	// development, and for tools that make a namespace before processes use it.
	ColdStart bool
}

// New returns an arbiter on the cluster of a client, which stays the caller's to close. It does no
// I/O. opts may be nil. The arbiter is Durable, needs no clock of the store's, and has no messages
// ([fallback.Mute]).
func New(client *clientv3.Client, opts *Options) fallback.Arbiter {
	return fallback.NewRecords(newStore(client, opts), recordsOptions(opts))
}

func recordsOptions(opts *Options) *fallback.RecordsOptions {
	return &fallback.RecordsOptions{Durable: true, NoClock: true, ColdStart: opts != nil && opts.ColdStart}
}

func newStore(client *clientv3.Client, opts *Options) *store {
	s := &store{client: client, prefix: "holdfast/"}
	if opts != nil && opts.Prefix != "" {
		s.prefix = opts.Prefix
	}
	return s
}

const (
	// A server's --max-txn-ops is 128, and its --max-request-bytes 1.5 MiB. A change is a
	// transaction in another one.
	maxReads  = 100
	maxWrites = 50
	maxBytes  = 1 << 20

	// tryFor is for how long one member is asked. A read goes to the next one then.
	tryFor = 2 * time.Second
)

// store is a prefix of a cluster, a [fallback.Records].
type store struct {
	client *clientv3.Client
	prefix string
}

func refusal(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{fallback.ErrRefused}, args...)...)
}

// denied marks the answer of a server that does not let this client in, or refuses it a right.
func denied(err error) error { return fmt.Errorf("%w: %w", fallback.ErrDenied, err) }

// markKey has a random text, which tells this cluster's data from those of another one that was
// made with the same settings.
func (s *store) markKey() string { return s.prefix + "mark" }

func (s *store) recordKey(key string) string { return s.prefix + "records/" + key }

// Open implements [fallback.Records]. It makes the mark.
func (s *store) Open(ctx context.Context) error {
	if s.client == nil {
		return refusal("the client is nil")
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	_, err := s.client.Txn(ctx).If(clientv3.Compare(clientv3.CreateRevision(s.markKey()), "=", 0)).
		Then(clientv3.OpPut(s.markKey(), rand.Text())).Commit()
	return s.explain(err)
}

// Close implements [fallback.Records].
func (s *store) Close() error { return nil }

// serverName is that of a cluster with a mark. Else it is that of one which has lost it.
func serverName(cluster uint64, mark string) string {
	return strconv.FormatUint(cluster, 16) + "-" + mark
}

// Load implements [fallback.Records]. Reads that one transaction has no room for are as of its
// revision.
func (s *store) Load(ctx context.Context, keys []string) (look fallback.Look, err error) {
	revision := int64(0)
	look.Values = make([]fallback.Versioned, 0, len(keys))
	for first := true; first || len(keys) > 0; first = false {
		part := keys[:min(len(keys), maxReads)]
		keys = keys[len(part):]
		ops := []clientv3.Op{clientv3.OpGet(s.markKey(), clientv3.WithRev(revision))}
		for _, k := range part {
			ops = append(ops, clientv3.OpGet(s.recordKey(k), clientv3.WithRev(revision)))
		}
		r, err := s.read(ctx, ops)
		if err != nil {
			return fallback.Look{}, s.explain(err)
		}
		if first {
			revision = r.Header.Revision
			look.Server = serverName(r.Header.ClusterId, valueOf(r, 0))
		}
		for i := range part {
			var v fallback.Versioned
			if kvs := r.Responses[i+1].GetResponseRange().Kvs; len(kvs) > 0 {
				v = fallback.Versioned{Version: strconv.FormatInt(kvs[0].ModRevision, 10), Value: kvs[0].Value}
			}
			look.Values = append(look.Values, v)
		}
	}
	return look, nil
}

// valueOf returns the value that a read has found, or none.
func valueOf(r *clientv3.TxnResponse, i int) string {
	if kvs := r.Responses[i].GetResponseRange().Kvs; len(kvs) > 0 {
		return string(kvs[0].Value)
	}
	return ""
}

// read asks one member after another until ctx ends: one that stands still must not take all the
// time. It asks again if the leader changed meanwhile.
func (s *store) read(ctx context.Context, ops []clientv3.Op) (*clientv3.TxnResponse, error) {
	for {
		try, cancel := context.WithTimeout(ctx, tryFor)
		r, err := s.client.Txn(try).Then(ops...).Commit()
		late := try.Err() != nil
		cancel()
		// A server may notice the end of the try before this process does, and says so in words.
		again := late || errors.Is(err, rpctypes.ErrLeaderChanged) ||
			err != nil && strings.Contains(err.Error(), context.DeadlineExceeded.Error())
		if err == nil || !again || ctx.Err() != nil {
			return r, err
		}
	}
}

// Swap implements [fallback.Records].
func (s *store) Swap(ctx context.Context, server string, changes []fallback.Change) ([]bool, error) {
	_, mark, ok := strings.Cut(server, "-")
	if !ok || mark == "" {
		return nil, refusal("the key %q is missing: it was deleted, or the cluster has lost its data. Attach again", s.markKey())
	}
	done := make([]bool, 0, len(changes))
	for most := maxWrites; len(changes) > 0; {
		n, bytes := 0, 0
		var ops []clientv3.Op
		for n < min(len(changes), most) && (n == 0 || bytes+len(changes[n].Value) <= maxBytes) {
			c := changes[n]
			version := int64(0)
			if c.Version != "" {
				var err error
				if version, err = strconv.ParseInt(c.Version, 10, 64); err != nil {
					return nil, refusal("the version %q: %w", c.Version, err)
				}
			}
			key := s.recordKey(c.Key)
			ops = append(ops, clientv3.OpTxn([]clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(key), "=", version)},
				[]clientv3.Op{clientv3.OpPut(key, string(c.Value))}, nil))
			bytes += len(c.Value)
			n++
		}
		// A cluster with the mark has the cluster's ID that came with it: both are read in one
		// transaction, and the mark is random.
		r, err := s.client.Txn(ctx).If(clientv3.Compare(clientv3.Value(s.markKey()), "=", mark)).Then(ops...).Commit()
		large := tooLarge(err)
		if large && n > 1 { // the server's --max-request-bytes is lower than the default
			most = n / 2
			continue
		}
		if err != nil && len(done) > 0 {
			return nil, errors.New(err.Error()) // some were written
		}
		if large {
			return nil, fmt.Errorf("%w: %w", fallback.TooLarge(changes[:n], "the server's --max-request-bytes"), err)
		}
		if errors.Is(err, rpctypes.ErrNoSpace) {
			return nil, s.full(ctx, changes[:n], err)
		}
		if err != nil {
			return nil, s.explain(err)
		}
		for i := range n {
			done = append(done, r.Succeeded && r.Responses[i].GetResponseTxn().Succeeded)
		}
		changes = changes[n:]
	}
	return done, nil
}

// tooLarge reports whether an error says that the server has not executed a request, because of its
// size.
func tooLarge(err error) bool {
	return errors.Is(err, rpctypes.ErrRequestTooLarge) || err != nil && strings.Contains(err.Error(), "received message larger than max")
}

// full returns the error of changes that a cluster has no room for. It looks whether they were made
// all the same: the first transaction beyond the quota is executed, and answered so.
func (s *store) full(ctx context.Context, changes []fallback.Change, err error) error {
	keys := make([]string, len(changes))
	for i := range changes {
		keys[i] = changes[i].Key
	}
	look, unread := s.Load(ctx, keys)
	if unread != nil {
		return err
	}
	for i := range changes {
		if look.Values[i].Version != changes[i].Version {
			return err
		}
	}
	return s.explain(err)
}

// explain marks errors that an operator has to see to. With them nothing was executed.
func (s *store) explain(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, rpctypes.ErrPermissionDenied):
		return refusal("the client's user must have the rights to read and write keys with the prefix %q: %w", s.prefix, denied(err))
	case errors.Is(err, rpctypes.ErrAuthFailed), errors.Is(err, rpctypes.ErrUserEmpty), errors.Is(err, rpctypes.ErrInvalidAuthMgmt):
		return refusal("the cluster does not let the client in: %w", denied(err))
	case errors.Is(err, rpctypes.ErrTooManyOps):
		return refusal("the server's --max-txn-ops is less than 128, its default: %w", err)
	case errors.Is(err, rpctypes.ErrNoSpace):
		return fmt.Errorf("%w: the cluster is at its --quota-backend-bytes: compact and defragment it, then disarm the alarm: %w", fallback.ErrFull, err)
	case errors.Is(err, rpctypes.ErrTooManyRequests):
		return fmt.Errorf("%w: %w", fallback.ErrNotSent, err)
	}
	return err
}
