//go:build unix

package consul

import (
	"errors"
	"flag"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"
	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/fallback/arbitertest"
	"github.com/holdfast-go/holdfast/internal/loopback"
	"github.com/holdfast-go/holdfast/internal/storetest"
	"github.com/holdfast-go/holdfast/internal/takes"
)

var long = flag.Bool("arbiters.full", false, "run what takes minutes, too")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestConsulConforms(t *testing.T) {
	shared := startFake(t, nil)
	arbitertest.Run(t, arbitertest.Fixture{
		New: func(*testing.T) fallback.Arbiter { return New(shared.client(""), nil) },
	})
}

func TestConsulConforms_Durable(t *testing.T) {
	takes.Seconds(t)
	arbitertest.RunDurable(t, func(t *testing.T) arbitertest.Cluster { return startFake(t, nil).injuries() })
}

func TestConsul_NoTwoHoldersOverElections(t *testing.T) {
	takes.Seconds(t)
	f := startFake(t, nil)
	storetest.NoTwoHolders(t, func() fallback.Arbiter { return New(f.client(""), nil) }, f.election, f.election, f.election, f.election)
}

func TestConsul_WhatItCostsAtRest(t *testing.T) {
	if !*long {
		t.Skip("takes a minute: make arbiters")
	}
	storetest.AtRest(t, newStore(startFake(t, nil).client(""), nil), recordsOptions)
}

var (
	settings = fallback.Settings{Namespace: "ns", Partitions: 4, Grace: time.Hour}
	alice    = fallback.Identity{Session: "alice", Request: 1}
	bob      = fallback.Identity{Session: "bob", Request: 1}
)

func attach(t *testing.T, a fallback.Arbiter) fallback.Namespace {
	t.Helper()
	n, err := a.Attach(t.Context(), settings)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	})
	return n
}

func lock(t *testing.T, n fallback.Namespace, key string, me fallback.Identity) fallback.LockAnswer {
	t.Helper()
	a, err := n.Lock(t.Context(), fallback.LockRequest{Key: key, Me: me, Block: 1})
	if err != nil || a.Verdict != fallback.Granted {
		t.Fatalf("Lock(%q): %+v, %v", key, a, err)
	}
	return a
}

// Old data are told by the processes that have seen newer ones.
func TestConsul_ARestoredSnapshotIsNoticed(t *testing.T) {
	f := startFake(t, nil)
	n := attach(t, New(f.client(""), nil))
	restore := f.snapshot()
	opened, err := n.Open(t.Context(), "alice", fallback.Registration{TTL: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	a := lock(t, n, "k", alice)
	restore()
	r, err := n.Witness(t.Context(), 0, a.Token)
	if err != nil || r.Grace == 0 {
		t.Errorf("Witness: %+v, %v", r, err)
	}
	l, err := n.Dead(t.Context(), "bob", fallback.Stamp{Session: "alice", Seen: opened.Expiry})
	if err != nil || l.Dead || l.Grace == 0 {
		t.Errorf("Dead: %+v, %v", l, err)
	}
}

// What is missing is in Grace for a process that was there before, and a write that began before that is not executed.
func TestConsul_DeletedDataAreNoticed(t *testing.T) {
	f := startFake(t, nil)
	empty := f.snapshot()
	s := newStore(f.client(""), nil)
	n := attach(t, fallback.NewRecords(s, recordsOptions))
	if _, err := n.Open(t.Context(), "alice", fallback.Registration{TTL: time.Hour}); err != nil {
		t.Fatal(err)
	}
	lock(t, n, "k", alice)
	look, err := s.Load(t.Context(), []string{"other"})
	if err != nil {
		t.Fatal(err)
	}
	empty()
	swap := func() {
		t.Helper()
		if done, err := s.Swap(t.Context(), look.Server, []fallback.Change{{Key: "other", Value: []byte("v")}}); err != nil || done[0] {
			t.Errorf("Swap at the server of before: %v, %v", done, err)
		}
	}
	swap()
	empty()
	again, err := newStore(f.client(""), nil).Load(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	_, index, _ := strings.Cut(look.Server, "-")
	if _, same, _ := strings.Cut(again.Server, "-"); same != index || again.Server == look.Server {
		t.Fatalf("after %s comes %s, want another mark of the same index", look.Server, again.Server)
	}
	swap()
	a, err := n.Lock(t.Context(), fallback.LockRequest{Key: "k", Me: bob, Block: 1})
	if err != nil || a.Verdict == fallback.Granted || a.Record.Grace == 0 {
		t.Errorf("Lock of a key that was held: %+v, %v", a, err)
	}
}

func TestConsul_ErrorsTellWhetherAWriteWasExecuted(t *testing.T) {
	f := startFake(t, nil)
	s := newStore(f.client(""), nil)
	if err := s.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	look, err := s.Load(t.Context(), []string{"k"})
	if err != nil {
		t.Fatal(err)
	}
	change := []fallback.Change{{Key: "k", Value: []byte("v")}}
	for name, x := range map[string]struct {
		status           int
		text             string
		certain, refused bool
	}{
		"no leader":            {http.StatusInternalServerError, "No cluster leader", false, false},
		"lost leadership":      {http.StatusInternalServerError, "leadership lost while committing log", false, false},
		"rate limit":           {http.StatusTooManyRequests, "rate limit exceeded, try again later or against a different server", true, false},
		"no rights":            {http.StatusForbidden, "Permission denied: token lacks permission", false, true},
		"a lower limit":        {http.StatusRequestEntityTooLarge, "Request body(10 bytes) too large, max size: 9 bytes.", false, true},
		"something in between": {http.StatusBadGateway, "", false, false},
	} {
		f.mu.Lock()
		f.before = func(writes bool) (int, string) {
			if writes {
				return x.status, x.text
			}
			return 0, ""
		}
		f.mu.Unlock()
		_, err := s.Swap(t.Context(), look.Server, change)
		if err == nil || errors.Is(err, fallback.ErrNotSent) != x.certain || errors.Is(err, fallback.ErrRefused) != x.refused {
			t.Errorf("%s: %v", name, err)
		}
	}
	f.mu.Lock()
	f.before, f.lose = nil, func(writes bool) bool { return writes }
	f.mu.Unlock()
	if _, err := s.Swap(t.Context(), look.Server, change); err == nil || errors.Is(err, fallback.ErrNotSent) || errors.Is(err, fallback.ErrRefused) {
		t.Errorf("an answer that is lost: %v", err)
	}
	f.mu.Lock()
	f.lose = nil
	f.mu.Unlock()
	if look, err := s.Load(t.Context(), []string{"k"}); err != nil || string(look.Values[0].Value) != "v" {
		t.Errorf("%+v, %v, want what was written", look, err)
	}
	if done, err := s.Swap(t.Context(), look.Server, change); err != nil || done[0] {
		t.Errorf("a second time: %v, %v", done, err)
	}
	client, err := api.NewClient(&api.Config{Address: loopback.Address(t), HttpClient: new(http.Client)})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := newStore(client, nil).Swap(t.Context(), look.Server, change); !errors.Is(err, fallback.ErrNotSent) {
		t.Errorf("without a server: %v", err)
	}
}

func TestConsul_ManyRecordsAtOnce(t *testing.T) {
	s := newStore(startFake(t, nil).client(""), &Options{Prefix: "many/"})
	if err := s.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	var keys []string
	var changes []fallback.Change
	for i := range 300 {
		keys = append(keys, fmt.Sprint("k", i))
		changes = append(changes, fallback.Change{Key: keys[i]})
	}
	for round := range 3 {
		look, err := s.Load(t.Context(), keys)
		if err != nil || len(look.Values) != len(keys) {
			t.Fatalf("%d values, %v", len(look.Values), err)
		}
		for i := range changes {
			if round > 0 && string(look.Values[i].Value) != fmt.Sprint(round-1, i) {
				t.Fatalf("round %d, record %d: %+v", round, i, look.Values[i])
			}
			changes[i].Value = fmt.Append(nil, round, i)
			if round == 2 && i%2 == 0 {
				continue // it has the version of before: it is not written
			}
			changes[i].Version = look.Values[i].Version
		}
		done, err := s.Swap(t.Context(), look.Server, changes)
		if err != nil || len(done) != len(changes) {
			t.Fatalf("%d done, %v", len(done), err)
		}
		for i, ok := range done {
			if ok == (round == 2 && i%2 == 0) {
				t.Fatalf("round %d, change %d: %t", round, i, ok)
			}
		}
	}
	look, err := s.Load(t.Context(), []string{"large"})
	if err != nil {
		t.Fatal(err)
	}
	large := func(n int) error {
		_, err := s.Swap(t.Context(), look.Server, []fallback.Change{{Key: "large", Value: make([]byte, n)}})
		return err
	}
	if err := large(maxBytes); err != nil {
		t.Errorf("a record of %d bytes: %v", maxBytes, err)
	}
	if err := large(maxBytes + 1); !errors.Is(err, fallback.ErrRefused) {
		t.Errorf("a record of %d bytes: %v, want a refusal", maxBytes+1, err)
	}
}

func TestConsul_Refuses(t *testing.T) {
	f := startFake(t, map[string]string{"app": "holdfast/", "": "none"})
	refused := func(client *api.Client, opts *Options, why string) {
		t.Helper()
		n, err := New(client, opts).Attach(t.Context(), settings)
		if !errors.Is(err, fallback.ErrRefused) || n != nil || !strings.Contains(err.Error(), why) {
			t.Errorf("got %v, want a refusal that names %s", err, why)
		}
	}
	refused(nil, nil, "client")
	refused(f.client("app"), &Options{Prefix: "/holdfast/"}, "Prefix")
	refused(f.client("app"), &Options{Prefix: "a/../b/"}, "Prefix")
	refused(f.client("app"), &Options{Prefix: "other/"}, "policy")
	refused(f.client(""), nil, "policy")
	refused(f.client("unknown"), nil, "policy")
	lock(t, attach(t, New(f.client("app"), nil)), "k", alice)
	old := startFake(t, nil)
	old.old = true
	refused(old.client(""), nil, "1.14")
}
