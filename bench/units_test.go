package main

import (
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/redistest"
)

func TestReferee(t *testing.T) {
	path := filepath.Join(t.TempDir(), "referees")
	one, unmapOne, err := openReferees(path, 2)
	if err != nil {
		t.Fatal(err)
	}
	defer unmapOne()
	other, unmapOther, err := openReferees(path, 2) // as another process would
	if err != nil {
		t.Fatal(err)
	}
	defer unmapOther()
	a, b := &one[1], &other[1]
	a.enter(1, 5)
	a.leave(1)
	b.enter(2, 6)
	b.leave(2)
	if a.two.Load() != 0 || a.stale.Load() != 0 || a.sections.Load() != 2 {
		t.Errorf("two %d, stale %d, sections %d", a.two.Load(), a.stale.Load(), a.sections.Load())
	}
	b.enter(2, 6) // the same token again
	b.leave(2)
	b.enter(2, 3)
	b.leave(2)
	b.enter(2, 0) // no token
	if got := a.stale.Load(); got != 2 {
		t.Errorf("stale %d", got)
	}
	a.enter(1, 7) // while the other one is inside
	b.leave(2)
	a.leave(1)
	if got := a.two.Load(); got != 3 {
		t.Errorf("two %d", got)
	}
	if one[0].sections.Load() != 0 {
		t.Error("referees share memory")
	}
}

func TestCounter(t *testing.T) {
	server := redistest.Start(t)
	client, n := newClient(server.Addr, 1)
	defer client.Close()
	client.Set(t.Context(), "a", 1, 0)
	client.Get(t.Context(), "missing")
	pipe := client.Pipeline()
	for range 5 {
		pipe.Incr(t.Context(), "a")
	}
	if _, err := pipe.Exec(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n.commands.Load() != 7 || n.trips.Load() != 3 {
		t.Errorf("%d commands, %d round trips", n.commands.Load(), n.trips.Load())
	}
	before, err := commandStats(t.Context(), client, "eval")
	if err != nil {
		t.Fatal(err)
	}
	client.Eval(t.Context(), "redis.call('INCR', KEYS[1])", []string{"a"})
	after, err := commandStats(t.Context(), client, "eval")
	if err != nil || after.since(before).calls != 1 {
		t.Errorf("%+v, %v", after.since(before), err)
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

func TestClaims(t *testing.T) {
	for _, test := range []struct {
		claim claim
		holds bool
	}{
		{atMost(2, 2, ""), true},
		{atMost(2, 2.01, ""), false},
		{atLeast(2, 2, ""), true},
		{atLeast(2, 1.99, ""), false},
		{atMost(2, math.NaN(), ""), false},
		{atLeast(2, math.NaN(), ""), false},
		{atLeast(2, ratio(1, 0), ""), false},
	} {
		if test.claim.holds() != test.holds {
			t.Errorf("%+v", test)
		}
	}
}

func TestResultIsPrinted(t *testing.T) {
	var out strings.Builder
	result{
		title:  "T",
		table:  [][]string{{"", "µs"}, {"first", "1"}, {"2nd", "1,000"}},
		notes:  []string{"a note"},
		claims: []claim{atMost(1.3, 1.5, "slow"), atLeast(20, 2000, "fast")},
	}.write(&out)
	want := `
T

          µs
first      1
2nd    1,000

a note

must hold  measured         limit
slow           1.50  at most 1.30  DOES NOT HOLD
fast          2,000   at least 20          holds
`
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", out.String(), want)
	}
}

func TestStatistics(t *testing.T) {
	if got := median([]float64{3, 1, 2, 10}); got != 2.5 {
		t.Errorf("median %v", got)
	}
	sample := []time.Duration{5, 1, 4, 2, 3}
	if got := quantile(sample, 0.5); got != 3 {
		t.Errorf("quantile %v", got)
	}
	if got := quantile(sample, 1); got != 5 {
		t.Errorf("quantile 1: %v", got)
	}
	if !math.IsNaN(median([]float64(nil))) || !math.IsNaN(quantile([]float64(nil), 0.5)) || spreadOf(nil).String() != "- (-..-)" {
		t.Error("there is something in nothing")
	}
	if got := spreadOf([]float64{1.25, 20000, 0.012}).String(); got != "1.25 (0.012..20,000)" {
		t.Errorf("spread %q", got)
	}
	if got := number(math.Inf(1)); got != "+Inf" {
		t.Errorf("infinity is %q", got)
	}
	if got := smallestShare([]int64{10, 20, 30}); got != 0.5 {
		t.Errorf("share %v", got)
	}
	if got := jain([]int64{3, 3, 3}); got != 1 {
		t.Errorf("Jain index %v", got)
	}
	if got := jain([]int64{7, 0}); got != 0.5 {
		t.Errorf("Jain index %v", got)
	}
	if got := perRound([]float64{10, 30}, []float64{5, 10}); !slices.Equal(got, []float64{2, 3}) {
		t.Errorf("per round %v", got)
	}
}

func TestHistogram(t *testing.T) {
	last := 0
	for d := time.Duration(0); d < time.Hour; d += 1 + d/50 {
		b := bucketOf(d)
		if b < last || b > last+1 {
			t.Fatalf("bucket of %d is %d after %d", d, b, last)
		}
		last = b
		if diff := math.Abs(float64(middleOf(b) - d)); diff > 0.032*float64(d) {
			t.Fatalf("the middle of bucket %d is %d, %g from %d", b, middleOf(b), diff, d)
		}
	}
	if bucketOf(-1) != 0 || bucketOf(math.MaxInt64) != bucketCount-1 {
		t.Error("the ends")
	}
	var h, half histogram
	if h.quantile(0.5) != 0 {
		t.Error("quantile of nothing")
	}
	for i := range 1000 {
		d := time.Duration(i+1) * time.Millisecond
		if i%2 == 0 {
			half.record(d)
		} else {
			h.record(d)
		}
	}
	h.merge(half)
	for q, want := range map[float64]time.Duration{0: time.Millisecond, 0.5: 500 * time.Millisecond, 1: time.Second} {
		if got := h.quantile(q); (got - want).Abs() > want/25 {
			t.Errorf("quantile %g: %v, want %v", q, got, want)
		}
	}
}
