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
	needPostgres(t)
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
func TestRowsSeesOversold(t *testing.T) {
	needPostgres(t)
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
	needPostgres(t)
	pg, err := startServer(t.Context(), postgresKind)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := pg.stop(); err != nil {
			t.Error(err)
		}
	}()
	pool, err := openPool(environment{server: pg.conn, goroutines: 1, count: new(counter)})
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	c, err := pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Release()
	if _, err := c.Exec(t.Context(), rowsTable+"; insert into stock values (1, 3, 0, 0)"); err != nil {
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
	ours := &rowsTotal{
		rowMethod: find(clusterVariant), rates: []float64{30, 50}, sold: 100, parts: []int64{50, 50}, refused: 2, server: time.Second,
		client: 2 * time.Millisecond,
	}
	theirs := &rowsTotal{rowMethod: find(methodForUpdate), rates: []float64{10, 25}, sold: 50, parts: []int64{50, 0}, missing: -3, server: 2 * time.Second}
	r := rowsResults(rowsSizes{stock: 100, rows: 9}, []*rowsTotal{ours, theirs})
	if row := r.table[3]; row[0] != "  SELECT FOR UPDATE" || row[3] != "2.50" || row[4] != "2..3" || row[12] != "0.50" || row[13] != "-3" {
		t.Errorf("%q", row)
	}
	if row := r.table[2]; row[10] != "20" || row[11] != "10,000" {
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
	saved := *postgresKind
	defer func() { *postgresKind = saved }()
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
