package handoff

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

const t0 = time.Duration(0) // a recall counts then, too

func at(d time.Duration) time.Duration { return t0 + d }

// queue returns a queue with n waiters, whose values are 0 to n-1.
func queue(n int) (*Queue[int], []*Waiter[int]) {
	q := new(Queue[int])
	var ws []*Waiter[int]
	for i := range n {
		w := &Waiter[int]{Value: i}
		q.Join(w)
		ws = append(ws, w)
	}
	return q, ws
}

func TestTurnsGoInOrderOfArrivalWithRisingTokens(t *testing.T) {
	q, ws := queue(5)
	w := q.Take(100, 10, false, t0)
	for i := range 5 {
		if w != ws[i] || w.Fence() != uint64(100+i) || q.State() != Turn || q.Waiting() != 4-i {
			t.Fatalf("turn %d: waiter %v with token %d, %v, %d wait", i, w, w.Fence(), q.State(), q.Waiting())
		}
		next, what := q.Done(t0, Limits{})
		if i < 4 && (next == nil || what != Stay) || i == 4 && (next != nil || what != GiveBack) {
			t.Fatalf("after turn %d: %v, %v", i, next, what)
		}
		w = next
	}
	if q.State() != Idle {
		t.Errorf("state %v", q.State())
	}
}

// To take a hold and to find a waiter for it is one step (rule 11).
func TestAGrantThatNobodyWaitsForIsNotTaken(t *testing.T) {
	q, ws := queue(1)
	if !q.Leave(ws[0]) || q.Leave(ws[0]) {
		t.Error("a waiter leaves exactly once")
	}
	if w := q.Take(1, 10, false, t0); w != nil || q.State() != Idle {
		t.Errorf("taken for %v (rule 11)", w)
	}
}

func TestAWaiterWithATurnCannotLeave(t *testing.T) {
	q, ws := queue(2)
	q.Take(1, 10, false, t0)
	if q.Leave(ws[0]) {
		t.Error("left with its turn: the turn is lost for all")
	}
	if next, _ := q.Done(t0, Limits{}); next != ws[1] {
		t.Error("the turn was not passed on")
	}
}

func TestWaitersLeaveFromAnywhere(t *testing.T) {
	for leave := range 4 {
		q, ws := queue(4)
		q.Leave(ws[leave])
		var got []int
		for w := q.Take(1, 10, false, t0); w != nil; w, _ = q.Done(t0, Limits{}) {
			got = append(got, w.Value)
		}
		if want := slices.Delete([]int{0, 1, 2, 3}, leave, leave+1); !slices.Equal(got, want) {
			t.Errorf("without %d: %v", leave, got)
		}
	}
}

func TestTheQuantum(t *testing.T) {
	const ms = time.Millisecond
	for name, x := range map[string]struct {
		limits    Limits
		contended bool
		recallAt  time.Duration // each turn takes 1 ms; 0: never
		turns     int           // of 10 waiters that have one before the hold goes back
	}{
		"nobody else waits":               {Limits{MaxTurns: 2, MaxHold: 2 * ms}, false, 0, 10},
		"no limits":                       {Limits{}, true, 0, 10},
		"by count, contended at once":     {Limits{MaxTurns: 3}, true, 0, 3},
		"by time, contended at once":      {Limits{MaxHold: 3 * ms}, true, 0, 3},
		"by count, since the recall":      {Limits{MaxTurns: 3}, false, 2 * ms, 5},
		"by time, since the recall":       {Limits{MaxHold: 3 * ms}, false, 2 * ms, 5},
		"whichever is first":              {Limits{MaxTurns: 2, MaxHold: time.Second}, true, 0, 2},
		"the turn that runs is completed": {Limits{MaxHold: 1}, true, 0, 1},
	} {
		t.Run(name, func(t *testing.T) {
			q, _ := queue(10)
			turns, what := 0, Stay
			for w := q.Take(1, 100, x.contended, t0); w != nil; {
				if x.recallAt != 0 && time.Duration(turns)*ms == x.recallAt {
					if got := q.Recall(at(x.recallAt)); got != Stay {
						t.Errorf("Recall during a turn: %v", got)
					}
				}
				turns++
				w, what = q.Done(at(time.Duration(turns)*ms), x.limits)
			}
			if turns != x.turns || what != GiveBack || q.Waiting() != 10-x.turns || q.State() != Idle {
				t.Errorf("%d turns, then %v; %d wait, %v", turns, what, q.Waiting(), q.State())
			}
		})
	}
}

func TestLingering(t *testing.T) {
	limits := Limits{Linger: time.Second}
	q, _ := queue(1)
	q.Take(7, 3, false, t0)
	if next, what := q.Done(t0, limits); next != nil || what != Stay || q.State() != Lingering {
		t.Fatalf("%v, %v, %v", next, what, q.State())
	}
	if fence, ok := q.Enter(); !ok || fence != 8 || q.State() != Turn {
		t.Errorf("token %d, %v", fence, ok)
	}
	if _, ok := q.Enter(); ok {
		t.Error("two turns at the same time (I1)")
	}
	q.Done(t0, limits)
	q.Enter()
	if _, what := q.Done(t0, limits); what != GiveBack || q.State() != Idle {
		t.Errorf("the block is used up (rule 16), and yet %v", q.State())
	}

	for name, end := range map[string]func(q *Queue[int]) Next{
		"it is enough": (*Queue[int]).Relax,
		"recalled":     func(q *Queue[int]) Next { return q.Recall(t0) },
	} {
		q, _ := queue(1)
		q.Take(7, 3, false, t0)
		if what := q.Relax(); what != Stay {
			t.Error("a turn is no lingering")
		}
		q.Done(t0, limits)
		if what := end(q); what != GiveBack || q.State() != Idle {
			t.Errorf("%s: %v, %v", name, what, q.State())
		}
	}

	q, _ = queue(1)
	q.Take(7, 3, true, t0)
	if _, what := q.Done(t0, limits); what != GiveBack {
		t.Error("it lingers although another process waits")
	}
}

func TestALostHoldLeavesTheWaiters(t *testing.T) {
	q, ws := queue(3)
	q.Take(7, 3, true, t0)
	q.Drop()
	if q.State() != Idle || q.Waiting() != 2 || q.Recalled() {
		t.Errorf("%v, %d wait", q.State(), q.Waiting())
	}
	if next, what := q.Done(t0, Limits{}); next != nil || what != Stay {
		t.Error("the end of a lost turn means something")
	}
	if w := q.Take(20, 3, false, t0); w != ws[1] || w.Fence() != 20 {
		t.Errorf("%v", w)
	}
}

func TestDrain(t *testing.T) {
	q, _ := queue(6)
	var gone []int
	q.Drain(func(w *Waiter[int]) bool { return w.Value%2 == 0 }, func(w *Waiter[int]) { gone = append(gone, w.Value) })
	if fmt.Sprint(gone) != "[0 2 4]" || q.Waiting() != 3 || q.Any(func(w *Waiter[int]) bool { return w.Value == 2 }) {
		t.Errorf("%v gone, %d wait", gone, q.Waiting())
	}
	q.Drain(nil, func(w *Waiter[int]) { gone = append(gone, w.Value) })
	if fmt.Sprint(gone) != "[0 2 4 1 3 5]" || q.Waiting() != 0 {
		t.Errorf("%v gone, %d wait", gone, q.Waiting())
	}
}

// The queue against a model that is too simple to be wrong: a slice of waiters.
func TestRandomOperations(t *testing.T) {
	for seed := range uint64(2000) {
		r := rand.New(rand.NewPCG(seed, 0))
		q := new(Queue[int])
		limits := Limits{MaxTurns: r.IntN(4), MaxHold: time.Duration(r.IntN(4)) * time.Second, Linger: time.Duration(r.IntN(2)) * time.Second}
		var waiting []*Waiter[int]
		var last, base uint64 // the last token given out; the last block's end
		turn, held, now := false, false, t0
		check := func(w *Waiter[int]) {
			if w == nil {
				return
			}
			if len(waiting) == 0 || w != waiting[0] {
				t.Fatalf("seed %d: out of order", seed)
			}
			waiting, turn = waiting[1:], true
			if w.Fence() <= last {
				t.Fatalf("seed %d: token %d after %d (I2)", seed, w.Fence(), last)
			}
			last = w.Fence()
		}
		for range 200 {
			now += time.Duration(r.IntN(3)) * time.Second
			switch r.IntN(7) {
			case 0, 1:
				if fence, ok := q.Enter(); ok {
					if turn || !held || fence <= last {
						t.Fatalf("seed %d: entered with token %d after %d, turn %v, held %v", seed, fence, last, turn, held)
					}
					turn, last = true, fence
					break
				}
				w := &Waiter[int]{Value: r.Int()}
				q.Join(w)
				waiting = append(waiting, w)
			case 2:
				if n := len(waiting); n > 0 {
					i := r.IntN(n)
					q.Leave(waiting[i])
					waiting = slices.Delete(waiting, i, i+1)
				}
			case 3:
				n := uint64(r.IntN(5))
				wasHeld, waited := held, len(waiting) > 0
				w := q.Take(base+1, n, r.IntN(2) == 0, now)
				if (w != nil) != (!wasHeld && waited && n > 0) {
					t.Fatalf("seed %d: taken by %v", seed, w)
				}
				if w != nil {
					held = true
					base += n
					check(w)
				}
			case 4:
				was := turn
				next, what := q.Done(now, limits)
				if was {
					turn = false
					check(next)
					held = what == Stay
				}
				if !was && (next != nil || what != Stay) || next != nil && what != Stay {
					t.Fatalf("seed %d: Done says %v, %v", seed, next, what)
				}
			case 5:
				if q.Recall(now) == GiveBack {
					if turn || !held {
						t.Fatalf("seed %d: recall gives back a turn", seed)
					}
					held = false
				}
			case 6:
				if q.Relax() == GiveBack {
					held = false
				}
			}
			want := Idle
			if turn {
				want = Turn
			} else if held {
				want = Lingering
			}
			if q.State() != want || q.Waiting() != len(waiting) {
				t.Fatalf("seed %d: %v with %d waiting, want %v with %d", seed, q.State(), q.Waiting(), want, len(waiting))
			}
			if want == Lingering && len(waiting) > 0 {
				t.Fatalf("seed %d: a hold lingers while somebody waits", seed)
			}
		}
	}
}

func BenchmarkTurn(b *testing.B) {
	q, _ := queue(2)
	w := q.Take(1, 1<<62, false, t0)
	b.ReportAllocs()
	for b.Loop() {
		q.Join(w)
		w, _ = q.Done(t0, Limits{})
	}
}

func TestAHoldWhoseGrantorIsAtHandTakesTokensOneByOne(t *testing.T) {
	limits := Limits{Linger: time.Second}
	q := new(Queue[int])
	if !q.Begin(7) || q.Begin(8) || q.State() != Turn {
		t.Fatalf("state %v", q.State())
	}
	q.Supply(20)
	if next, what := q.Done(t0, limits); next != nil || what != Stay || q.State() != Lingering {
		t.Errorf("%v, %v, %v", next, what, q.State())
	}
	q.Supply(30)
	if fence, ok := q.Enter(); !ok || fence != 30 {
		t.Errorf("token %d, %v", fence, ok)
	}
	w := &Waiter[int]{}
	q.Join(w)
	q.Supply(40)
	if next, _ := q.Done(t0, limits); next != w || w.Fence() != 40 {
		t.Errorf("token %d", w.Fence())
	}
	if _, what := q.Done(t0, limits); what != GiveBack {
		t.Error("a turn without a token")
	}
	q.Join(w)
	if q.Begin(50) {
		t.Error("before those who wait")
	}
}

func TestRestAndAgain(t *testing.T) {
	q := new(Queue[int])
	if q.Rest() || q.Again(1) {
		t.Error("without a hold")
	}
	q.Begin(7)
	if q.Again(8) || !q.Rest() || q.State() != Lingering || q.Rest() {
		t.Errorf("state %v", q.State())
	}
	if !q.Again(9) || q.State() != Turn {
		t.Errorf("state %v", q.State())
	}
	w := &Waiter[int]{}
	q.Join(w)
	if q.Rest() {
		t.Error("somebody waits")
	}
	q.Leave(w)
	q.Recall(t0)
	if q.Rest() {
		t.Error("it was recalled")
	}
	if _, what := q.Done(t0, Limits{Linger: time.Second}); what != GiveBack {
		t.Error("there was no token left")
	}
}

func TestPass(t *testing.T) {
	q := new(Queue[int])
	first, second := &Waiter[int]{}, &Waiter[int]{}
	q.Begin(7)
	if q.Pass(8) != nil {
		t.Error("nobody waits")
	}
	q.Join(first)
	q.Join(second)
	if w := q.Pass(9); w != first || w.Fence() != 9 || q.State() != Turn || q.Waiting() != 1 || q.Leave(w) {
		t.Errorf("%v with %d waiting", q.State(), q.Waiting())
	}
	q.Join(first) // behind the second
	q.Recall(t0)
	if q.Pass(10) != nil {
		t.Error("it was recalled: the quantum counts")
	}
	q.Supply(10)
	if w, _ := q.Done(t0, Limits{}); w != second || w.Fence() != 10 {
		t.Errorf("token %d", w.Fence())
	}
	q.Drop()
	if q.Pass(11) != nil {
		t.Error("without a hold")
	}
	if w := q.Take(12, 1, false, t0); w != first || q.Waiting() != 0 {
		t.Errorf("%d wait", q.Waiting())
	}
}

// A walk goes on where it was, whatever happens to the queue in its rests: each waiter that stays
// is seen once, in order.
func TestWalk(t *testing.T) {
	for what, change := range map[string]func(q *Queue[int], w []*Waiter[int]){
		"nothing":         func(*Queue[int], []*Waiter[int]) {},
		"the next leaves": func(q *Queue[int], w []*Waiter[int]) { q.Leave(w[3]) },
		"the next ones leave, and come again": func(q *Queue[int], w []*Waiter[int]) {
			for _, x := range w[3:5] {
				q.Leave(x)
				x.Value += 10
				q.Join(x)
			}
		},
		"those before leave": func(q *Queue[int], w []*Waiter[int]) { q.Leave(w[0]); q.Leave(w[2]) },
		"turns that are passed on": func(q *Queue[int], _ []*Waiter[int]) {
			for q.Take(1, 8, false, t0); q.Waiting() > 4; {
				q.Pass(7)
			}
		},
		"turns": func(q *Queue[int], _ []*Waiter[int]) {
			for q.Take(1, 8, false, t0); q.Waiting() > 4; {
				q.Done(t0, Limits{})
			}
		},
	} {
		q, w := queue(8)
		var seen []int
		q.Walk(func() bool {
			if len(seen) == 3 {
				change(q, w)
			}
			return true
		}, func(x *Waiter[int]) { seen = append(seen, x.Value) })
		var want []int
		for i := range 3 {
			want = append(want, i)
		}
		q.Any(func(x *Waiter[int]) bool {
			if x.Value > 2 {
				want = append(want, x.Value)
			}
			return false
		})
		if !slices.Equal(seen, want) {
			t.Errorf("%s: %v, want %v", what, seen, want)
		}
	}
	q, _ := queue(8)
	n := 0
	q.Walk(func() bool { return n < 5 }, func(*Waiter[int]) { n++ })
	if n != 5 {
		t.Errorf("%d were seen after the end", n)
	}
	q, _ = queue(8)
	n = 0
	q.Walk(func() bool { q.Drain(nil, func(*Waiter[int]) {}); return true }, func(*Waiter[int]) { n++ })
	if n != 1 {
		t.Errorf("%d of a queue that was emptied", n)
	}
}
