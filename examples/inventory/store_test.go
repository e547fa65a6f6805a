package main

import (
	"context"
	"errors"
	"net"
	"reflect"
	"strings"
	"sync"
	"testing"
)

func openStore(t *testing.T) (*storeServer, *store) {
	t.Helper()
	server, err := startStore()
	if err != nil {
		t.Fatal(err)
	}
	client := newStore(server.addr)
	t.Cleanup(func() {
		client.Close()
		if err := server.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return server, client
}

func mustExec(t *testing.T, s *store, text string, args ...any) int64 {
	t.Helper()
	n, err := s.Exec(t.Context(), text, args...)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return n
}

func TestStoreStatements(t *testing.T) {
	_, s := openStore(t)
	mustExec(t, s, `CREATE TABLE stock (sku TEXT PRIMARY KEY, units INTEGER, fence INTEGER)`)
	for i, sku := range []string{"a", "b", "empty"} {
		if n := mustExec(t, s, `INSERT INTO stock VALUES (?, ?, ?)`, sku, int64(2-i), int64(1)<<62); n != 1 {
			t.Errorf("insert changed %d rows", n)
		}
	}
	if n := mustExec(t, s, `UPDATE stock SET units = units + ?`, int64(10)); n != 3 {
		t.Errorf("update changed %d rows", n)
	}
	rows, err := s.Query(t.Context(), `SELECT * FROM stock WHERE units > ? ORDER BY sku`, int64(10))
	if err != nil {
		t.Fatal(err)
	}
	want := [][]any{{"a", int64(12), int64(1) << 62}, {"b", int64(11), int64(1) << 62}}
	if !reflect.DeepEqual(rows, want) {
		t.Errorf("%v, want %v", rows, want)
	}
	if rows, err := s.Query(t.Context(), `SELECT sku FROM stock WHERE units = 0`); err != nil || len(rows) != 0 {
		t.Errorf("%v, %v", rows, err)
	}
	// Zeros are values like others; gob leaves out only fields.
	rows, err = s.Query(t.Context(), `SELECT ?, ?`, int64(0), "")
	if want := [][]any{{int64(0), ""}}; err != nil || !reflect.DeepEqual(rows, want) {
		t.Errorf("%v, %v", rows, err)
	}
}

func TestStoreErrorLeavesTheConnectionUsable(t *testing.T) {
	_, s := openStore(t)
	for _, text := range []string{`SELECT nonsense`, `DROP TABLE nothing`} {
		if _, err := s.Exec(t.Context(), text); err == nil || !strings.HasPrefix(err.Error(), "store: ") {
			t.Errorf("%s: %v", text, err)
		}
	}
	mustExec(t, s, `CREATE TABLE t (n INTEGER)`)
	if len(s.idle) != 1 {
		t.Errorf("%d connections", len(s.idle))
	}
}

func TestStoreSendsNothingAfterTheContextEnded(t *testing.T) {
	_, s := openStore(t)
	mustExec(t, s, `CREATE TABLE t (n INTEGER)`)
	lost := errors.New("lost the lock")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(lost)
	if _, err := s.Exec(ctx, `INSERT INTO t VALUES (1)`); !errors.Is(err, lost) {
		t.Errorf("%v", err)
	}
	if rows, err := s.Query(t.Context(), `SELECT * FROM t`); err != nil || len(rows) != 0 {
		t.Errorf("%v, %v", rows, err)
	}
}

func TestStoreServesManyAtOnce(t *testing.T) {
	_, s := openStore(t)
	mustExec(t, s, `CREATE TABLE t (n INTEGER)`)
	mustExec(t, s, `INSERT INTO t VALUES (0)`)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 50 {
				if _, err := s.Exec(t.Context(), `UPDATE t SET n = n + 1`); err != nil {
					t.Error(err)
				}
				if rows, err := s.Query(t.Context(), `SELECT n FROM t`); err != nil || len(rows) != 1 {
					t.Error(rows, err)
				}
			}
		})
	}
	wg.Wait()
	rows, err := s.Query(t.Context(), `SELECT n FROM t`)
	if err != nil || !reflect.DeepEqual(rows, [][]any{{int64(400)}}) {
		t.Errorf("%v, %v", rows, err)
	}
	if len(s.idle) > 8 {
		t.Errorf("%d connections for 8 goroutines", len(s.idle))
	}
}

func TestStoreSurvivesNonsense(t *testing.T) {
	server, s := openStore(t)
	conn, err := net.Dial("tcp", server.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Write([]byte("GET / HTTP/1.1\r\n\r\n")); err != nil {
		t.Fatal(err)
	}
	mustExec(t, s, `CREATE TABLE t (n INTEGER)`)
}

func TestStoreClosed(t *testing.T) {
	server, err := startStore()
	if err != nil {
		t.Fatal(err)
	}
	s := newStore(server.addr)
	mustExec(t, s, `CREATE TABLE t (n INTEGER)`)
	if err := server.Close(); err != nil {
		t.Error(err)
	}
	if _, err := s.Exec(t.Context(), `DELETE FROM t`); err == nil {
		t.Error("no error from a server that is closed")
	}
	s.Close()
	if _, err := s.Exec(t.Context(), `DELETE FROM t`); !errors.Is(err, errStoreClosed) {
		t.Errorf("%v", err)
	}
}
