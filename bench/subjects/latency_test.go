package subjects

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/bench/report"
	"github.com/holdfast-go/holdfast/bench/stats"
)

func allLanes(t *testing.T, _ *Run, r report.Result) {
	rows := make(map[string][]string)
	for _, row := range r.Table[1:] {
		if len(row) != len(r.Table[0]) {
			t.Errorf("%q", row)
		}
		name, _, _ := strings.Cut(row[0], " v")
		name, _, _ = strings.Cut(name, " (")
		rows[name] = row
	}
	commands := 9
	if r.Table[0][commands] != "commands" {
		t.Fatalf("%q", r.Table[0])
	}
	for name, want := range map[string]string{
		laneMutex: "-", laneKeyed: "-", laneTCP: "-", lanePing: "1", laneSet: "1", lanePair: "2", "redsync": "2", "redislock": "2",
	} {
		if row := rows[name]; row == nil || row[commands] != want {
			t.Errorf("%s: %q, want %s commands", name, row, want)
		}
	}
	// The commands, the smallest there are, are so many bytes long: *1 $4 ping and +PONG.
	if row := rows[lanePing]; row[commands+1] != "14" || row[commands+2] != "7" {
		t.Errorf("%q", row)
	}
	for _, name := range []string{laneOwn, laneForwarded, laneAlone} {
		if rows[name] == nil || rows[name][1] == "0" || rows[name][1] == "-" {
			t.Errorf("%s: %q", name, rows[name])
		}
	}
}

func TestLatencyResult(t *testing.T) {
	played := func(took time.Duration, calls, commands int64) []stats.Round {
		return []stats.Round{{Effort: stats.Effort{Sections: calls, Commands: commands}, Took: took}}
	}
	some := played(0, 2, 0)
	r := &lanesResult{Lanes: []*laneResult{
		{Name: laneMutex, P50: []float64{10, 10}, Rounds: some},
		{Name: laneTCP, P50: []float64{50_000, 100_000}, Rounds: some},
		{Name: lanePair, P50: []float64{100_000, 200_000}, Rounds: some},
		{Name: laneOwn, P50: []float64{100, 100}, Rounds: played(0, 200, 1)},
		{Name: laneForwarded, P50: []float64{60_000, 120_000}, Stuck: 1, Rounds: some},
		{Name: "slow", Rival: true, P50: []float64{500_000, 900_000}, Stuck: 3, Rounds: some},
		{Name: "quick", Rival: true, P50: []float64{120_000, 240_000}, Rounds: played(time.Millisecond, 2, 0)},
	}}
	out := latencyResults(latencySizes{}, r, nil)
	for text, want := range map[string]float64{
		"times faster than quick": 1800, "times that of quick": 0.5, "a pair of sync.Mutex's": 10,
		"Redis commands per lock": 0.005, "given up": 1,
	} {
		if c := named(t, out, text); math.Abs(float64(c.Got)-want) > 1e-9 {
			t.Errorf("%s: %v, want %v", c.Text, c.Got, want)
		}
	}
	if c := named(t, out, "without a cluster"); c.Holds {
		t.Error("what was not measured holds")
	}
	if row := out.Table[7]; row[1] != "180" || row[2] != "120..240" || row[6] != "2.40" || row[7] != "1" || row[8] != "2,000" {
		t.Errorf("%q", row)
	}
}
