//go:build unix

package mongodb

import (
	"errors"
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
	"github.com/holdfast-go/holdfast/internal/standin"
	"github.com/holdfast-go/holdfast/internal/storetest"
	"github.com/holdfast-go/holdfast/internal/takes"
)

func TestMain(m *testing.M) {
	standin.MongoDB.Store(true)
	goleak.VerifyTestMain(m)
}

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
	storetest.Minutes(t)
	s := startServer(t)
	var lines storetest.Lines
	var injuries []func()
	for range 6 {
		injuries = append(injuries, s.kill, func() { lines.Cut(4 * time.Second) })
	}
	storetest.NoTwoHolders(t, func() fallback.Arbiter { return s.arbiterBy(lines.Another(t), isNew) }, injuries...)
}

// Older data are put back while processes hold locks, as README.md says to do it.
func TestMongodb_NoTwoHoldersOverRestores(t *testing.T) {
	storetest.Minutes(t)
	s := startServer(t)
	var lines storetest.Lines
	var injuries []func()
	for range 4 {
		injuries = append(injuries, lines.Restored(s.copied, s.unmark)...)
	}
	storetest.NoTwoHolders(t, func() fallback.Arbiter { return s.arbiterBy(lines.Another(t), nil) }, injuries...)
}

func TestMongodb_WhatItCostsAtRest(t *testing.T) {
	storetest.Minutes(t)
	storetest.AtRest(t, startServer(t).store(nil), recordsOptions(isNew))
}

// Old data are told by the processes that have seen newer ones.
func TestMongodb_ARestoredBackupIsNoticed(t *testing.T) {
	takes.Seconds(t)
	s := startServer(t)
	storetest.OldDataAreNoticed(t, s.arbiter(), s.copied)
}

func TestMongodb_TokensRiseOverARestore(t *testing.T) {
	takes.Seconds(t)
	s := startServer(t)
	storetest.TokensRise(t, func() fallback.Arbiter { return New(s.client(nil), nil) }, s.copied, s.unmark)
}

// Missing data are in Grace for a process that was there before. A record that is made for the
// earlier data is in Grace for all.
func TestMongodb_ADroppedCollectionIsNoticed(t *testing.T) {
	s := startServer(t).store(nil)
	storetest.LoseBetween(t, s, recordsOptions(isNew), func() {
		if err := s.records().Drop(t.Context()); err != nil {
			t.Fatal(err)
		}
	}, func() {})
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
	n := storetest.Attach(t, New(client, isNew))
	storetest.Lock(t, n, "k", storetest.Alice)
	storetest.Lock(t, n, "l", storetest.Alice)
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
	storetest.Many(t, s, storetest.Names("k", 55), 0, nil)
	storetest.Largest(t, s, "large", maxBytes)
}

func TestMongodb_Refuses(t *testing.T) {
	storetest.Refused(t, New(nil, nil), "client")
	for code, why := range map[int32]string{13: "update", 18: "let the client in"} {
		if err := newStore(nil, nil).explain(mongo.CommandError{Code: code}); !errors.Is(err, fallback.ErrRefused) || !strings.Contains(err.Error(), why) {
			t.Errorf("code %d: %v, want a refusal that names %s", code, err, why)
		}
	}
	if err := newStore(nil, nil).explain(mongo.CommandError{Code: 10107}); errors.Is(err, fallback.ErrRefused) {
		t.Errorf("another primary: %v", err)
	}
	s := startServer(t)
	standin.MongoDB.Store(false)
	defer standin.MongoDB.Store(true)
	storetest.Refused(t, New(s.client(nil), nil), "FerretDB")
}
