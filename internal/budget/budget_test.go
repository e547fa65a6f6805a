package budget

import (
	"flag"
	"math"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/internal/leak"
	"github.com/holdfast-go/holdfast/internal/takes"
)

func TestMain(m *testing.M) { leak.Main(m) }

// race is true in a build with the race detector, which costs more.
var race bool

var update = flag.Bool("update", false, "write limits.txt as it is measured")

const (
	file   = "limits.txt"
	margin = 1.05 // for instructions: the layout of maps differs between runs
)

// Benchmark measures all paths, for benchstat.
func Benchmark(b *testing.B) {
	for _, p := range paths {
		b.Run(p.name, func(b *testing.B) {
			op := p.setup(b)
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				if i%p.each() == 0 {
					op()
				}
			}
		})
	}
}

func TestBudget(t *testing.T) {
	takes.Seconds(t)
	if race {
		t.Skip("the race detector allocates, and executes, more")
	}
	limits, err := readLimits()
	if err != nil && !*update {
		t.Fatal(err)
	}
	version, now := goVersion(), Limits{Go: goVersion()}
	for _, p := range paths {
		limit, known := limits.Of(p.name)
		x := limit // figures that are not measured stay
		x.Path = p.name
		t.Run(p.name, func(t *testing.T) {
			if !known && !*update {
				t.Errorf("it has no limit in %s", file)
			}
			t.Run("allocations", func(t *testing.T) {
				x.Allocations = repeat(limit.Allocations, func() float64 { return allocations(t, p) })
				t.Logf("%.1f per operation", x.Allocations)
				if x.Allocations > limit.Allocations && !*update {
					t.Errorf("%.1f per operation, the limit is %.1f: see go test -run '^$' -bench '/^%s$' -memprofile f -memprofilerate 1 ./internal/budget",
						x.Allocations, limit.Allocations, strings.ReplaceAll(p.name, "/", "$/^"))
				}
			})
			t.Run("instructions", func(t *testing.T) {
				if limits.Go != version && !*update {
					t.Skipf("the limits are for %s, this is %s", limits.Go, version)
				}
				where, most := "", margin*limit.Instructions
				if *update {
					most = 0 // all rounds
				}
				n := repeat(margin*limit.Instructions, func() (n float64) { n, where = instructions(t, p, most); return n })
				x.Instructions = math.Ceil(n)
				if n > margin*limit.Instructions && !*update {
					t.Errorf("%.1f per operation, the limit is %.0f and 5 %%. Most are in\n%s", n, limit.Instructions, where)
				} else {
					t.Logf("%.1f per operation, most in\n%s", n, where)
				}
			})
		})
		now.Paths = append(now.Paths, x)
	}
	for _, x := range limits.Paths {
		if _, there := now.Of(x.Path); !there && !*update {
			t.Errorf("%s has a limit, and there is no such path", x.Path)
		}
	}
	if *update && !t.Failed() {
		f, err := os.Create(file)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if err := now.Write(f); err != nil {
			t.Fatal(err)
		}
	}
}

// repeat measures again if the figure is beyond the limit: with several goroutines it depends on
// their order. For an update it returns the highest of all, else the lowest.
func repeat(limit float64, f func() float64) float64 {
	n := f()
	for range 2 {
		switch {
		case *update:
			n = max(n, f())
		case n > limit:
			n = min(n, f())
		}
	}
	return n
}

func readLimits() (Limits, error) {
	f, err := os.Open(file)
	if err != nil {
		return Limits{}, err
	}
	defer f.Close()
	return Read(f)
}

// goVersion returns major and minor of Go's version: compiled code depends on them.
func goVersion() string {
	parts := strings.SplitN(runtime.Version(), ".", 3)
	return strings.Join(parts[:min(len(parts), 2)], ".")
}

// warm calls a path's function so often that it finds everything in use again.
func (p path) warm(t testing.TB) (op func()) {
	op = p.setup(t)
	for range 1000 {
		op()
	}
	return op
}

// allocations returns how many objects an operation of the path allocates, to a tenth. The nodes of
// a cluster allocate besides, some times a second, for as long as it takes. So the cheapest of many
// short rounds counts, each long enough for work that comes once in 64 operations.
func allocations(t *testing.T, p path) float64 {
	t.Helper()
	op := p.warm(t)
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	const rounds, least = 48, 128 // short ones: nodes also allocate per second, which weighs more where the machine is slow
	var runs []float64
	for range rounds {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		calls := 0
		for ; calls*p.each() < least; calls++ {
			op()
		}
		runtime.ReadMemStats(&after)
		runs = append(runs, float64(after.Mallocs-before.Mallocs)/float64(calls*p.each()))
	}
	return math.Round(10*slices.Min(runs)) / 10
}
