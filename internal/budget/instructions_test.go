package budget

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
)

const childEnv = "HOLDFAST_BUDGET_PATH"

// instructions returns a path's instructions per operation, and which functions they are in. The
// round with the fewest counts, so the first one within the limit decides that the path is: the
// rounds after it are left out.
func instructions(t *testing.T, p path, limit float64) (n float64, where string) {
	t.Helper()
	ops := float64(p.stepped() * p.each())
	var all []Round
	var err error
	for range 3 {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestChild$")
		cmd.Env = append(os.Environ(), childEnv+"="+p.name, "GOMAXPROCS=1", "GODEBUG=asyncpreemptoff=1", "GOTRACEBACK=single")
		cmd.Stderr = os.Stderr
		if all, err = Steps(cmd, p.rounds(), func(r Round) bool { return float64(r.Steps)/ops <= limit }); !errors.Is(err, ErrStarved) {
			break
		}
		t.Log(err)
	}
	if errors.Is(err, errors.ErrUnsupported) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range all {
		t.Logf("%10.1f instructions, %5.2f reads of the clock, %5.2f system calls", float64(r.Steps)/ops, float64(r.Reads)/ops, float64(r.Calls)/ops)
	}
	least := slices.MinFunc(all, func(a, b Round) int { return a.Steps - b.Steps })
	return float64(least.Steps) / ops, least.where(ops)
}

// stepped is how many calls of a round are stepped through.
func (p path) stepped() int {
	if p.calls == 0 {
		return 8
	}
	return p.calls
}

// rounds is how many rounds there are. The one with the fewest instructions counts: some things are
// only done once in a while. Of rounds of one operation some have none of them. They do not even
// meet a full span of the heap, which is a tenth of a path that allocates.
func (p path) rounds() int {
	if p.stepped()*p.each() == 1 {
		return 16
	}
	return 4
}

// TestChild is the process that is traced.
func TestChild(t *testing.T) {
	name := os.Getenv(childEnv)
	if name == "" {
		t.Skip("TestBudget runs it in a process of its own")
	}
	i := slices.IndexFunc(paths, func(p path) bool { return p.name == name })
	if i < 0 {
		t.Fatalf("no path %q", name)
	}
	p := paths[i]
	op := p.warm(t)
	runtime.GC()
	debug.SetGCPercent(-1)
	for range 100 { // pools that the collector has emptied are full again
		op()
	}
	fmt.Println("ready")
	var line [3]byte
	if _, err := os.Stdin.Read(line[:]); err != nil {
		t.Fatal(err)
	}
	Mark()
	for range p.rounds() {
		for range p.stepped() {
			op()
		}
		Mark()
	}
}

// where names the functions with the most instructions. The tracer is the same program as the
// traced process.
func (r Round) where(ops float64) string {
	by := make(map[string]int)
	for pc, steps := range r.At {
		name := "reading the clock"
		if f := runtime.FuncForPC(pc); f != nil {
			name = f.Name()
		}
		by[name] += steps
	}
	names := make([]string, 0, len(by))
	for name := range by {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int { return by[b] - by[a] })
	var b strings.Builder
	for _, name := range names[:min(len(names), 12)] {
		fmt.Fprintf(&b, "%10.1f %s\n", float64(by[name])/ops, name)
	}
	return b.String()
}
