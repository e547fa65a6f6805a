//go:build unix

package kubernetes

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/flowcontrol"
	"sigs.k8s.io/yaml"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/fallback/arbitertest"
	"github.com/holdfast-go/holdfast/internal/await"
	"github.com/holdfast-go/holdfast/internal/loopback"
	"github.com/holdfast-go/holdfast/internal/storetest"
	"github.com/holdfast-go/holdfast/internal/storetest/owners"
	"github.com/holdfast-go/holdfast/internal/takes"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Each arbiter has connections of its own, as a process has.
func TestKubernetesConforms(t *testing.T) {
	takes.Seconds(t)
	shared := startCluster(t, 1)
	arbitertest.Run(t, arbitertest.Fixture{
		New: func(*testing.T) fallback.Arbiter { return shared.arbiter() },
	})
}

func TestKubernetesConforms_Durable(t *testing.T) {
	takes.Seconds(t)
	servers := 1
	if storetest.Full() {
		servers = 2
	}
	arbitertest.RunDurable(t, func(t *testing.T) arbitertest.Cluster { return startCluster(t, servers).injuries() })
}

func TestKubernetes_NoTwoHoldersOverKills(t *testing.T) {
	storetest.Minutes(t)
	c := startCluster(t, 2)
	var lines storetest.Lines
	var injuries []func()
	for range 4 {
		injuries = append(injuries, c.kill, c.restart, c.cut, func() {
			heal := c.stop()
			time.AfterFunc(3*time.Second, heal)
		}, func() { lines.Cut(4 * time.Second) })
	}
	storetest.NoTwoHolders(t, func() fallback.Arbiter { return c.arbiterBy(lines.Another(t), isNew) }, injuries...)
}

// Older data are put back while processes hold locks, as README.md says to do it.
func TestKubernetes_NoTwoHoldersOverRestores(t *testing.T) {
	storetest.Minutes(t)
	c := startCluster(t, 1)
	var lines storetest.Lines
	var injuries []func()
	for range 4 {
		injuries = append(injuries, lines.Restored(c.copied, func() { c.remove(c.store().markName()) })...)
	}
	storetest.NoTwoHolders(t, func() fallback.Arbiter { return c.arbiterBy(lines.Another(t), nil) }, injuries...)
}

func TestKubernetes_WhatItCostsAtRest(t *testing.T) {
	storetest.Minutes(t)
	storetest.AtRest(t, startCluster(t, 1).store(), recordsOptions(isNew))
}

func TestKubernetes_WhatOwnersCost(t *testing.T) {
	storetest.Minutes(t)
	c := startCluster(t, 1)
	var mu sync.Mutex
	all := make(map[string]int64)
	start := func() fallback.Arbiter {
		return fallback.NewRecords(c.storeOf(watched(c.config(app), func(r *http.Request, _ http.Header) {
			mu.Lock()
			defer mu.Unlock()
			kind := r.Method
			if r.URL.Query().Has("labelSelector") {
				kind = "LIST"
			}
			all[kind]++
		}), nil), recordsOptions(isNew))
	}
	counted := func() map[string]int64 {
		mu.Lock()
		defer mu.Unlock()
		return maps.Clone(all)
	}
	advised := coord.Options{Namespace: "advised", SessionTTL: 30 * time.Second, RenewEvery: 5 * time.Second}
	owners.AtRest(t, start, advised, counted)
	owners.AtRest(t, start, advised, counted) // its records are there now
}

// Old data are told by the processes that have seen newer ones.
func TestKubernetes_ARestoredBackupIsNoticed(t *testing.T) {
	takes.Seconds(t)
	c := startCluster(t, 1)
	storetest.OldDataAreNoticed(t, c.arbiter(), c.copied)
}

func TestKubernetes_TokensRiseOverARestore(t *testing.T) {
	takes.Seconds(t)
	c := startCluster(t, 1)
	storetest.TokensRise(t, func() fallback.Arbiter { return fallback.NewRecords(c.store(), recordsOptions(nil)) }, c.copied, func() { c.remove(c.store().markName()) })
}

// These subtests need one cluster without injuries, and share it.
func TestKubernetes(t *testing.T) {
	takes.Seconds(t)
	c := startCluster(t, 2)
	t.Run("deleted data are noticed", func(t *testing.T) { deletedData(t, c) })
	t.Run("many records at once", func(t *testing.T) { manyRecords(t, c) })
	t.Run("the manifest's priority is in force", func(t *testing.T) { priority(t, c) })
	t.Run("refuses", func(t *testing.T) { refuses(t, c) })
	t.Run("errors tell whether a write was executed", func(t *testing.T) { errorsTell(t, c) })
	t.Run("a server that stands still behind a load balancer", func(t *testing.T) { standsStill(t, c) })
}

// Missing data are in Grace for a process that was there before.
func deletedData(t *testing.T, c *cluster) {
	n := storetest.Attach(t, c.arbiter())
	if _, err := n.Open(t.Context(), "alice", fallback.Registration{TTL: time.Hour}); err != nil {
		t.Fatal(err)
	}
	storetest.Lock(t, n, "k", storetest.Alice)
	c.clear()
	storetest.InGrace(t, n, "k", 0)
	c.clear()
	s := c.store()
	var first, then fallback.Look
	err := s.Open(t.Context())
	if err == nil {
		first, err = s.Load(t.Context(), nil)
	}
	c.clear()
	await.Until(t, "another mark", func() bool {
		if err == nil {
			then, err = s.Load(t.Context(), nil)
		}
		return err != nil || then.Server != first.Server
	})
	if err != nil {
		t.Error(err)
	}
}

func manyRecords(t *testing.T, c *cluster) {
	s := c.store()
	if err := s.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	keys := storetest.Names("many names, of %any kind/p", 300)
	storetest.Many(t, s, keys, 0, func(look fallback.Look) {
		few, err := s.Load(t.Context(), keys[:maxGets])
		if err != nil {
			t.Fatal(err)
		}
		for i, v := range few.Values {
			if v.Version != look.Values[i].Version {
				t.Errorf("record %d has the version %s by itself, and %s in a list", i, v.Version, look.Values[i].Version)
			}
		}
	})
	storetest.Largest(t, s, "ns/large", maxBytes)
}

// seen shows the answers of an API server.
type seen struct {
	http.RoundTripper
	see func(*http.Request, http.Header)
}

func (x seen) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := x.RoundTripper.RoundTrip(r)
	if err == nil {
		x.see(r, answer.Header)
	}
	return answer, err
}

// WrappedRoundTripper is for code that closes idle connections.
func (x seen) WrappedRoundTripper() http.RoundTripper { return x.RoundTripper }

func watched(config *rest.Config, see func(*http.Request, http.Header)) *rest.Config {
	config.Wrap(func(r http.RoundTripper) http.RoundTripper { return seen{r, see} })
	return config
}

// The rules of rights.yaml match the requests of a store, from the first request on and after the
// server has noticed them.
func priority(t *testing.T, c *cluster) {
	var mu sync.Mutex
	seen := make(map[string]bool)
	s, root := c.storeOf(watched(c.config(app), func(_ *http.Request, h http.Header) {
		mu.Lock()
		defer mu.Unlock()
		seen[h.Get("X-Kubernetes-Pf-Flowschema-Uid")] = true
	}), nil), c.storeOf(c.config(admin), nil)
	if err := errors.Join(s.connect(), root.connect()); err != nil {
		t.Fatal(err)
	}
	text, err := root.client.Get().AbsPath("/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas/holdfast-orders").
		SetHeader("Accept", "application/json").Do(t.Context()).Raw()
	if err != nil {
		t.Fatal(err)
	}
	var schema metav1.PartialObjectMetadata
	if err := json.Unmarshal(text, &schema); err != nil {
		t.Fatal(err)
	}
	await.Until(t, "all requests go by the manifest's FlowSchema", func() bool {
		mu.Lock()
		clear(seen)
		mu.Unlock()
		if err := s.Open(t.Context()); err != nil { // it gets, lists and updates
			t.Fatal(err)
		}
		mu.Lock()
		defer mu.Unlock()
		return len(seen) == 1 && seen[string(schema.UID)]
	})
}

func refuses(t *testing.T, c *cluster) {
	refused := func(config *rest.Config, opts *Options, why string) {
		t.Helper()
		storetest.Refused(t, fallback.NewRecords(c.storeOf(config, opts), recordsOptions(isNew)), why)
	}
	with := func(change func(*rest.Config)) *rest.Config {
		config := c.config(app)
		change(config)
		return config
	}
	here := &Options{Namespace: "orders-locks"}
	storetest.Refused(t, New(nil, here), "")
	refused(c.config(app), &Options{}, "Namespace")
	refused(c.config(app), &Options{Namespace: "orders-locks", Prefix: "Holdfast"}, "Prefix")
	refused(c.config(app), &Options{Namespace: "orders-locks", Prefix: "a-prefix-that-is-too-long"}, "Prefix")
	refused(with(func(c *rest.Config) { c.QPS = 5 }), here, "QPS")
	refused(with(func(c *rest.Config) { c.RateLimiter = flowcontrol.NewTokenBucketRateLimiter(5, 10) }), here, "RateLimiter")
	refused(c.config(app), &Options{Namespace: "default"}, "verbs")
	refused(c.config(app), &Options{Namespace: "orders"}, "verbs") // its own: the program may read no Secrets there
	refused(c.config(readOnly), &Options{Namespace: "orders-locks", Prefix: "new"}, "verbs")
	refused(c.config("stranger"), here, "let the client in")
	refused(c.config(admin), &Options{Namespace: "missing"}, "missing")
	limited := with(func(c *rest.Config) { c.QPS, c.Burst = 200, 400 })
	storetest.Lock(t, storetest.Attach(t, fallback.NewRecords(c.storeOf(limited, nil), recordsOptions(isNew))), "k", storetest.Alice)
	refused(c.config(readOnly), here, "verbs") // the mark is there, so it has nothing to create
	c.clear()
}

func errorsTell(t *testing.T, c *cluster) {
	s := c.store()
	if err := s.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	look, err := s.Load(t.Context(), []string{"ns/k"})
	if err != nil {
		t.Fatal(err)
	}
	change := []fallback.Change{{Key: "ns/k", Value: []byte("v")}}
	away := c.config(app)
	nowhere := loopback.Address(t)
	away.Dial, away.Host = nil, "https://"+nowhere
	without := c.storeOf(away, nil)
	if err := without.connect(); err != nil {
		t.Fatal(err)
	}
	if _, err := without.Swap(t.Context(), look.Server, change); !errors.Is(err, fallback.ErrNotSent) {
		t.Errorf("without a server: %v", err)
	}
	if done, err := s.Swap(t.Context(), look.Server, change); err != nil || !done[0] {
		t.Errorf("Swap: %v, %v", done, err)
	}
	if done, err := s.Swap(t.Context(), look.Server, change); err != nil || done[0] {
		t.Errorf("a second time: %v, %v", done, err)
	}
	c.clear()
	gone := []fallback.Change{{Key: "ns/k", Version: "1", Value: []byte("v")}}
	if done, err := s.Swap(t.Context(), look.Server, gone); err != nil || done[0] {
		t.Errorf("of a record that was deleted: %v, %v", done, err)
	}
}

// Calls that are given up end their connections, so that the next one is led elsewhere.
func standsStill(t *testing.T, c *cluster) {
	s := c.store()
	if err := s.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	look, err := s.Load(t.Context(), []string{"ns/k"})
	if err != nil {
		t.Fatal(err)
	}
	heal := c.stop()
	defer heal()
	call := func(d time.Duration) (context.Context, context.CancelFunc) {
		return context.WithTimeout(t.Context(), d)
	}
	short, cancel := call(200 * time.Millisecond)
	defer cancel()
	if _, err := s.Swap(short, look.Server, []fallback.Change{{Key: "ns/k"}}); err == nil || errors.Is(err, fallback.ErrNotSent) {
		t.Errorf("Swap at a server that stands still: %v, want that it is unknown", err)
	}
	enough, cancel := call(2 * tryFor)
	defer cancel()
	if _, err := s.Load(enough, []string{"ns/k"}); err != nil {
		t.Errorf("Load with a server that stands still, and another one: %v", err)
	}
}

// An API server says of a quota that it is forbidden, as of a right that is missing.
func TestKubernetes_AQuotaIsNoMissingRight(t *testing.T) {
	const answer = `{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Forbidden", "code": 403, "message":
		"secrets \"holdfast.ns.p1\" is forbidden: exceeded quota: objects, requested: count/secrets=1, used: count/secrets=9, limited: count/secrets=9"}`
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusForbidden)
		_, _ = w.Write([]byte(answer))
	}))
	defer server.Close()
	s := newStore(&rest.Config{Host: server.URL}, &Options{Namespace: "orders-locks"})
	if err := s.connect(); err != nil {
		t.Fatal(err)
	}
	defer utilnet.CloseIdleConnectionsFor(s.client.Client.Transport)
	_, err := s.Swap(t.Context(), "mark", []fallback.Change{{Key: "ns/p1", Value: []byte("v")}})
	if !errors.Is(err, fallback.ErrFull) {
		t.Errorf("%v, want ErrFull", err)
	}
	for _, part := range []string{"ResourceQuota", "exceeded quota: objects", "Partitions"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%v, want that it names %s", err, part)
		}
	}
}

// rights.yaml gives no right in a namespace with service accounts of programs: their tokens are
// Secrets, too.
func TestKubernetes_RightsToRecordsAlone(t *testing.T) {
	text, err := os.ReadFile("rights.yaml")
	if err != nil {
		t.Fatal(err)
	}
	granted := make(map[string]bool)
	for _, part := range strings.Split(string(text), "\n---\n") {
		var x struct {
			metav1.PartialObjectMetadata `json:",inline"`
			Subjects                     []struct{ Namespace string }
		}
		if err := yaml.Unmarshal([]byte(part), &x); err != nil {
			t.Fatal(err)
		}
		if x.Kind == "Role" || x.Kind == "RoleBinding" {
			granted[x.Namespace] = true
		}
		for _, s := range x.Subjects {
			if granted[s.Namespace] {
				t.Errorf("a program of the namespace %q may read its Secrets", s.Namespace)
			}
		}
	}
	if len(granted) != 1 {
		t.Errorf("rights in the namespaces %v", granted)
	}
}
