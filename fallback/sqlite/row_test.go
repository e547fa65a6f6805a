package sqlite_test

import (
	"flag"
	"path/filepath"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/fallback/sqlite"
	"github.com/holdfast-go/holdfast/internal/storetest"
	"github.com/holdfast-go/holdfast/internal/storetest/owners"
)

func TestSQLite_WhatItCostsAtRest(t *testing.T) {
	storetest.Minutes(t)
	storetest.AtRest(t, sqlite.Store(filepath.Join(t.TempDir(), "locks.db")), &fallback.RecordsOptions{ColdStart: true})
}

// Users of SQLite lock the file as a whole, by a transaction: there is no lock of a key.
func TestSQLite_Row(t *testing.T) {
	owners.Row(t, owners.Store{
		Name:  "a file",
		Serve: func() string { return filepath.Join(t.TempDir(), "locks.db") },
		Open:  func(path string) fallback.Arbiter { return sqlite.New(path, nil) },
	})
}

var nodes = flag.Int("sqlite.nodes", 20, "how many nodes there are on one file")

// Nodes on one file renew in one record at the same moments: so many lose no lock, also on a
// machine that is busy. Fifty may.
func TestSQLite_ACrowd(t *testing.T) {
	storetest.Minutes(t)
	storetest.Crowd(t, *nodes, time.Minute, sqlite.Store(filepath.Join(t.TempDir(), "locks.db")), &fallback.RecordsOptions{ColdStart: true})
}
