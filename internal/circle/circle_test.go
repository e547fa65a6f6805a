package circle

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// waitsOf reads waits, one a line: the caller, the key that it waits for, and after "has" its
// holds. A key alone is a lock, r:key is for reading. "!" at the end of a wait: the request is
// behind a writer's. The first caller has waited for longest.
func waitsOf(text string) (all []Wait) {
	for i, line := range strings.Split(strings.TrimSpace(text), "\n") {
		f := strings.Fields(line)
		w := Wait{Process: f[0][:1], ID: uint64(len(f[0])), Began: int64(i)}
		if w.Claim = claimOf(strings.TrimSuffix(f[1], "!")); strings.HasSuffix(f[1], "!") {
			w.Behind = Place{3, uint64(i + 1)}
		}
		for j, h := range f[2:] {
			if h == "has" {
				continue
			}
			w.Holds = append(w.Holds, Hold{claimOf(h), uint64(100*i + j)})
		}
		all = append(all, w)
	}
	return all
}

func claimOf(text string) Claim {
	key, read := strings.CutPrefix(text, "r:")
	return Claim{key, read}
}

func told(all []Circle) (texts []string) {
	for _, c := range all {
		text := ""
		for _, l := range c {
			text += l.Process + "(" + l.By.Key + ")>" + l.Key + " "
		}
		texts = append(texts, strings.TrimSpace(text))
	}
	return texts
}

func TestFind(t *testing.T) {
	for _, x := range []struct {
		name, waits string
		want        []string
	}{
		{"two", "p b has a\nq a has b", []string{"q(b)>a p(a)>b"}},
		{"three", "p b has a\nq c has b\nr a has c", []string{"r(c)>a p(a)>b q(b)>c"}},
		{"the youngest need not be the last", "p c has a\nq a has b\nr b has c", []string{"r(c)>b q(b)>a p(a)>c"}},
		{"a line", "p b has a\nq c has b\nr x has c", nil},
		{"behind a circle", "p b has a\nq a has b\nr a has c\ns c", []string{"q(b)>a p(a)>b"}},
		{"two circles", "p b has a\nq a has b\nr d has c\ns c has d", []string{"s(d)>c r(c)>d", "q(b)>a p(a)>b"}},
		{"one caller in two circles, which is the youngest", "p y has a\nq y has b\nr a has y", []string{"r(y)>a p(a)>y"}},
		{"one caller in two circles", "r a has y x\np y has a\nq x has b", []string{"p(a)>y r(y)>a"}},
		{"a writer and a reader", "p b has r:a\nq a has b", []string{"q(b)>a p(a)>b"}},
		{"a reader and a writer", "p b has a\nq r:a has b", []string{"q(b)>a p(a)>b"}},
		{"one reader of several", "p b has r:a\nz x has r:a\nq a has b", []string{"q(b)>a p(a)>b"}},
		{"readers", "p b has r:a\nq r:a has b", nil},
		{"readers, and a writer between", "p b has r:a\nq r:a! has b", []string{"q(b)>a p(a)>b"}},
		{"a caller that has none", "p a\nq a", nil},
		{"none", "p a has b", nil},
	} {
		t.Run(x.name, func(t *testing.T) {
			waits := waitsOf(x.waits)
			first := Find(waits)
			if got := told(first); !slices.Equal(got, x.want) {
				t.Errorf("got %q, want %q", got, x.want)
			}
			for range 10 {
				rand.Shuffle(len(waits), func(i, j int) { waits[i], waits[j] = waits[j], waits[i] })
				if got := Find(waits); !slices.EqualFunc(got, first, Circle.Same) {
					t.Errorf("in another order: %q", told(got))
				}
			}
		})
	}
}

// TestSame: a wait, or a hold, that has ended and begun again is another one.
func TestSame(t *testing.T) {
	const text = "p b has r:a\nq r:a! has b"
	first := Find(waitsOf(text))[0]
	for _, x := range []struct {
		name   string
		change func(waits []Wait)
		want   bool
	}{
		{"nothing", func([]Wait) {}, true},
		{"a wait began again", func(w []Wait) { w[0].ID++ }, false},
		{"a request was made again", func(w []Wait) { w[1].Behind.Order++ }, false},
		{"at another owner", func(w []Wait) { w[1].Behind.Epoch++ }, false},
		{"in another process", func(w []Wait) { w[0].Process = "z" }, false},
		{"another lock of the key", func(w []Wait) { w[1].Holds[0].Fence++ }, false},
		{"a longer circle", func(w []Wait) { w[0].Key = "c"; w[1].Holds = append(w[1].Holds, Hold{Claim: Claim{Key: "c"}}) }, false},
	} {
		waits := waitsOf(text)
		x.change(waits)
		if got := first.Same(Find(waits)[0]); got != x.want {
			t.Errorf("%s: %v", x.name, got)
		}
	}
}

// TestFind_Random compares with a search that knows nothing of circles: callers that want a free
// key go on and give up their holds, until none can. Find's victims have to be among those that are
// left, and enough for all to go on.
func TestFind_Random(t *testing.T) {
	circles := 0
	for seed := range uint64(20000) {
		rng := rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // a test
		waits := randomWaits(rng)
		all := Find(waits)
		left := remaining(waits)
		if len(all) == 0 && len(left) > 0 || len(all) > 0 && len(left) == 0 {
			t.Fatalf("seed %d: circles %q, and %d cannot go on", seed, told(all), len(left))
		}
		for _, c := range all {
			circles++
			for i, l := range c {
				if !slices.ContainsFunc(left, func(w Wait) bool { return w.Process == l.Process }) {
					t.Fatalf("seed %d: %s can go on: %q", seed, l.Process, told(all))
				}
				if next := c[(i+1)%len(c)]; l.Key != next.By.Key || order(&l.Wait, &c[0].Wait) > 0 {
					t.Fatalf("seed %d: %q", seed, told(all))
				}
			}
			waits = slices.DeleteFunc(waits, func(w Wait) bool { return w.Process == c[0].Process })
		}
		if left := remaining(waits); len(left) > 0 {
			t.Fatalf("seed %d: %d cannot go on without the victims of %q", seed, len(left), told(all))
		}
	}
	if circles < 1000 {
		t.Errorf("only %d circles", circles)
	}
}

// randomWaits returns waits of callers with holds that are compatible.
func randomWaits(rng *rand.Rand) []Wait {
	waits := make([]Wait, 2+rng.IntN(5))
	var held []Claim
	draw := func() Claim { return Claim{[]string{"a", "b", "c", "d"}[rng.IntN(4)], rng.IntN(2) == 0} }
	for i := range waits {
		w := &waits[i]
		w.Process, w.ID, w.Began = string(rune('p'+i)), 1, rng.Int64N(5)
		for range rng.IntN(3) {
			if x := draw(); fits(x, held) {
				held = append(held, x)
				w.Holds = append(w.Holds, Hold{Claim: x, Fence: uint64(len(held))})
			}
		}
		w.Claim = draw()
	}
	return waits
}

func fits(x Claim, held []Claim) bool {
	return !slices.ContainsFunc(held, func(h Claim) bool { return h.Key == x.Key && !(h.Read && x.Read) })
}

// remaining returns the waits that can never go on, by letting all go on that can.
func remaining(waits []Wait) []Wait {
	left := slices.Clone(waits)
	for {
		var held []Claim
		for _, w := range left {
			for _, h := range w.Holds {
				held = append(held, h.Claim)
			}
		}
		i := slices.IndexFunc(left, func(w Wait) bool { return fits(w.Claim, held) })
		if i < 0 {
			return left
		}
		left = slices.Delete(left, i, i+1)
	}
}
