package sqlite_test

import (
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

// Fifty nodes, which share one store, renew their sessions in one record.
func TestSQLite_FiftyNodes(t *testing.T) {
	storetest.Minutes(t)
	storetest.Crowd(t, 50, 2*time.Minute, sqlite.Store(filepath.Join(t.TempDir(), "locks.db")), &fallback.RecordsOptions{ColdStart: true})
}
