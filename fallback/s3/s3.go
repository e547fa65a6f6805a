// Package s3 is an arbiter in a bucket of S3, or of a store that speaks its protocol and has
// conditional writes. It loses nothing that it has acknowledged.
//
//	config, err := config.LoadDefaultConfig(ctx) // of github.com/aws/aws-sdk-go-v2/config
//	c, err := coord.New(ctx, s3.New(awss3.NewFromConfig(config), &s3.Options{Bucket: "locks"}), &coord.Options{
//		Namespace: "orders", SessionTTL: 20 * time.Second, Cluster: &coord.Cluster{Membership: gossip.Start},
//	})
//
// README.md lists its costs, the failures that it survives, and the settings to use.
package s3

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awss3 "github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/holdfast-go/holdfast/fallback"
)

// Options are the options of [New].
type Options struct {
	// Bucket has all records. It must exist.
	Bucket string

	// Prefix begins the keys of all objects. Empty: "holdfast/".
	Prefix string

	// ColdStart says that a namespace that is missing is new. Without it, one begins with Grace (24
	// s with a SessionTTL of 20 s): its records may have been deleted while processes use it. For
	// tests, demos and development, and for tools that make a namespace before processes use it.
	ColdStart bool
}

// MinLease is the shortest SessionTTL + Margin that is not refused: a SessionTTL of 20 s. A call
// has a tenth of that by default, and one of a thousand takes a second.
const MinLease = 22 * time.Second

// New returns an arbiter in a bucket. It does no I/O. opts must name the bucket. The arbiter is
// Durable, needs no clock of the store's, and has no messages ([fallback.Mute]). It sends each
// write once, whatever the client's Retryer is.
func New(client *awss3.Client, opts *Options) fallback.Arbiter {
	return fallback.NewRecords(newStore(client, opts), recordsOptions(opts))
}

func recordsOptions(opts *Options) *fallback.RecordsOptions {
	return &fallback.RecordsOptions{Durable: true, NoClock: true, Slow: true, MinLease: MinLease, ColdStart: opts != nil && opts.ColdStart}
}

func newStore(client *awss3.Client, opts *Options) *store {
	s := &store{client: client, prefix: "holdfast/"}
	if opts != nil {
		s.bucket = opts.Bucket
		if opts.Prefix != "" {
			s.prefix = opts.Prefix
		}
	}
	return s
}

const (
	// maxBytes is how large a record may be. An object may be larger, and would take long.
	maxBytes = 1 << 20

	// tryFor is for how long a read is tried at first.
	tryFor = 2 * time.Second

	// atOnce is how many requests of one call are on their way.
	atOnce = 32

	pauseFor = 50 * time.Millisecond

	// markFor is for how long the mark is not read again. A process that has an old one takes the
	// records for those of another store, which begins Grace.
	markFor = time.Second
)

// store is the objects of a prefix in a bucket, a [fallback.Records].
type store struct {
	client         *awss3.Client
	bucket, prefix string

	mu       sync.Mutex // protects the fields below
	mark     string
	markRead time.Time // when that read began
}

func refusal(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{fallback.ErrRefused}, args...)...)
}

// denied marks the answer of a server that does not let this client in, or refuses it a right.
func denied(err error) error { return fmt.Errorf("%w: %w", fallback.ErrDenied, err) }

func notSent(err error) error { return fmt.Errorf("%w: %w", fallback.ErrNotSent, err) }

// markKey has a random text, which tells this bucket's data from those of before it was emptied.
func (s *store) markKey() string { return s.prefix + "mark" }

func (s *store) recordKey(key string) string { return s.prefix + "records/" + key }

// An object begins with a line of its kind and a random text: an ETag may be a hash of the
// contents, and no two writes may have the same.
const objectKind = "holdfast/1 "

func encode(value []byte) []byte {
	return append([]byte(objectKind+rand.Text()+"\n"), value...)
}

func (s *store) decode(key string, body []byte) ([]byte, error) {
	first, value, ok := bytes.Cut(body, []byte("\n"))
	if !ok || !bytes.HasPrefix(first, []byte(objectKind)) {
		return nil, refusal("the object %s/%s is another program's", s.bucket, key)
	}
	return value, nil
}

// Open implements [fallback.Records]. It makes the mark, and finds out whether the store has
// conditional writes, and this process the rights.
func (s *store) Open(ctx context.Context) error {
	switch {
	case s.client == nil:
		return refusal("the client is nil")
	case s.bucket == "":
		return refusal("Options.Bucket is empty")
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	for {
		if _, err := s.Load(ctx, nil); err != nil {
			return err
		}
		mark, version, err := s.get(ctx, s.markKey())
		if err != nil {
			return s.explain(err)
		}
		if version == "" {
			continue // it was deleted meanwhile
		}
		return s.check(ctx, version, append([]byte(objectKind), mark...))
	}
}

// check writes the mark as it is, with three conditions. The first two do not hold. Where
// conditions do not count, nothing changes.
func (s *store) check(ctx context.Context, version string, body []byte) error {
	for _, c := range []struct {
		version string
		holds   bool
		header  string
	}{{"", false, "If-None-Match: *"}, {`"00000000000000000000000000000000"`, false, "If-Match"}, {version, true, "If-Match"}} {
		done, err := s.put(ctx, s.markKey(), c.version, body)
		if err != nil {
			return s.explain(err)
		}
		if done && !c.holds {
			return refusal("the store has written an object although the condition (%s) did not hold: it has no conditional writes", c.header)
		}
		if !done && c.holds { // the mark is as it was, unless another process attaches just now
			if _, now, err := s.get(ctx, s.markKey()); err != nil || now == version {
				return errors.Join(s.explain(err), refusal("the store does not write an object that has the ETag of %s", c.header))
			}
		}
	}
	return nil
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
		select {
		case <-time.After(pauseFor):
		case <-ctx.Done():
			return fallback.Look{}, err
		}
	}
}

var errMarked = errors.New("s3: there is another mark")

// read reads once, all objects side by side. Reads of S3 see each write that was acknowledged.
func (s *store) read(ctx context.Context, keys []string) (fallback.Look, error) {
	look := fallback.Look{Values: make([]fallback.Versioned, len(keys))}
	err := errors.Join(inParallel(len(keys)+1, func(i int) (err error) {
		if i == 0 {
			look.Server, err = s.readMark(ctx)
			return err
		}
		look.Values[i-1].Value, look.Values[i-1].Version, err = s.getRecord(ctx, s.recordKey(keys[i-1]))
		return err
	})...)
	if err != nil {
		return fallback.Look{}, s.explain(err)
	}
	if look.Server != "" {
		return look, nil
	}
	if _, err := s.put(ctx, s.markKey(), "", encode(nil)); err != nil {
		return fallback.Look{}, s.explain(err)
	}
	return fallback.Look{}, errMarked
}

// readMark returns the mark, or none.
func (s *store) readMark(ctx context.Context) (string, error) {
	now := time.Now()
	s.mu.Lock()
	mark, read := s.mark, s.markRead
	s.mu.Unlock()
	if mark != "" && now.Sub(read) < markFor {
		return mark, nil
	}
	text, _, err := s.get(ctx, s.markKey())
	if err != nil {
		return "", err
	}
	mark = strings.TrimSpace(string(text))
	s.mu.Lock()
	defer s.mu.Unlock()
	if mark == "" || now.After(s.markRead) {
		s.mark, s.markRead = mark, now
	}
	return mark, nil
}

// getRecord returns a record and its version, which is empty if there is none.
func (s *store) getRecord(ctx context.Context, key string) (value []byte, version string, err error) {
	text, version, err := s.get(ctx, key)
	if err != nil || version == "" {
		return nil, "", err
	}
	_, value, _ = bytes.Cut(text, []byte("\n"))
	return value, version, nil
}

// get returns an object's text after its kind, and its ETag, which is empty if there is none. Load
// tries again, and the SDK does not.
func (s *store) get(ctx context.Context, key string) (text []byte, etag string, err error) {
	out, err := s.client.GetObject(ctx, &awss3.GetObjectInput{Bucket: &s.bucket, Key: &key}, once)
	if err != nil {
		if code(err) == "NoSuchKey" || status(err) == http.StatusNotFound && code(err) != "NoSuchBucket" {
			return nil, "", nil
		}
		return nil, "", err
	}
	body, err := io.ReadAll(out.Body)
	if err := errors.Join(err, out.Body.Close()); err != nil {
		return nil, "", err
	}
	if _, err := s.decode(key, body); err != nil {
		return nil, "", err
	}
	if etag = aws.ToString(out.ETag); etag == "" {
		return nil, "", refusal("the store does not tell the ETag of an object")
	}
	return bytes.TrimPrefix(body, []byte(objectKind)), etag, nil
}

// put writes an object if it has a version, or if there is none of the key. It is sent once: an
// answer that was lost stays lost.
func (s *store) put(ctx context.Context, key, version string, body []byte) (done bool, err error) {
	in := &awss3.PutObjectInput{Bucket: &s.bucket, Key: &key, Body: bytes.NewReader(body)}
	if version == "" {
		in.IfNoneMatch = aws.String("*")
	} else {
		in.IfMatch = &version
	}
	_, err = s.client.PutObject(ctx, in, once)
	switch status(err) {
	case http.StatusPreconditionFailed, http.StatusConflict: // the latter: another write of the key is under way
		return false, nil
	case http.StatusNotFound:
		if code(err) != "NoSuchBucket" && version != "" { // it was deleted
			return false, nil
		}
	}
	return err == nil, err
}

func once(o *awss3.Options) { o.Retryer = aws.NopRetryer{} }

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

// Swap implements [fallback.Records]. Versions are random, so a change goes by its version. A
// record that is new says which bucket's data it was made for: with another mark it begins Grace.
func (s *store) Swap(ctx context.Context, _ string, changes []fallback.Change) ([]bool, error) {
	if err := fallback.CheckSizes(changes, maxBytes); err != nil {
		return nil, err
	}
	done := make([]bool, len(changes))
	errs := inParallel(len(changes), func(i int) (err error) {
		if err := ctx.Err(); err != nil {
			return notSent(err)
		}
		done[i], err = s.put(ctx, s.recordKey(changes[i].Key), changes[i].Version, encode(changes[i].Value))
		return s.explain(err)
	})
	return fallback.Swapped(done, errs)
}

// status is that of the answer, or 0.
func status(err error) int {
	if r, ok := errors.AsType[*smithyhttp.ResponseError](err); ok {
		return r.HTTPStatusCode()
	}
	return 0
}

// code is the store's name for an error, or empty.
func code(err error) string {
	if x, ok := errors.AsType[smithy.APIError](err); ok {
		return x.ErrorCode()
	}
	return ""
}

// explain marks errors of calls that were not executed.
func (s *store) explain(err error) error {
	if err == nil || errors.Is(err, fallback.ErrRefused) {
		return err
	}
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "dial" {
		return notSent(err)
	}
	switch code(err) {
	case "NoSuchBucket":
		return refusal("the bucket %q is missing: create it: %w", s.bucket, err)
	case "AccessDenied":
		return refusal("the client must have s3:GetObject and s3:PutObject of %s/%s*, and s3:ListBucket of the bucket: %w", s.bucket, s.prefix, denied(err))
	case "InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken", "InvalidToken", "RequestTimeTooSkewed":
		return refusal("the store does not let the client in: %w", denied(err))
	case "PermanentRedirect", "AuthorizationHeaderMalformed", "IllegalLocationConstraintException":
		return refusal("the bucket %q is in another region than the client's: %w", s.bucket, err)
	case "NotImplemented":
		return refusal("the store has no conditional writes: %w", err)
	case "SlowDown", "TooManyRequests":
		return notSent(err)
	}
	return err
}
