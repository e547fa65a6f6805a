//go:build unix

package mongodb

import (
	"errors"
	"flag"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"
	"go.mongodb.org/mongo-driver/v2/mongo/readpref"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"
	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/fallback/arbitertest"
	"github.com/holdfast-go/holdfast/internal/storetest"
	"github.com/holdfast-go/holdfast/internal/takes"
)

var long = flag.Bool("arbiters.full", false, "run what takes minutes, too")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Each arbiter has a client of its own, as a process has.
func TestMongodbConforms(t *testing.T) {
	shared := startServer(t)
	arbitertest.Run(t, arbitertest.Fixture{New: func(*testing.T) fallback.Arbiter { return shared.arbiter() }})
}

func TestMongodbConforms_Durable(t *testing.T) {
	takes.Seconds(t)
	arbitertest.RunDurable(t, func(t *testing.T) arbitertest.Cluster { return startServer(t).injuries() })
}

func TestMongodb_NoTwoHoldersOverKills(t *testing.T) {
	if !*long {
		t.Skip("takes a minute: make arbiters")
	}
	s := startServer(t)
	var injuries []func()
	for range 6 {
		injuries = append(injuries, s.kill)
	}
	storetest.NoTwoHolders(t, s.arbiter, injuries...)
}

func TestMongodb_WhatItCostsAtRest(t *testing.T) {
	if !*long {
		t.Skip("takes a minute: make arbiters")
	}
	storetest.AtRest(t, startServer(t).store(nil), recordsOptions)
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
func TestMongodb_ARestoredBackupIsNoticed(t *testing.T) {
	takes.Seconds(t)
	s := startServer(t)
	n := attach(t, s.arbiter())
	back := s.copied()
	opened, err := n.Open(t.Context(), "alice", fallback.Registration{TTL: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	a := lock(t, n, "k", alice)
	back()
	r, err := n.Witness(t.Context(), 0, a.Token)
	if err != nil || r.Grace == 0 {
		t.Errorf("Witness: %+v, %v", r, err)
	}
	l, err := n.Dead(t.Context(), "bob", fallback.Stamp{Session: "alice", Seen: opened.Expiry})
	if err != nil || l.Dead || l.Grace == 0 {
		t.Errorf("Dead: %+v, %v", l, err)
	}
}

// What is missing is in Grace for a process that was there before. A record that is made for the data of before is in Grace for all.
func TestMongodb_ADroppedCollectionIsNoticed(t *testing.T) {
	s := startServer(t)
	st := s.store(nil)
	n := attach(t, fallback.NewRecords(st, recordsOptions))
	lock(t, n, "k", alice)
	look, err := st.Load(t.Context(), []string{"ns/p0", "ns/p1"})
	if err != nil {
		t.Fatal(err)
	}
	if err := st.records().Drop(t.Context()); err != nil {
		t.Fatal(err)
	}
	done, err := st.Swap(t.Context(), look.Server, []fallback.Change{
		{Key: "ns/p0", Version: look.Values[0].Version, Value: look.Values[0].Value}, // a change
		{Key: "ns/p1", Value: look.Values[0].Value},                                  // a new record
	})
	if err != nil || done[0] || !done[1] {
		t.Fatalf("Swap: %v, %v, want the new one only", done, err)
	}
	for p := range uint32(3) {
		a, err := n.Lock(t.Context(), fallback.LockRequest{Partition: p, Key: "k", Me: bob, Block: 1})
		if err != nil || a.Verdict == fallback.Granted || a.Record.Grace == 0 {
			t.Errorf("Lock in partition %d: %+v, %v", p, a, err)
		}
	}
}

// The client's own concerns do not count.
func TestMongodb_WritesAreOfAMajorityAndReadsAreLinearizable(t *testing.T) {
	s := startServer(t)
	var mu sync.Mutex
	seen := make(map[string]int)
	client := s.watched(options.Client().SetWriteConcern(writeconcern.W1()).SetReadConcern(readconcern.Local()).
		SetReadPreference(readpref.SecondaryPreferred()), func(command bson.Raw) {
		mu.Lock()
		defer mu.Unlock()
		elements, err := command.Elements()
		if err != nil || len(elements) == 0 {
			t.Errorf("%v: %v", command, err)
			return
		}
		name := elements[0].Key()
		seen[name]++
		switch name {
		case "find":
			level, _ := command.Lookup("readConcern", "level").StringValueOK()
			mode, there := command.Lookup("$readPreference", "mode").StringValueOK()
			if level != "linearizable" || there && mode != "primary" && mode != "primaryPreferred" {
				t.Errorf("%v", command)
			}
		case "insert", "update":
			w, _ := command.Lookup("writeConcern", "w").StringValueOK()
			if j, _ := command.Lookup("writeConcern", "j").BooleanOK(); w != "majority" || !j {
				t.Errorf("%v", command)
			}
		}
	})
	n := attach(t, fallback.NewRecords(s.storeOf(client, nil), recordsOptions))
	lock(t, n, "k", alice)
	lock(t, n, "l", alice)
	mu.Lock()
	defer mu.Unlock()
	for _, name := range []string{"find", "insert", "update"} {
		if seen[name] == 0 {
			t.Errorf("there was no %s: %v", name, seen)
		}
	}
}

func TestMongodb_ManyRecordsAtOnce(t *testing.T) {
	s := startServer(t).store(&Options{Database: "some", Collection: "where"})
	if err := s.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	var keys []string
	var changes []fallback.Change
	for i := range 55 {
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
	large := func(n int) error {
		_, err := s.Swap(t.Context(), "", []fallback.Change{{Key: "large", Value: make([]byte, n)}})
		return err
	}
	if err := large(maxBytes); err != nil {
		t.Errorf("a record of %d bytes: %v", maxBytes, err)
	}
	if err := large(maxBytes + 1); !errors.Is(err, fallback.ErrRefused) {
		t.Errorf("a record of %d bytes: %v, want a refusal", maxBytes+1, err)
	}
}

func TestMongodb_Refuses(t *testing.T) {
	refused := func(client *mongo.Client, why string) {
		t.Helper()
		n, err := New(client, nil).Attach(t.Context(), settings)
		if !errors.Is(err, fallback.ErrRefused) || n != nil || !strings.Contains(err.Error(), why) {
			t.Errorf("got %v, want a refusal that names %s", err, why)
		}
	}
	refused(nil, "client")
	for code, why := range map[int32]string{13: "update", 18: "let the client in"} {
		if err := newStore(nil, nil).explain(mongo.CommandError{Code: code}); !errors.Is(err, fallback.ErrRefused) || !strings.Contains(err.Error(), why) {
			t.Errorf("code %d: %v, want a refusal that names %s", code, err, why)
		}
	}
	if err := newStore(nil, nil).explain(mongo.CommandError{Code: 10107}); errors.Is(err, fallback.ErrRefused) {
		t.Errorf("another primary: %v", err)
	}
	refused(startServer(t).client(nil), "FerretDB")
}
