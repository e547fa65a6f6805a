//go:build unix

package mysql

import (
	"errors"
	"testing"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/storetest"
)

// Describe makes no table, and no mark in one, and finds a namespace where there is one.
func TestMySQL_DescribeChangesNothing(t *testing.T) {
	s := startServer(t)
	a := New(s.config("app"), options())
	none := func(what string) {
		t.Helper()
		if _, err := a.(fallback.Describer).Describe(t.Context(), storetest.Settings.Namespace); !errors.Is(err, fallback.ErrNoNamespace) {
			t.Errorf("%s: %v", what, err)
		}
	}
	db := s.open(s.now.Load())
	defer db.Close()
	count := func(query string) (n int) {
		t.Helper()
		if err := db.QueryRow(query).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	none("without a table")
	if n := count(`SELECT COUNT(*) FROM information_schema.TABLES WHERE TABLE_SCHEMA = 'hf'`); n != 0 {
		t.Errorf("Describe has made %d tables", n)
	}
	s.must(Table("hf.holdfast"))
	none("with an empty table")
	if n := count(`SELECT COUNT(*) FROM hf.holdfast`); n != 0 {
		t.Errorf("Describe has written %d records", n)
	}
	storetest.Attach(t, a)
	found, err := a.(fallback.Describer).Describe(t.Context(), storetest.Settings.Namespace)
	if err != nil || found.Partitions != storetest.Settings.Partitions {
		t.Errorf("%+v, %v", found, err)
	}
}

// A table that the user may not see is not one that is missing.
func TestMySQL_DescribeWithoutRights(t *testing.T) {
	s := startServer(t)
	storetest.Attach(t, New(s.config("app"), options()))
	s.must(`CREATE TABLE hf.orders (id INT)`, `CREATE USER op IDENTIFIED BY 'secret'`, `GRANT SELECT ON hf.orders TO op`)
	_, err := New(s.config("op"), nil).(fallback.Describer).Describe(t.Context(), storetest.Settings.Namespace)
	if !errors.Is(err, fallback.ErrRefused) || errors.Is(err, fallback.ErrNoNamespace) {
		t.Error(err)
	}
	missing := New(s.config("op"), &Options{Table: "orders2"}).(fallback.Describer)
	if _, err := missing.Describe(t.Context(), storetest.Settings.Namespace); !errors.Is(err, fallback.ErrRefused) {
		t.Error(err) // whether it is missing is not told to this user
	}
	s.must(`GRANT SELECT ON hf.* TO op`)
	if _, err := missing.Describe(t.Context(), storetest.Settings.Namespace); !errors.Is(err, fallback.ErrNoNamespace) {
		t.Error(err)
	}
}
