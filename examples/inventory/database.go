package main

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// A database is a process's client of the one that all share. Its methods may be called by many
// goroutines.
//
// Both methods send nothing after ctx has ended. A statement that was sent is waited for: a sale
// without an answer may or may not have taken place.
type database interface {
	// Query returns the rows that a statement selects, of int64 and string.
	Query(ctx context.Context, text string, args ...any) ([][]any, error)

	// Exec returns the number of rows that a statement changed.
	Exec(ctx context.Context, text string, args ...any) (int64, error)

	// Close closes the connections. Nothing may be under way.
	Close()
}

// A place is where the database is. A worker gets it with its order.
type place struct {
	SQLite   string `json:"sqlite,omitempty"`   // address of the one that the parent serves
	Postgres string `json:"postgres,omitempty"` // how to connect to a server
	Schema   string `json:"schema,omitempty"`   // of the tables there: no other run's
}

// open returns a client with at most conns connections.
func (p place) open(conns int) (database, error) {
	if p.Postgres != "" {
		return openPostgres(p, conns)
	}
	return newStore(p.SQLite), nil
}

// A databaseServer is the database of one run, as the parent sees it.
type databaseServer struct {
	place
	name  string // for the report
	close func() error
}

// local is the value of -postgres that starts a server.
const local = "local"

// startDatabase returns a database with tables of the run's own: in the PostgreSQL server at dsn,
// in one that it starts if dsn is "local", or an embedded SQLite if it is empty.
func startDatabase(ctx context.Context, dsn, schema string) (_ *databaseServer, err error) {
	if dsn == "" {
		store, err := startStore()
		if err != nil {
			return nil, err
		}
		return &databaseServer{place{SQLite: store.addr}, "embedded SQLite", store.Close}, nil
	}
	stop := func() error { return nil }
	if dsn == local {
		if dsn, stop, err = startPostgres(ctx); err != nil {
			return nil, fmt.Errorf("-postgres local: %w", err)
		}
	}
	s := &databaseServer{place: place{Postgres: dsn, Schema: schema}}
	if s.name, err = s.createSchema(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("-postgres: %w", err), stop())
	}
	s.close = func() error {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		return errors.Join(s.dropSchema(ctx), stop())
	}
	return s, nil
}

// fill puts a new stock on the shelves.
func (s *sale) fill(ctx context.Context) error {
	statements := []string{
		`CREATE TABLE IF NOT EXISTS stock (sku TEXT PRIMARY KEY, units BIGINT NOT NULL, fence BIGINT NOT NULL)`,
		`DELETE FROM stock`,
	}
	if s.chaos {
		statements = append(statements, s.place.countSales()...)
	}
	for _, text := range statements {
		if _, err := s.db.Exec(ctx, text); err != nil {
			return err
		}
	}
	for i := range s.skus {
		if _, err := s.db.Exec(ctx, `INSERT INTO stock (sku, units, fence) VALUES ($1, $2, 0)`, skuName(i), s.stock); err != nil {
			return err
		}
	}
	return nil
}

// audit compares the sales, as each seller counted them, with the stock that is left. It returns
// the number of units sold that were not there: of each SKU, sold must be the missing units.
func (s *sale) audit(ctx context.Context, sold []int64) (oversold int64, err error) {
	for i, n := range sold {
		left, err := unitsOf(ctx, s.db, readUnits, i)
		if err != nil {
			return 0, err
		}
		// A lost update can also leave fewer units than the sales account for.
		oversold += max(n-(s.stock-left), (s.stock-left)-n)
	}
	return oversold, nil
}

// unitsOf returns the one number that a query for a SKU finds.
func unitsOf(ctx context.Context, db database, query string, sku int) (int64, error) {
	rows, err := db.Query(ctx, query, skuName(sku))
	if err != nil {
		return 0, err
	}
	return theNumber(rows, skuName(sku))
}

// theNumber returns the number of the row of a SKU.
func theNumber(rows [][]any, name string) (int64, error) {
	if len(rows) != 1 {
		return 0, fmt.Errorf("%s: %d rows", name, len(rows))
	}
	units, ok := rows[0][0].(int64)
	if !ok {
		return 0, fmt.Errorf("%s: units are %v", name, rows[0][0])
	}
	return units, nil
}
