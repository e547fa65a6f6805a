//go:build unix

package s3

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awss3 "github.com/aws/aws-sdk-go-v2/service/s3"
	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/fallback/arbitertest"
	"github.com/holdfast-go/holdfast/internal/storetest"
	"github.com/holdfast-go/holdfast/internal/takes"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Each arbiter has a client of its own, as a process has.
func TestS3Conforms(t *testing.T) {
	shared := startGateway(t, 1)
	arbitertest.Run(t, arbitertest.Fixture{New: func(*testing.T) fallback.Arbiter { return shared.arbiter(0) }})
}

func TestS3Conforms_Durable(t *testing.T) {
	takes.Seconds(t)
	arbitertest.RunDurable(t, func(t *testing.T) arbitertest.Cluster { return startGateway(t, 2).injuries() })
}

func TestS3_NoTwoHoldersOverKills(t *testing.T) {
	storetest.Minutes(t)
	g := startGateway(t, 2)
	var lines storetest.Lines
	var injuries []func()
	for range 4 {
		injuries = append(injuries, func() { g.kill(0) }, func() { g.kill(1) }, g.killAll, func() {
			goOn := g.servers[0].Stop()
			time.AfterFunc(3*time.Second, goOn)
		}, func() { lines.Cut(4 * time.Second) })
	}
	storetest.NoTwoHolders(t, func() fallback.Arbiter { return g.balanced(lines.Another(t), quick) }, injuries...)
}

// Older objects are put back while processes hold locks, as README.md says to do it.
func TestS3_NoTwoHoldersOverRestores(t *testing.T) {
	storetest.Minutes(t)
	g := startGateway(t, 1)
	var lines storetest.Lines
	var injuries []func()
	for range 4 {
		injuries = append(injuries, lines.Restored(g.copied, func() { g.remove(g.store(0).markKey()) })...)
	}
	storetest.NoTwoHolders(t, func() fallback.Arbiter { return g.balanced(lines.Another(t), careful) }, injuries...)
}

func TestS3_WhatItCostsAtRest(t *testing.T) {
	storetest.Minutes(t)
	c := &counting{inner: http.DefaultTransport.(*http.Transport).Clone()}
	defer c.inner.CloseIdleConnections()
	g := startGateway(t, 1)
	storetest.AtRestWith(t, newStore(clientOf(c, "http://"+g.addrs[0], "holdfast", "holdfast-secret"), &Options{Bucket: bucket}), recordsOptions(&Options{ColdStart: true}), 20*time.Second)
	t.Logf("in all: %d GET, %d PUT", c.gets.Load(), c.puts.Load())
}

// A counting transport counts requests.
type counting struct {
	inner      *http.Transport
	gets, puts atomic.Int64
}

// RoundTrip implements [http.RoundTripper].
func (c *counting) RoundTrip(r *http.Request) (*http.Response, error) {
	switch r.Method {
	case http.MethodGet:
		c.gets.Add(1)
	case http.MethodPut:
		c.puts.Add(1)
	}
	return c.inner.RoundTrip(r)
}

// Old data are told by the processes that have seen newer ones.
func TestS3_ARestoredBackupIsNoticed(t *testing.T) {
	takes.Seconds(t)
	g := startGateway(t, 1)
	storetest.OldDataAreNoticed(t, g.arbiter(0), g.copied)
}

func TestS3_TokensRiseOverARestore(t *testing.T) {
	takes.Seconds(t)
	g := startGateway(t, 1)
	storetest.TokensRise(t, func() fallback.Arbiter { return fallback.NewRecords(g.store(0), careful) }, g.copied, func() { g.remove(g.store(0).markKey()) })
}

// Missing data are in Grace for a process that was there before. A record that is made for the
// earlier data is in Grace for all.
func TestS3_AnEmptiedBucketIsNoticed(t *testing.T) {
	g := startGateway(t, 1)
	s := g.store(0)
	storetest.LoseBetween(t, s, quick, g.empty, func() {
		s.mu.Lock()
		s.mark = "" // a second later
		s.mu.Unlock()
	})
}

func TestS3_ManyRecordsAtOnce(t *testing.T) {
	s := startGateway(t, 1).store(0)
	if err := s.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	storetest.Many(t, s, storetest.Names("k", 55), 0, nil)
	storetest.Largest(t, s, "large", maxBytes)
}

// A value that comes again has another version: an ETag may be a hash of the contents.
func TestS3_NoVersionComesTwice(t *testing.T) {
	s := startGateway(t, 1).store(0)
	if err := s.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	versions := make(map[string]bool)
	for i := range 6 {
		look, err := s.Load(t.Context(), []string{"k"})
		if err != nil {
			t.Fatal(err)
		}
		v := look.Values[0]
		if versions[v.Version] {
			t.Errorf("the version %s comes twice", v.Version)
		}
		versions[v.Version] = true
		done, err := s.Swap(t.Context(), look.Server, []fallback.Change{{Key: "k", Version: v.Version, Value: fmt.Append(nil, i%2)}})
		if err != nil || !done[0] {
			t.Fatalf("%v, %v", done, err)
		}
	}
}

// Of many writers of a version, through two servers, one succeeds.
func TestS3_OneOfManyWritersIsFirst(t *testing.T) {
	g := startGateway(t, 2)
	stores := []*store{g.store(0), g.store(1)}
	if err := stores[0].Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	for round := range 20 {
		look, err := stores[round%2].Load(t.Context(), []string{"k"})
		if err != nil {
			t.Fatal(err)
		}
		var first atomic.Int32
		var all sync.WaitGroup
		for i := range 8 {
			all.Go(func() {
				done, err := stores[i%2].Swap(t.Context(), look.Server, []fallback.Change{
					{Key: "k", Version: look.Values[0].Version, Value: fmt.Append(nil, round, i)},
				})
				if err != nil {
					t.Error(err)
				} else if done[0] {
					first.Add(1)
				}
			})
		}
		all.Wait()
		if first.Load() != 1 {
			t.Fatalf("round %d: %d writers of a version succeeded", round, first.Load())
		}
	}
}

// A losing transport loses the answers to writes.
type losing struct {
	inner http.RoundTripper
	sent  atomic.Int64 // writes
}

// RoundTrip implements [http.RoundTripper].
func (x *losing) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := x.inner.RoundTrip(r)
	if r.Method == http.MethodPut {
		x.sent.Add(1)
		if err == nil {
			_ = answer.Body.Close()
			return nil, errLost
		}
	}
	return answer, err
}

// The SDK sends again by default. Then a write whose answer was lost would seem to have failed by
// its own condition.
func TestS3_AWriteIsSentOnce(t *testing.T) {
	g := startGateway(t, 1)
	if err := g.store(0).Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	x := &losing{inner: transport(t)}
	s := newStore(clientOf(x, "http://"+g.addrs[0], "holdfast", "holdfast-secret"), &Options{Bucket: bucket})
	done, err := s.Swap(t.Context(), "", []fallback.Change{{Key: "k", Value: []byte("v")}})
	if err == nil || errors.Is(err, fallback.ErrRefused) || errors.Is(err, fallback.ErrNotSent) {
		t.Errorf("Swap: %v, %v, want an error of an unknown outcome", done, err)
	}
	if n := x.sent.Load(); n != 1 {
		t.Errorf("it was sent %d times", n)
	}
	look, err := s.Load(t.Context(), []string{"k"})
	if err != nil || string(look.Values[0].Value) != "v" {
		t.Errorf("it was not written: %+v, %v", look, err)
	}
}

func transport(t *testing.T) *http.Transport {
	x := new(http.Transport)
	t.Cleanup(x.CloseIdleConnections)
	return x
}

func isDial(err error) bool {
	op, ok := errors.AsType[*net.OpError](err)
	return ok && op.Op == "dial"
}

func TestS3_Refuses(t *testing.T) {
	g := startGateway(t, 1)
	url := "http://" + g.addrs[0]
	storetest.Refused(t, New(nil, &Options{Bucket: bucket}), "client")
	storetest.Refused(t, New(g.client(0), nil), "Bucket")
	storetest.Refused(t, New(g.client(0), &Options{Bucket: "another"}), "create it")
	storetest.Refused(t, New(clientOf(transport(t), url, "holdfast", "wrong"), &Options{Bucket: bucket}), "let the client in")
	s := storetest.Settings
	s.Lease = 11 * time.Second
	if _, err := New(g.client(0), &Options{Bucket: bucket}).Attach(t.Context(), s); !errors.Is(err, fallback.ErrRefused) || !strings.Contains(err.Error(), "SessionTTL to 20s") {
		t.Errorf("a short session: %v", err)
	}
	body := bytes.NewReader([]byte("a picture"))
	if _, err := g.client(0).PutObject(t.Context(), &awss3.PutObjectInput{Bucket: aws.String(bucket), Key: aws.String("other/mark"), Body: body}); err != nil {
		t.Fatal(err)
	}
	storetest.Refused(t, New(g.client(0), &Options{Bucket: bucket, Prefix: "other/"}), "another program")
	for name, why := range map[string]string{
		"AccessDenied": "s3:ListBucket", "ExpiredToken": "let the client in", "PermanentRedirect": "region", "NotImplemented": "conditional writes",
	} {
		if err := newStore(nil, nil).explain(apiError(name)); !errors.Is(err, fallback.ErrRefused) || !strings.Contains(err.Error(), why) {
			t.Errorf("%s: %v, want a refusal that names %s", name, err, why)
		} else if denied := name == "AccessDenied" || name == "ExpiredToken"; errors.Is(err, fallback.ErrDenied) != denied {
			t.Errorf("%s: %v, denied: want %t", name, err, denied)
		}
	}
	for _, err := range []error{apiError("InternalError"), context.DeadlineExceeded, io.EOF} {
		if x := newStore(nil, nil).explain(err); errors.Is(x, fallback.ErrRefused) || errors.Is(x, fallback.ErrNotSent) {
			t.Errorf("%v: %v", err, x)
		}
	}
	if err := newStore(nil, nil).explain(apiError("SlowDown")); !errors.Is(err, fallback.ErrNotSent) {
		t.Errorf("SlowDown: %v", err)
	}
}

// A careless store keeps objects, and looks at one of the two conditions, or at none.
type careless struct {
	mu      sync.Mutex
	objects map[string][]byte
	looksAt string
}

// ServeHTTP implements [http.Handler].
func (c *careless) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	body, there := c.objects[r.URL.Path]
	etag := fmt.Sprintf("%q", fmt.Sprint(len(body)))
	switch {
	case r.Method == http.MethodGet && there:
		w.Header().Set("ETag", etag)
		_, _ = w.Write(body)
	case r.Method == http.MethodGet:
		w.WriteHeader(http.StatusNotFound)
	case c.looksAt == "If-None-Match" && r.Header.Get(c.looksAt) == "*" && there,
		c.looksAt == "If-Match" && r.Header.Get(c.looksAt) != "" && r.Header.Get(c.looksAt) != etag:
		w.WriteHeader(http.StatusPreconditionFailed)
	default:
		c.objects[r.URL.Path], _ = io.ReadAll(r.Body)
		w.Header().Set("ETag", etag)
	}
}

// A store that does not look at a condition would let two processes write the same version.
func TestS3_RefusesAStoreWithoutConditionalWrites(t *testing.T) {
	for looksAt, why := range map[string]string{"": "If-None-Match", "If-None-Match": "If-Match", "If-Match": "If-None-Match"} {
		server := httptest.NewServer(&careless{objects: make(map[string][]byte), looksAt: looksAt})
		storetest.Refused(t, fallback.NewRecords(newStore(clientOf(transport(t), server.URL, "any", "any"), &Options{Bucket: bucket}), quick), why)
		server.Close()
	}
}
