package subjects

import (
	"context"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/bench/harness"
	"github.com/holdfast-go/holdfast/bench/report"
	"github.com/holdfast-go/holdfast/bench/rivals"
	"github.com/holdfast-go/holdfast/bench/stats"
	"github.com/holdfast-go/holdfast/internal/redistest"
)

// Each subject, as small as it can be: all of its code runs, the claims hold that must hold
// whatever the speed, and no measured figure is 0.
func TestSubjects(t *testing.T) {
	for name, test := range map[string]struct {
		above0 []string // claims whose figure cannot be 0
		lines  int      // of the table, without its head; 0: see below
		rates  func(*Run) *time.Duration
		also   func(t *testing.T, b *Run, r report.Result)
	}{
		"hot":    {above0: []string{"Redis commands per section"}, lines: 5, rates: func(b *Run) *time.Duration { return &b.Sizes.Hot.Round }},
		"shared": {above0: []string{"of one worker without a lock"}, lines: 9, rates: func(b *Run) *time.Duration { return &b.Sizes.Shared.Round }},
		"zipf":   {lines: 9, rates: func(b *Run) *time.Duration { return &b.Sizes.Zipf.Round }},
		"cold": {lines: 4, also: func(t *testing.T, _ *Run, r report.Result) {
			for _, text := range []string{"commands per Lock", "commands per Unlock"} {
				if c := named(t, r, text); c.Got != 1 {
					t.Errorf("%s: %v", c.Text, c.Got)
				}
			}
			if !strings.Contains(strings.Join(r.Notes, "\n"), "pinned") {
				t.Errorf("it does not say what is pinned: %q", r.Notes)
			}
		}},
		"held": {lines: 10, also: func(t *testing.T, _ *Run, r report.Result) {
			if c := named(t, r, "rows while they are held"); c.Got != 300 {
				t.Errorf("%v rows", c.Got)
			}
			if c := named(t, r, "one read per partition"); c.Got <= 0 || c.Got > 31 {
				t.Errorf("%v reads of 31 partitions in a period", c.Got)
			}
		}},
		"own":     {above0: []string{"Lock and Unlock, times", "hand-over among 64", "SET NX PX and EVALSHA"}, lines: 10},
		"forward": {above0: []string{"median Lock, times", "median Lock and Unlock, times", "callers: times"}, lines: 7},
		"idle":    {above0: []string{"on average"}, lines: 3},
		"http":    {above0: []string{"Serialize, micro", "Serialize, the handler", "Route, times"}, lines: 6},
		"modes":   {above0: []string{"Holdfast Semaphore, permits: no limit, sections per second to it, in slices"}, also: allModes},
		"latency": {also: allLanes},
		"stalls":  {lines: 8, also: stallsAreSeen},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := tinyBench(t)
			subject := All[slices.IndexFunc(All, func(s Subject) bool { return s.Name == name })]
			var r report.Result
			var err error
			if test.rates == nil {
				if r, err = subject.Do(t.Context(), b); err != nil {
					t.Fatal(err)
				}
				check(t, r)
			} else {
				r = withRates(t, test.rates(b), func() (report.Result, error) { return subject.Do(t.Context(), b) })
				checkMeasured(t, r)
			}
			if n := len(r.Table) - 1; test.lines != 0 && n != test.lines {
				t.Errorf("%d lines: %q", n, r.Table)
			}
			for _, row := range r.Table {
				if strings.Contains(strings.Join(row, " "), "NaN") {
					t.Errorf("%q", row)
				}
				if _, ok := rivals.PostgresKind.Find(); len(row) > 1 && ok == (row[1] == notRun) && strings.HasPrefix(row[0], rivals.Advisory) {
					t.Errorf("%q", row)
				}
			}
			for _, text := range test.above0 {
				if c := named(t, r, text); !(c.Got > 0) {
					t.Errorf("%s: %v", c.Text, c.Got)
				}
			}
			if test.also != nil {
				test.also(t, b, r)
			}
		})
	}
}

// Without a lock two are in at a time, and the referee sees it.
func TestUnsafe(t *testing.T) {
	t.Parallel()
	b := tinyBench(t)
	b.Sizes.Hot.Goroutines = 8
	r, err := Subject{Measure: func(ctx context.Context, b *Run) (report.Result, error) {
		return measureVariants(ctx, b, (*way).Unsafe)
	}}.Do(t.Context(), b)
	if err != nil {
		t.Fatal(err)
	}
	if c := named(t, r, "two held the lock"); c.Holds {
		t.Error("it was not seen")
	}
}

// Without a PostgreSQL the lines say so.
func TestNotRun(t *testing.T) {
	saved := *rivals.PostgresKind
	defer func() { *rivals.PostgresKind = saved }()
	rivals.PostgresKind.Find = func() (string, bool) { return "", false }
	r, err := Subject{Measure: measureZipf}.Do(t.Context(), tinyBench(t))
	if err != nil {
		t.Fatal(err)
	}
	if row := r.Table[len(r.Table)-1]; row[0] != rivals.Advisory || row[1] != notRun {
		t.Errorf("%q", row)
	}
	if !strings.Contains(strings.Join(r.Notes, "\n"), "not run: PostgreSQL: not installed; Debian has it in postgresql") {
		t.Errorf("%q", r.Notes)
	}
}

// A run that is interrupted ends soon, and its workers with it.
func TestInterrupted(t *testing.T) {
	t.Parallel()
	b := tinyBench(t)
	b.Sizes.Hot.Round = time.Minute
	b.Sizes.Held.Locks = 200_000
	b.Sizes.stalls.Calm = time.Minute
	for _, s := range []Subject{{Name: "hot", Measure: measureHot}, {Name: "held", Measure: measureHeld}, {Name: "stalls", Measure: measureStalls}} {
		ctx, cancel := context.WithCancel(t.Context())
		stop := time.AfterFunc(2*time.Second, cancel)
		begin := time.Now()
		if _, err := s.Do(ctx, b); err == nil {
			t.Errorf("%s: no error", s.Name)
		}
		if d := time.Since(begin); d > 2*time.Second+2*harness.CloseTime {
			t.Errorf("%s: it took %v", s.Name, d)
		}
		stop.Stop()
		cancel()
	}
}

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

// allModes has a line for each job and way, that of a rival without its server among them.
func allModes(t *testing.T, b *Run, r report.Result) {
	lines := 0
	for _, j := range b.Sizes.modes.jobs() {
		lines++
		for _, w := range modeWays {
			if w.MeasuredIn(j.kind(), false) {
				lines++
			}
		}
	}
	if len(r.Table) != lines+1 {
		t.Errorf("%q", r.Table)
	}
	for _, row := range r.Table[1:] {
		if len(row) > 1 && (row[1] == "0" || row[1] == "-") {
			t.Errorf("%q", row)
		}
	}
	checkMeasured(t, r)
	for _, text := range []string{"Holdfast RLock, own key, read-1: alloc", "Holdfast RLock, another's key, read-2: alloc"} {
		if c := named(t, r, text); !(c.Got >= 0) {
			t.Errorf("%s: %v", c.Text, c.Got)
		}
	}
}

// A way that does half as much as another one for the same processor time is told so, though both
// become slower all the time.
func TestPairsOf(t *testing.T) {
	t.Parallel()
	const ratios = 5
	all := pairsResult{}
	for i := range warmSlices + ratios*slicesPerRatio {
		n := int64(1000 - 10*i)
		if second(i) {
			n *= 2
		}
		if i < warmSlices {
			n = 7
		}
		all.Sections, all.CPU = append(all.Sections, n), append(all.CPU, time.Millisecond)
	}
	p := pairsOf(all)
	if len(p.rates) != ratios || len(p.costs) != ratios {
		t.Fatalf("%v, %v", p.rates, p.costs)
	}
	for i := range p.rates {
		if p.rates[i] != 2 || p.costs[i] != 2 {
			t.Errorf("%v times the sections, %v times the processor time for one", p.rates[i], p.costs[i])
		}
	}
	if p.cpu[0] != 2*p.cpu[1] {
		t.Errorf("%v", p.cpu)
	}
}

func stallsAreSeen(t *testing.T, b *Run, r report.Result) {
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("%q", r.Notes)
		}
	})
	for _, row := range r.Table[1:] {
		if row[1] == "0" || row[7] == "0" {
			t.Errorf("%q", row)
		}
		// A rival with its locks in Redis cannot lock while there is none: it is tried again for a
		// while, and fails. So the fault is committed, and it is seen.
		if row[0] == "outage: redislock" && row[2] == "0" && row[3] == "0" {
			t.Errorf("the rival did not notice that Redis was away: %q", row)
		}
	}
	// The others see at once that a process was killed. Keys of one that stands still are not to be had
	// meanwhile.
	for scenario, least := range map[string]float64{"killed at work": 0.001, "gone at work": b.Sizes.stalls.After.Seconds()} {
		if c := named(t, r, scenario+": longest wait"); float64(c.Got) < least {
			t.Errorf("%s: the process's keys were free after %v s", scenario, c.Got)
		}
	}
}

func TestStallBook(t *testing.T) {
	path := filepath.Join(t.TempDir(), "book")
	mine, unmapMine, err := openBook(path)
	if err != nil {
		t.Fatal(err)
	}
	defer unmapMine()
	other, unmapOther, err := openBook(path) // as another process would
	if err != nil {
		t.Fatal(err)
	}
	defer unmapOther()
	other.waited(3 * time.Second)
	mine.waited(time.Millisecond)
	if h := mine.histogram(); h.Count() != 2 || h.Longest != 3*time.Second || mine.slow.Load() != 1 {
		t.Errorf("%d waits, longest %v, %d slow", h.Count(), h.Longest, mine.slow.Load())
	}
	for _, fence := range []uint64{1, 5, 5, 7, 0, 6} {
		other.granted(3, fence)
	}
	other.granted(4, 1)
	if got := mine.stale.Load(); got != 2 {
		t.Errorf("%d stale", got)
	}
}

func TestContentOfRedis(t *testing.T) {
	server := redistest.Start(t)
	client := server.Client(t)
	h := heldRun{admin: client, prefix: "{ns:", parts: 3}
	for _, cmd := range []*redis.IntCmd{
		client.HSet(t.Context(), "{ns:s}", "f", 1, "i", 2, "s:a", 3, "s:b", 4),
		client.HSet(t.Context(), "{ns:p0}", "i", 1, "m", 2),
		client.HSet(t.Context(), "{ns:p1}", "i", 1, "m", 2, "r:x", 3, "r:y", 4),
		client.HSet(t.Context(), "{ns:p3}", "i", 1, "m", 2), // one too many
		client.ZAdd(t.Context(), "{ns:p0}:w:key", redis.Z{Score: 1, Member: "m"}),
		client.HSet(t.Context(), "{other:p0}", "i", 1),
	} {
		if cmd.Err() != nil {
			t.Fatal(cmd.Err())
		}
	}
	got, err := h.content(t.Context())
	if want := (content{Rows: 2, Bare: 1, InUse: 1, Strays: 2, Sessions: 2}); got != want || err != nil {
		t.Errorf("%+v, want %+v; %v", got, want, err)
	}
}
