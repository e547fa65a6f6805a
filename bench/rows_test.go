package main

import (
	"strings"
	"testing"
	"time"
)

// needPostgres skips the test where there is none.
func needPostgres(t *testing.T) {
	t.Helper()
	if _, ok := findPostgres(); !ok {
		t.Skip("PostgreSQL is not installed (Debian has it in postgresql)")
	}
}

func TestRows(t *testing.T) {
	t.Parallel()
	needPostgres(t)
	t.Run("all", allRows) // one after the other: it is one table
	t.Run("oversold", rowsSeeOversold)
}

func allRows(t *testing.T) {
	b := tinyBench(t)
	r, err := measureRows(t.Context(), b)
	if err != nil {
		t.Fatal(err)
	}
	check(t, r)
	sold := 0
	for _, row := range r.table[1:] {
		switch {
		case len(row) == 1: // the name of a job
		case len(row) != len(r.table[0]) || row[1] == notRun:
			t.Errorf("%q", row)
		case row[1] != "0" && row[1] != "-":
			sold++
		}
	}
	if len(r.table) != 1+2*(1+7) {
		t.Errorf("%q", r.table)
	}
	if sold == 0 { // on a machine that stands still some may sell nothing in so short a round
		t.Errorf("no line has sold anything: %q", r.table)
	}
	for _, note := range r.notes {
		if strings.Contains(note, "sales failed") {
			t.Error(note)
		}
	}
}

// Without a lock the check fails.
func rowsSeeOversold(t *testing.T) {
	b := tinyBench(t)
	b.sizes.rows = rowsSizes{processes: 2, goroutines: 8, stock: 1000, rows: 20, rounds: 1, round: time.Second}
	r, err := measureMethods(t.Context(), b, func(m *rowMethod) bool { return m.unsafe })
	if err != nil {
		t.Fatal(err)
	}
	if c := named(t, r, "no lock, one row: units sold"); c.holds() {
		t.Error("without a lock nothing was sold twice")
	}
}

// A write whose token is not above the last one is refused, and is no sale.
func TestRowsRefuses(t *testing.T) {
	t.Parallel()
	needPostgres(t)
	s, err := startServers(t.Context(), -1, []variant{{server: postgresKind}})
	if err != nil {
		t.Fatal(err)
	}
	pool, err := openPool(environment{server: s.of(postgresKind).conn, goroutines: 1, count: new(counter)})
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	c, err := pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Release()
	if _, err := c.Exec(t.Context(), strings.Replace(rowsTable, "create", "create temporary", 1)+"; insert into stock values (1, 3, 0, 0)"); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		fence            uint64
		refused, soldOut bool
		left             int64
	}{{7, false, false, 2}, {7, true, false, 2}, {6, true, false, 2}, {8, false, false, 1}, {9, false, false, 0}, {10, false, true, 0}} {
		s := sale{sku: 1, fence: test.fence}
		if err := readAndWrite(t.Context(), c, &s); err != nil || s.refused != test.refused || s.soldOut != test.soldOut {
			t.Errorf("%+v: %+v, %v", test, s, err)
		}
		var left int64
		if err := c.QueryRow(t.Context(), "select units from stock").Scan(&left); err != nil || left != test.left {
			t.Errorf("%+v: %d left, %v", test, left, err)
		}
	}
	for _, m := range rowMethods {
		if _, err := c.Exec(t.Context(), "update stock set units = 1, fence = 0"); err != nil {
			t.Fatal(err)
		}
		for i := range 2 {
			s := sale{sku: 1, key: "one"}
			if err := m.sell(t.Context(), c, &s); err != nil || s.soldOut != (i == 1) || s.refused {
				t.Errorf("%s: %+v, %v", m.name, s, err)
			}
		}
	}
}

func TestRowsResults(t *testing.T) {
	find := func(name string) *rowMethod {
		m, err := findMethod(name)
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	ours := &rowsTotal{rowMethod: find(clusterVariant), refused: 2}
	theirs := &rowsTotal{rowMethod: find(methodForUpdate), missing: -3}
	var waits histogram
	waits.record(time.Second)
	play := func(t *rowsTotal, took, server time.Duration, sold ...int64) {
		var parts []effort
		for _, n := range sold {
			parts = append(parts, effort{Sections: n, CPU: time.Duration(n) * 20 * time.Nanosecond, Bytes: 7 * n})
		}
		t.add(newRound(took, server, parts, &waits))
		t.waits.merge(waits)
	}
	play(ours, 2*time.Second, time.Second, 30, 30)
	play(ours, 800*time.Millisecond, 0, 20, 20)
	play(theirs, 2*time.Second, 2*time.Second, 20, 0)
	play(theirs, 1200*time.Millisecond, 0, 30, 0)
	r := rowsResults(rowsSizes{stock: 100, rows: 9}, []*rowsTotal{ours, theirs})
	if row := r.table[3]; row[0] != "  SELECT FOR UPDATE" || row[3] != "2.50" || row[4] != "2..3" || row[11] != "7" || row[15] != "0.50" || row[16] != "-3" {
		t.Errorf("%q", row)
	}
	if row := r.table[2]; row[12] != "0.02" || row[13] != "10,000" {
		t.Errorf("%q", row)
	}
	for text, want := range map[string]float64{
		"SELECT FOR UPDATE, one row: units": 3, "Holdfast cluster, one row: units": 0, "refused for their token": 2, "CPU time of the servers": 0.25,
	} {
		if c := named(t, r, text); c.got != want || c.holds() != (want < 1) {
			t.Errorf("%s: %v, want %v", c.text, c.got, want)
		}
	}
	if len(r.versus) != 1 || r.versus[0].Times != 2.5 {
		t.Errorf("%+v", r.versus)
	}
}

// Without a PostgreSQL the lines say so.
func TestRowsNotRun(t *testing.T) {
	saved, running := *postgresKind, lasting.all
	defer func() { *postgresKind, lasting.all = saved, running }()
	lasting.all = nil
	postgresKind.find = func() (string, bool) { return "", false }
	r, err := measureRows(t.Context(), tinyBench(t))
	if err != nil {
		t.Fatal(err)
	}
	if len(r.table) != 8 || r.table[1][0] != clusterVariant || r.table[1][1] != notRun || len(r.claims) != 0 {
		t.Errorf("%q, %v", r.table, r.claims)
	}
	if !strings.Contains(strings.Join(r.notes, "\n"), "not run: PostgreSQL: not installed; Debian has it in postgresql") {
		t.Errorf("%q", r.notes)
	}
}
