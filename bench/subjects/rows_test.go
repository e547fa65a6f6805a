package subjects

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-go/holdfast/bench/harness"
	"github.com/holdfast-go/holdfast/bench/report"
	"github.com/holdfast-go/holdfast/bench/rivals"
	"github.com/holdfast-go/holdfast/bench/stats"
	"github.com/holdfast-go/holdfast/internal/histogram"
)

// needPostgres skips the test where there is none.
func needPostgres(t *testing.T) {
	t.Helper()
	if _, ok := rivals.PostgresKind.Find(); !ok {
		t.Skip("PostgreSQL is not installed (Debian has it in postgresql)")
	}
}

// allRows has a line for each job and method. On a machine that stands still some may sell nothing
// in so short a round.
func allRows(t *testing.T, _ *Run, r report.Result) {
	needPostgres(t)
	sold := 0
	for _, row := range r.Table[1:] {
		switch {
		case len(row) == 1: // the name of a job
		case len(row) != len(r.Table[0]):
			t.Errorf("%q", row)
		case row[1] != "0" && row[1] != "-":
			sold++
		}
	}
	if sold == 0 || len(r.Table) != 1+2*(1+7) {
		t.Errorf("%q", r.Table)
	}
	for _, note := range r.Notes {
		if strings.Contains(note, "sales failed") {
			t.Error(note)
		}
	}
}

// A write whose token is not above the last one is refused, and is no sale.
func TestRowsRefuses(t *testing.T) {
	t.Parallel()
	needPostgres(t)
	s, err := rivals.StartServers(t.Context(), -1, []rivals.Variant{{Server: rivals.PostgresKind}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	}()
	pool, err := rivals.OpenPool(rivals.Environment{Server: s.Of(rivals.PostgresKind).Conn, Goroutines: 1, Count: new(harness.Counter)})
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
	for n, sell := range []func(context.Context, *pgxpool.Conn, *sale) error{readAndWrite, forUpdate, byVersion, underAdvisory, oneUpdate} {
		if _, err := c.Exec(t.Context(), "update stock set units = 1, fence = 0"); err != nil {
			t.Fatal(err)
		}
		for i := range 2 {
			s := sale{sku: 1, key: "one"}
			if err := sell(t.Context(), c, &s); err != nil || s.soldOut != (i == 1) || s.refused {
				t.Errorf("%d: %+v, %v", n, s, err)
			}
		}
	}
}

func TestRowsResults(t *testing.T) {
	sizes := rowsSizes{Crowd{Keys: 9}, 100}
	find := func(name string) *total {
		i := slices.IndexFunc(rowWays, func(w way) bool { return w.Name == name })
		return &total{way: &rowWays[i], job: sizes.jobs()[0]}
	}
	ours, theirs := find(rivals.ClusterVariant), find(methodForUpdate)
	ours.sum.Refused, theirs.missing = 2, -3
	var waits histogram.Histogram
	waits.Record(time.Second)
	play := func(t *total, took, server time.Duration, sold ...int64) {
		var parts []stats.Effort
		for _, n := range sold {
			parts = append(parts, stats.Effort{Sections: n, CPU: time.Duration(n) * 20 * time.Nanosecond, Sent: 7 * n})
		}
		t.Add(stats.NewRound(took, server, parts, &waits))
		t.Waits.Merge(&waits)
	}
	play(ours, 2*time.Second, time.Second, 30, 30)
	play(ours, 800*time.Millisecond, 0, 20, 20)
	play(theirs, 2*time.Second, 2*time.Second, 20, 0)
	play(theirs, 1200*time.Millisecond, 0, 30, 0)
	r := rowsResults(sizes, []*total{ours, theirs})
	if row := r.Table[3]; row[0] != "  SELECT FOR UPDATE" || row[3] != "2.50" || row[4] != "2..3" || row[11] != "7" || row[15] != "0.50" || row[16] != "-3" {
		t.Errorf("%q", row)
	}
	if row := r.Table[2]; row[12] != "0.02" || row[13] != "10,000" {
		t.Errorf("%q", row)
	}
	for text, want := range map[string]float64{
		"SELECT FOR UPDATE, one row: units": 3, "Holdfast cluster, one row: units": 0, "refused for their token": 2, "CPU time of the servers": 0.25,
	} {
		if c := named(t, r, text); float64(c.Got) != want || c.Holds != (want < 1) {
			t.Errorf("%s: %v, want %v", c.Text, c.Got, want)
		}
	}
}

// Without a PostgreSQL the lines say so.
func TestRowsNotRun(t *testing.T) {
	saved := *rivals.PostgresKind
	defer func() { *rivals.PostgresKind = saved }()
	rivals.PostgresKind.Find = func() (string, bool) { return "", false }
	r, err := Subject{Measure: measureRows}.Do(t.Context(), tinyBench(t))
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Table) != 8 || r.Table[1][0] != rivals.ClusterVariant || r.Table[1][1] != notRun || len(r.Claims) != 0 {
		t.Errorf("%q, %v", r.Table, r.Claims)
	}
	if !strings.Contains(strings.Join(r.Notes, "\n"), "not run: PostgreSQL: not installed; Debian has it in postgresql") {
		t.Errorf("%q", r.Notes)
	}
}
