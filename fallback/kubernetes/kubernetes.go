// Package kubernetes is an arbiter on the API server of a Kubernetes cluster, which loses nothing
// that it has acknowledged.
//
//	config, err := rest.InClusterConfig()
//	c, err := coord.New(ctx, kubernetes.New(config, &kubernetes.Options{Namespace: "orders-locks"}), &coord.Options{Namespace: "orders"})
//
// README.md lists its costs, the failures that it survives, and the settings to use.
package kubernetes

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os"
	"regexp"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"

	"github.com/holdfast-go/holdfast/fallback"
)

// Options are the options of [New]. The zero value is valid in a pod, and so is a nil pointer.
type Options struct {
	// Namespace is that of Kubernetes which has the records: one without other Secrets, as the
	// program may read and change all that are there. Empty: that of the pod's service account. It
	// is no part of coord.Options.Namespace: one has any number of those.
	Namespace string

	// Prefix begins the names of all records: up to 20 lower-case letters, digits and hyphens.
	// Empty: "holdfast".
	Prefix string

	// ColdStart says that a namespace that is missing is new. Without it, one begins with Grace (12
	// s by default): its records may have been deleted while processes use it. For tests, demos and
	// development, and for tools that make a namespace before processes use it.
	ColdStart bool
}

// New returns an arbiter on the API server that a configuration leads to. It does no I/O, and
// copies the configuration. opts may be nil. The arbiter is Durable, needs no clock of the store's,
// and has no messages ([fallback.Mute]).
//
// It has a client of its own, without client-go's default limit of five requests per second
// (config.QPS is 0). A limit below 50 is refused.
func New(config *rest.Config, opts *Options) fallback.Arbiter {
	return fallback.NewRecords(newStore(config, opts), recordsOptions(opts))
}

func recordsOptions(opts *Options) *fallback.RecordsOptions {
	return &fallback.RecordsOptions{Durable: true, NoClock: true, Slow: true, ColdStart: opts != nil && opts.ColdStart}
}

func newStore(config *rest.Config, opts *Options) *store {
	s := &store{prefix: "holdfast"}
	if config != nil {
		s.config = rest.CopyConfig(config)
	}
	if opts != nil {
		s.namespace = opts.Namespace
		if opts.Prefix != "" {
			s.prefix = opts.Prefix
		}
	}
	return s
}

const (
	// minQPS is the lowest limit of requests per second. A process that takes partitions makes
	// three for each.
	minQPS = 50

	// maxGets is how many records are read one by one. More are read by one list.
	maxGets = 8

	// maxBytes is how large the data of a Secret may be.
	maxBytes = corev1.MaxSecretSize

	// tryFor is for how long a read is tried at first.
	tryFor = 2 * time.Second

	// atOnce is how many requests of one call are on their way.
	atOnce = 16

	pauseFor = 50 * time.Millisecond

	// markFor is for how long a mark is not read again. A process that has an old one takes the
	// records for those of another server, which begins Grace.
	markFor = time.Second
)

// The records are in Secrets, not in ConfigMaps, because one of them has the secrets of the
// namespace.
const (
	resource   = "secrets"
	recordType = corev1.SecretType("holdfast/record")
	dataKey    = "record"
	ofLabel    = "holdfast/of"     // the prefix and the namespace of Holdfast's
	keyLabel   = "holdfast/record" // which of its records
)

// store is the records of a prefix in a namespace of Kubernetes, a [fallback.Records].
type store struct {
	config            *rest.Config
	namespace, prefix string

	mu       sync.Mutex // protects the fields below; client and namespace only until the first Open has returned
	client   *rest.RESTClient
	mark     string
	markRead time.Time // when that read began
}

func refusal(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{fallback.ErrRefused}, args...)...)
}

// denied marks the answer of a server that does not let this client in, or refuses it a right.
func denied(err error) error { return fmt.Errorf("%w: %w", fallback.ErrDenied, err) }

func notSent(err error) error { return fmt.Errorf("%w: %w", fallback.ErrNotSent, err) }

var codecs = func() serializer.CodecFactory {
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		panic(err)
	}
	return serializer.NewCodecFactory(scheme)
}()

// connect makes the client, once.
func (s *store) connect() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.client != nil {
		return nil
	}
	if s.config == nil {
		return refusal("the configuration is nil")
	}
	namespace := s.namespace
	if namespace == "" {
		text, err := os.ReadFile(namespaceFile)
		if err != nil {
			return refusal("Options.Namespace is empty, which works in a pod only: %w", err)
		}
		namespace = strings.TrimSpace(string(text))
	}
	if !plainText.MatchString(s.prefix) || len(s.prefix) > 20 {
		return refusal("Options.Prefix is %q, must be up to 20 lower-case letters, digits and hyphens", s.prefix)
	}
	config := rest.CopyConfig(s.config)
	switch qps := config.QPS; {
	case config.RateLimiter != nil && config.RateLimiter.QPS() < minQPS:
		return refusal("the configuration's RateLimiter lets %v requests through per second, must be %d or more, or nil: calls would "+
			"wait in this process until their time is up", config.RateLimiter.QPS(), minQPS)
	case config.RateLimiter == nil && qps > 0 && qps < minQPS:
		return refusal("the configuration's QPS is %v, must be %d or more, or 0: calls would wait in this process until their time is up", qps, minQPS)
	case qps == 0:
		config.QPS = -1 // no limit: the default is 5
	}
	if config.Transport == nil {
		// With HTTP/2 all calls share a connection. A server that stands still behind a load
		// balancer would hold up all of them, until the connection is given up after 45 s. With
		// HTTP/1.1 a call that is given up ends its connection, and the next one has another.
		config.NextProtos = []string{"http/1.1"}
	}
	if config.UserAgent == "" {
		config.UserAgent = "holdfast"
	}
	config.APIPath, config.GroupVersion = "/api", &corev1.SchemeGroupVersion
	config.NegotiatedSerializer = codecs.WithoutConversion()
	config.ContentType, config.AcceptContentTypes = runtime.ContentTypeProtobuf, runtime.ContentTypeProtobuf
	config.WarningHandler = rest.NoWarnings{}
	client, err := rest.RESTClientFor(config)
	if err != nil {
		return refusal("the configuration: %w", err)
	}
	s.client, s.namespace = client, namespace
	return nil
}

// namespaceFile is where a pod finds its namespace.
const namespaceFile = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"

var plainText = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,37}[a-z0-9])?$`)

// plain returns a text that can be a part of a name and of a label: itself if it can be, or else
// its hash, which is longer than those.
func plain(text string) string {
	if plainText.MatchString(text) {
		return text
	}
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:20])
}

func (s *store) markName() string { return s.prefix + ".mark" }

// place returns the labels of a record. Its name is made of them.
func (s *store) place(key string) (of, record string) {
	i := strings.LastIndexByte(key, '/')
	return s.prefix + "." + plain(key[:max(i, 0)]), plain(key[i+1:])
}

func (s *store) recordName(key string) string {
	of, record := s.place(key)
	return of + "." + record
}

// Open implements [fallback.Records]. It makes the mark, and finds out whether it has the rights.
func (s *store) Open(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := s.connect(); err != nil {
		return err
	}
	if _, err := s.Load(ctx, nil); err != nil {
		return err
	}
	if _, err := s.list(ctx, s.markName(), []string{"none"}); err != nil {
		return s.explain(err)
	}
	mark, err := s.get(ctx, s.markName())
	if err != nil {
		return s.explain(err)
	}
	if mark == nil { // it was deleted meanwhile
		return errMarked
	}
	return s.explain(s.put(ctx, mark)) // the server does not write an object that is as before
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
		pause := pauseFor
		if seconds, ok := apierrors.SuggestsClientDelay(err); ok {
			pause = max(pause, time.Duration(seconds)*time.Second)
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return fallback.Look{}, err
		}
	}
}

var errMarked = errors.New("kubernetes: there is another mark")

// read reads once. A read without a resourceVersion is of the state of etcd's majority.
func (s *store) read(ctx context.Context, keys []string) (fallback.Look, error) {
	look := fallback.Look{Values: make([]fallback.Versioned, len(keys))}
	reads := []func() error{func() (err error) {
		look.Server, err = s.readMark(ctx)
		return err
	}}
	if len(keys) <= maxGets {
		for i, k := range keys {
			reads = append(reads, func() error {
				found, err := s.get(ctx, s.recordName(k))
				if found != nil {
					look.Values[i] = fallback.Versioned{Version: found.ResourceVersion, Value: found.Data[dataKey]}
				}
				return err
			})
		}
	} else {
		for of, list := range s.lists(keys) {
			reads = append(reads, func() error {
				found, err := s.list(ctx, of, list.records)
				if err != nil {
					return err
				}
				for _, x := range found.Items {
					if i, ok := list.at[x.Labels[keyLabel]]; ok {
						look.Values[i] = fallback.Versioned{Version: x.ResourceVersion, Value: x.Data[dataKey]}
					}
				}
				return nil
			})
		}
	}
	if err := errors.Join(inParallel(len(reads), func(i int) error { return reads[i]() })...); err != nil {
		return fallback.Look{}, s.explain(err)
	}
	if look.Server != "" {
		return look, nil
	}
	err := s.post(ctx, s.object(s.markName(), s.prefix, "mark", "", []byte(rand.Text())))
	if err != nil && !apierrors.IsAlreadyExists(err) {
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
	x, err := s.get(ctx, s.markName())
	if err != nil || x == nil {
		return "", err
	}
	mark = string(x.Data[dataKey])
	s.mu.Lock()
	defer s.mu.Unlock()
	if now.After(s.markRead) {
		s.mark, s.markRead = mark, now
	}
	return mark, nil
}

// A listed is records that one list reads.
type listed struct {
	records []string
	at      map[string]int // index of the key
}

// lists returns which lists read some keys, by their label. A namespace of Holdfast's takes one.
func (s *store) lists(keys []string) map[string]*listed {
	all := make(map[string]*listed)
	for i, k := range keys {
		of, record := s.place(k)
		l := all[of]
		if l == nil {
			l = &listed{at: make(map[string]int)}
			all[of] = l
		}
		l.records, l.at[record] = append(l.records, record), i
	}
	return all
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

// Swap implements [fallback.Records]. Versions are those of one cluster only, so a change goes by
// its version. A record that is new says which server it was made for: at another one it begins
// Grace.
func (s *store) Swap(ctx context.Context, _ string, changes []fallback.Change) ([]bool, error) {
	if err := fallback.CheckSizes(changes, maxBytes); err != nil {
		return nil, err
	}
	done := make([]bool, len(changes))
	errs := inParallel(len(changes), func(i int) (err error) {
		done[i], err = s.swap(ctx, changes[i])
		return err
	})
	return fallback.Swapped(done, errs)
}

// swap writes one record.
func (s *store) swap(ctx context.Context, c fallback.Change) (bool, error) {
	if err := ctx.Err(); err != nil {
		return false, notSent(err)
	}
	of, record := s.place(c.Key)
	x := s.object(s.recordName(c.Key), of, record, c.Version, c.Value)
	var err error
	if c.Version == "" {
		if err = s.post(ctx, x); apierrors.IsAlreadyExists(err) {
			return false, nil
		}
	} else {
		if err = s.put(ctx, x); apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
			return false, nil
		}
	}
	return err == nil, s.explain(err)
}

// object returns the Secret to be written.
func (s *store) object(name, of, record, version string, value []byte) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: s.namespace, ResourceVersion: version,
			Labels: map[string]string{ofLabel: of, keyLabel: record},
		},
		Type: recordType,
		Data: map[string][]byte{dataKey: value},
	}
}

// get returns nil if there is none.
func (s *store) get(ctx context.Context, name string) (*corev1.Secret, error) {
	x := new(corev1.Secret)
	err := s.client.Get().MaxRetries(0).Namespace(s.namespace).Resource(resource).Name(name).Do(ctx).Into(x)
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, err
	case x.Type != recordType:
		return nil, refusal("the Secret %s/%s has the type %q: it is another program's", s.namespace, name, x.Type)
	}
	return x, nil
}

func (s *store) list(ctx context.Context, of string, records []string) (*corev1.SecretList, error) {
	all := new(corev1.SecretList)
	selector := ofLabel + "=" + of + "," + keyLabel + " in (" + strings.Join(records, ",") + ")"
	err := s.client.Get().MaxRetries(0).Namespace(s.namespace).Resource(resource).Param("labelSelector", selector).Do(ctx).Into(all)
	return all, err
}

// post and put are sent once: an answer that was lost stays lost.
func (s *store) post(ctx context.Context, x *corev1.Secret) error {
	return s.client.Post().MaxRetries(0).Namespace(s.namespace).Resource(resource).Body(x).Do(ctx).Error()
}

func (s *store) put(ctx context.Context, x *corev1.Secret) error {
	return s.client.Put().MaxRetries(0).Namespace(s.namespace).Resource(resource).Name(x.Name).Body(x).Do(ctx).Error()
}

// explain marks errors of calls that were not executed.
func (s *store) explain(err error) error {
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "dial" {
		return notSent(err)
	}
	switch {
	case err == nil || errors.Is(err, fallback.ErrRefused):
		return err
	case apierrors.IsForbidden(err) && strings.Contains(err.Error(), "exceeded quota"):
		return fmt.Errorf("%w: a ResourceQuota of the namespace %q has none for another record: a namespace of Holdfast's has one Secret per partition, so raise "+
			"the quota, or use fewer Partitions: %w", fallback.ErrFull, s.namespace, err)
	case apierrors.IsForbidden(err):
		return refusal("the client must have the verbs get, list, create and update of secrets in the namespace %q: %w", s.namespace, denied(err))
	case apierrors.IsUnauthorized(err):
		return refusal("the API server does not let the client in: %w", denied(err))
	case apierrors.IsNotFound(err): // in the answer to a create: the namespace is missing
		return refusal("the namespace %q is missing: create it: %w", s.namespace, err)
	case apierrors.IsInvalid(err), apierrors.IsRequestEntityTooLargeError(err), apierrors.IsBadRequest(err):
		return refusal("the API server does not take a record: %w", err)
	case apierrors.IsTooManyRequests(err):
		return notSent(err)
	}
	return err
}
