//go:build unix

package consul

import (
	"errors"
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

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestConsulConforms(t *testing.T) {
	shared := startFake(t, nil)
	arbitertest.Run(t, arbitertest.Fixture{
		New: func(*testing.T) fallback.Arbiter { return New(shared.client(""), isNew) },
	})
}

func TestConsulConforms_Durable(t *testing.T) {
	takes.Seconds(t)
	arbitertest.RunDurable(t, func(t *testing.T) arbitertest.Cluster { return startFake(t, nil).injuries() })
}

func TestConsul_NoTwoHoldersOverElections(t *testing.T) {
	takes.Seconds(t)
	f := startFake(t, nil)
	var lines storetest.Lines
	injuries := []func(){f.election, f.election, f.election, f.election}
	if storetest.Full() {
		for range 4 {
			injuries = append(injuries, f.leaderless, f.answerLost, f.CloseClientConnections, func() { lines.Cut(4 * time.Second) })
		}
	}
	storetest.NoTwoHolders(t, func() fallback.Arbiter { return New(f.clientBy(lines.Another(t)), isNew) }, injuries...)
}

// Older data are put back while processes hold locks, as README.md says to do it.
func TestConsul_NoTwoHoldersOverRestores(t *testing.T) {
	storetest.Minutes(t)
	f := startFake(t, nil)
	var lines storetest.Lines
	var injuries []func()
	for range 4 {
		injuries = append(injuries, lines.Restored(f.snapshot, f.unmark)...)
	}
	storetest.NoTwoHolders(t, func() fallback.Arbiter { return New(f.clientBy(lines.Another(t)), nil) }, injuries...)
}

func TestConsul_WhatItCostsAtRest(t *testing.T) {
	storetest.Minutes(t)
	storetest.AtRest(t, newStore(startFake(t, nil).client(""), nil), recordsOptions(isNew))
}

// Old data are told by the processes that have seen newer ones.
func TestConsul_ARestoredSnapshotIsNoticed(t *testing.T) {
	f := startFake(t, nil)
	storetest.OldDataAreNoticed(t, New(f.client(""), isNew), f.snapshot)
}

func TestConsul_TokensRiseOverARestore(t *testing.T) {
	takes.Seconds(t)
	f := startFake(t, nil)
	storetest.TokensRise(t, func() fallback.Arbiter { return New(f.client(""), nil) }, f.snapshot, f.unmark)
}

// Missing data are in Grace for a process that was there before. A write that began before they
// went missing is not executed.
func TestConsul_DeletedDataAreNoticed(t *testing.T) {
	f := startFake(t, nil)
	empty := f.snapshot()
	s := newStore(f.client(""), nil)
	n := storetest.Attach(t, fallback.NewRecords(s, recordsOptions(isNew)))
	if _, err := n.Open(t.Context(), "alice", fallback.Registration{TTL: time.Hour}); err != nil {
		t.Fatal(err)
	}
	storetest.Lock(t, n, "k", storetest.Alice)
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
	storetest.InGrace(t, n, "k", 0)
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
		status                   int
		text                     string
		certain, refused, denied bool
	}{
		"no leader":            {http.StatusInternalServerError, "No cluster leader", false, false, false},
		"lost leadership":      {http.StatusInternalServerError, "leadership lost while committing log", false, false, false},
		"rate limit":           {http.StatusTooManyRequests, "rate limit exceeded, try again later or against a different server", true, false, false},
		"no rights":            {http.StatusForbidden, "Permission denied: token lacks permission", false, true, true},
		"a lower limit":        {http.StatusRequestEntityTooLarge, "Request body(10 bytes) too large, max size: 9 bytes.", false, true, false},
		"something in between": {http.StatusBadGateway, "", false, false, false},
	} {
		f.Mu.Lock()
		f.Before = func(writes bool) (int, string) {
			if writes {
				return x.status, x.text
			}
			return 0, ""
		}
		f.Mu.Unlock()
		_, err := s.Swap(t.Context(), look.Server, change)
		if err == nil || errors.Is(err, fallback.ErrNotSent) != x.certain || errors.Is(err, fallback.ErrRefused) != x.refused || errors.Is(err, fallback.ErrDenied) != x.denied {
			t.Errorf("%s: %v", name, err)
		}
	}
	f.Mu.Lock()
	f.Before, f.Lose = nil, func(writes bool) bool { return writes }
	f.Mu.Unlock()
	if _, err := s.Swap(t.Context(), look.Server, change); err == nil || errors.Is(err, fallback.ErrNotSent) || errors.Is(err, fallback.ErrRefused) {
		t.Errorf("an answer that is lost: %v", err)
	}
	f.Mu.Lock()
	f.Lose = nil
	f.Mu.Unlock()
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
	storetest.Many(t, s, storetest.Names("k", 300), 0, nil)
	storetest.Largest(t, s, "large", maxBytes)
}

func TestConsul_Refuses(t *testing.T) {
	f := startFake(t, map[string]string{"app": "holdfast/", "": "none"})
	refused := func(client *api.Client, opts *Options, why string) {
		t.Helper()
		storetest.Refused(t, New(client, opts), why)
	}
	refused(nil, nil, "client")
	refused(f.client("app"), &Options{Prefix: "/holdfast/"}, "Prefix")
	refused(f.client("app"), &Options{Prefix: "a/../b/"}, "Prefix")
	refused(f.client("app"), &Options{Prefix: "other/"}, "policy")
	refused(f.client(""), nil, "policy")
	refused(f.client("unknown"), nil, "policy")
	storetest.Lock(t, storetest.Attach(t, New(f.client("app"), isNew)), "k", storetest.Alice)
	old := startFake(t, nil)
	old.Old = true
	refused(old.client(""), nil, "1.14")
}
