package guardians_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/guardians"
)

const s = time.Second

// times: a promise lasts for 10 s, and counts for 8.
var times = guardians.Times{Promise: 10 * s, Margin: 2 * s}

func want[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

// promise has guardians promise, with pings sent at one moment and answers at the same.
func promise(w *guardians.Ward, now guardians.Instant, voted uint32, names ...string) {
	for _, g := range names {
		w.Promised(g, guardians.Pong{Seq: w.Ping(g, now).Seq, Voted: voted}, now)
	}
}

// guarded returns a ward with a recorded set, whose members have promised at 0.
func guarded(names ...string) *guardians.Ward {
	w := guardians.NewWard(times)
	w.Propose(names)
	promise(w, 0, 0, names...)
	if !w.Ask(0) {
		panic("not asked")
	}
	w.Recorded(1, false, 0)
	return w
}

func TestQuorum_ValidAndBuriedExcludeEachOther(t *testing.T) {
	for n, want := range [][2]int{{0, 1}, {1, 1}, {1, 2}, {2, 2}, {2, 3}, {3, 3}} {
		if n == 0 {
			continue // there is no guardian to vote
		}
		p, e := guardians.Quorum(n)
		if p != want[0] || e != want[1] || p+e != n+1 {
			t.Errorf("%d guardians: p %d, e %d, want %v", n, p, e, want)
		}
	}
	if _, e := guardians.Quorum(0); e < 1 {
		t.Error("a session without guardians is buried by no votes")
	}
}

func TestMarginFor_CoversClocksThatDifferAsTheLeaseAssumes(t *testing.T) {
	m := guardians.MarginFor(3*s, 10*s, s)
	want(t, "M_D for D 3 s, T 10 s, M 1 s", m, 301*time.Millisecond)
	want(t, "Valid", guardians.Times{Promise: 3 * s, Margin: m}.Valid(), 2699*time.Millisecond)
	if m := guardians.MarginFor(s, 7*s, 2*s); m < 2*s/7 {
		t.Errorf("M_D %v", m)
	}
}

func TestWard_WithoutGuardiansIsValid(t *testing.T) {
	w := guardians.NewWard(times)
	want(t, "until", w.Until(), guardians.Forever)
	want(t, "alive", w.Alive(1000*s), true)
	want(t, "announced", w.Announce(2000*s, 1000*s), 8*s)
	want(t, "announced, where the lease is shorter", w.Announce(1003*s, 1000*s), 3*s)
	want(t, "names", w.Names().Version, 0)
	want(t, "guardians", len(w.Guardians()), 0)
}

// A session is valid while enough of its guardians promise (G3).
func TestWard_IsValidWhileEnoughPromise(t *testing.T) {
	for _, tt := range []struct {
		names string
		at    string // each one's last promise, in seconds
		until guardians.Instant
	}{
		{"a", "0", 8 * s}, {"a", "3", 11 * s},
		{"a b", "0 3", 11 * s}, {"a b", "0 0", 8 * s},
		{"a b c", "0 3 5", 11 * s}, {"a b c", "0 0 5", 8 * s},
		{"a b c d", "0 1 2 3", 10 * s},
		{"a b c d e", "1 2 3 4 5", 11 * s},
	} {
		w := guarded(strings.Fields(tt.names)...)
		for i, at := range strings.Fields(tt.at) {
			d, _ := time.ParseDuration(at + "s")
			promise(w, d, 0, strings.Fields(tt.names)[i])
		}
		want(t, tt.names+" at "+tt.at, w.Until(), tt.until)
		want(t, "alive", w.Alive(tt.until-1), true)
		want(t, "alive at the end", w.Alive(tt.until), false)
	}
}

// A promise counts from when the ping was sent, for D - M_D (G2).
func TestWard_PromiseCountsFromWhenThePingWasSent(t *testing.T) {
	w := guarded("a")
	p := w.Ping("a", 2*s)
	w.Promised("a", guardians.Pong{Seq: p.Seq}, 7*s)
	want(t, "until", w.Until(), 10*s)
	w.Promised("a", guardians.Pong{Seq: p.Seq}, 9*s) // a duplicate
	want(t, "until", w.Until(), 10*s)

	p = w.Ping("a", 9*s)
	w.Promised("b", guardians.Pong{Seq: p.Seq}, 9*s) // of another one
	w.Promised("a", guardians.Pong{Seq: 99}, 9*s)    // to nothing that was asked
	want(t, "until", w.Until(), 10*s)
	later := w.Ping("a", 9500*time.Millisecond)
	w.Promised("a", guardians.Pong{Seq: later.Seq}, 9600*time.Millisecond)
	w.Promised("a", guardians.Pong{Seq: p.Seq}, 9700*time.Millisecond) // in the other order
	until, voted := w.Promise("a")
	want(t, "until", until, 17500*time.Millisecond)
	want(t, "voted", voted, 0)
}

func TestWard_LapseIsForEver(t *testing.T) {
	w := guarded("a")
	p := w.Ping("a", 7*s)
	want(t, "alive", w.Alive(8*s), false)
	w.Promised("a", guardians.Pong{Seq: p.Seq}, 8*s)
	promise(w, 8*s, 0, "a")
	want(t, "alive", w.Alive(8*s), false)
	want(t, "until", w.Until(), 0)
	want(t, "announced", w.Announce(100*s, 8*s), 0)
	w.Propose(nil)
	want(t, "asks", w.Ask(8*s), false)

	// The answer itself finds that it is too late.
	w = guarded("a")
	p = w.Ping("a", 7*s)
	w.Promised("a", guardians.Pong{Seq: p.Seq}, 8*s)
	want(t, "alive", w.Alive(0), false)

	w = guardians.NewWard(times)
	w.End()
	want(t, "alive, when the lease has ended", w.Alive(0), false)
}

// An announced deadline is bounded (G4), and the next set is asked for when its promises cover that
// (G7). From then on renewals name it (G8).
func TestWard_AsksForASetWhenItsPromisesCoverAllThatWasAnnounced(t *testing.T) {
	w := guarded("a")
	want(t, "announced", w.Announce(100*s, s), 7*s) // until 8 s
	want(t, "proposed", w.Propose([]string{"b"}), true)
	want(t, "asks without promises", w.Ask(s), false)
	p := w.Ping("b", s)
	want(t, "sets in a ping", fmt.Sprint(p.Sets), "[{1 [a]} {2 [b]}]")
	want(t, "to be pinged", fmt.Sprint(w.Guardians()), "[a b]")
	w.Promised("b", guardians.Pong{Seq: p.Seq, Voted: 2}, s)
	want(t, "asks with the promise of one that has voted", w.Ask(s), false)

	// A promise that ends before the announcement does.
	w = guarded("a")
	w.Propose([]string{"b"})
	promise(w, 0, 0, "b")
	promise(w, 2*s, 0, "a")
	w.Propose([]string{"b"})
	want(t, "announced, as collecting bounds it", w.Announce(100*s, 2*s), 6*s)
	want(t, "asks for a set that its member has not heard of", w.Ask(2*s), false)
	promise(w, 2*s, 0, "b")
	want(t, "asks", w.Ask(2*s), true)

	w = guarded("a")
	promise(w, 2*s, 0, "a")
	w.Announce(100*s, 2*s) // until 10 s
	w.Propose([]string{"b"})
	p = w.Ping("b", s)
	w.Promised("b", guardians.Pong{Seq: p.Seq}, 2*s)
	want(t, "asks, when the promise ends a second before", w.Ask(2*s), false)
	promise(w, 2*s, 0, "b")
	want(t, "asks", w.Ask(2*s), true)
	_, next, phase := w.Sets()
	want(t, "phase", phase.String(), "asked")
	want(t, "version", next.Version, 2)
	want(t, "asks again", w.Ask(2*s), false)
	want(t, "proposes meanwhile", w.Propose(nil), false)
}

// Until enough members of the next set have answered, a session announces no more than the pings
// under way will cover: so it asks for the set when they are answered, however late one is.
func TestWard_AnnouncesWhatThePingsUnderWayWillCover(t *testing.T) {
	w := guardians.NewWard(times)
	members := []string{"a", "b", "c"}
	w.Propose(members)
	want(t, "announced before the first ping", w.Announce(100*s, 0), 8*s)
	ping := func(now guardians.Instant) (pings []guardians.Ping) {
		for _, m := range members {
			pings = append(pings, w.Ping(m, now))
		}
		return pings
	}
	answer := func(i int, p guardians.Ping, now guardians.Instant) {
		w.Promised(members[i], guardians.Pong{Seq: p.Seq}, now)
	}
	sent := ping(s)
	answer(0, sent[0], 2*s)
	want(t, "announced after one answer of three", w.Announce(100*s, 2*s), 7*s) // until 9 s
	answer(1, sent[1], 3*s)
	want(t, "announced after two", w.Announce(100*s, 3*s), 6*s)
	want(t, "asks before the third knows the set", w.Ask(3*s), false)
	answer(2, sent[2], 3*s)
	want(t, "asks", w.Ask(3*s), true)

	w = guardians.NewWard(times)
	w.Propose(members)
	ping(s)
	want(t, "announced as none answers", w.Announce(100*s, 3*s), 6*s)
	ping(4 * s)
	want(t, "announced after further pings", w.Announce(100*s, 4*s), 8*s)
	want(t, "announced when pings have not been repeated in time", w.Announce(100*s, 7*s), 8*s)
	w.Promised("a", guardians.Pong{Seq: w.Ping("a", 20*s).Seq, Voted: 1}, 20*s)
	w.Ping("b", 20*s)
	want(t, "announced with one that has voted, and one that is asked, of three", w.Announce(100*s, 21*s), 8*s)
	w.Ping("c", 20*s)
	want(t, "announced with two that are asked", w.Announce(100*s, 21*s), 7*s)
}

// Both sets count until the answer (G7), and renewals go on naming the next one (G8).
func TestWard_NeedsBothSetsUntilTheAnswer(t *testing.T) {
	asked := func() *guardians.Ward {
		w := guarded("a")
		w.Propose([]string{"b"})
		promise(w, s, 0, "b")
		promise(w, 2*s, 0, "a")
		want(t, "names", w.Names().Version, 1)
		want(t, "asks", w.Ask(2*s), true)
		want(t, "names", w.Names().Version, 2)
		return w
	}
	w := asked()
	want(t, "until", w.Until(), 9*s)
	promise(w, 4*s, 0, "b")
	want(t, "until", w.Until(), 10*s)
	w.Recorded(1, false, 4*s) // an answer to an earlier renewal
	want(t, "until", w.Until(), 10*s)
	want(t, "dropped", fmt.Sprint(w.Recorded(2, false, 4*s)), "[a]")
	want(t, "until", w.Until(), 12*s)
	want(t, "the last ping", fmt.Sprint(w.Ping("a", 4*s).Sets), "[{2 [b]}]")
	if _, _, phase := w.Sets(); phase != guardians.Settled {
		t.Error(phase)
	}
	promise(w, 10*s, 0, "b")
	w.Propose(nil)
	w.Ask(11 * s)
	w.Recorded(3, false, 11*s)
	if until, _ := w.Promise("a"); until != 0 {
		t.Error("a promise that has passed is remembered")
	}

	w = asked()
	w.Recorded(2, false, 9*s) // too late
	want(t, "alive", w.Alive(9*s), false)
}

func TestWard_BothSetsCountWhileADeposedServerMayAnswer(t *testing.T) {
	w := guarded("a")
	w.Propose([]string{"b"})
	promise(w, 2*s, 0, "b")
	want(t, "asks", w.Ask(2*s), true)
	want(t, "dropped", len(w.Recorded(2, true, 3*s)), 0)
	want(t, "until", w.Until(), 8*s) // a's promise
	want(t, "names", w.Names().Version, 2)
	want(t, "dropped", fmt.Sprint(w.Recorded(2, false, 4*s)), "[a]")
	want(t, "until", w.Until(), 10*s)
}

func TestWard_DropsItsGuardiansThroughTheArbiter(t *testing.T) {
	w := guarded("a", "b")
	w.Announce(100*s, 0)
	w.Propose(nil)
	want(t, "asks", w.Ask(5*s), true)
	want(t, "until", w.Until(), 8*s)
	w.Recorded(2, false, 7*s)
	want(t, "until", w.Until(), guardians.Forever)
	want(t, "names", w.Names().Version, 2)
}

func TestWard_VoteEndsAVersion(t *testing.T) {
	w := guarded("a", "b")
	promise(w, 3*s, 1, "a") // it had voted against version 1
	want(t, "until", w.Until(), 8*s)
	w.Propose([]string{"a", "b"})
	promise(w, 4*s, 1, "a")
	want(t, "asks for a set that b has not heard of", w.Ask(4*s), false)
	promise(w, 4*s, 0, "b")
	want(t, "asks", w.Ask(4*s), true)
	w.Recorded(2, false, 4*s)
	want(t, "until", w.Until(), 12*s)
}

func TestChoose(t *testing.T) {
	live := strings.Fields("a b c d e f g h")
	for n, want := range []int{0, 0, 1, 2, 3, 3, 5, 5, 5} {
		if got := guardians.Choose("a", nil, live[:n]); len(got) != want || slices.Contains(got, "a") {
			t.Errorf("of %v: %v", live[:n], got)
		}
	}
	first := guardians.Choose("a", nil, live)
	if again := guardians.Choose("a", nil, live); !slices.Equal(first, again) {
		t.Errorf("%v, then %v", first, again)
	}
	kept := guardians.Choose("a", []string{"g", "x", "h"}, live)
	if !slices.Contains(kept, "g") || !slices.Contains(kept, "h") || slices.Contains(kept, "x") {
		t.Errorf("kept: %v", kept)
	}
	guards := make(map[string]int)
	for i := range 200 {
		for _, g := range guardians.Choose(fmt.Sprint("node ", i), nil, live) {
			guards[g]++
		}
	}
	for _, g := range live {
		if guards[g] < 100 || guards[g] > 150 {
			t.Errorf("%s guards %d of 200, of whom each has five of eight", g, guards[g])
		}
	}
}

// Deadlines relied on without promises have to be covered before a set is asked for.
func TestWard_AsksWhenWhatWasReliedOnIsCovered(t *testing.T) {
	times := guardians.Times{Promise: 3 * time.Second, Margin: 301 * time.Millisecond}
	w := guardians.NewWard(times)
	w.Relied(9 * time.Second)
	w.Propose([]string{"g"})
	for now := time.Duration(0); now < 12*time.Second; now += 500 * time.Millisecond {
		p := w.Ping("g", now)
		w.Promised("g", guardians.Pong{Seq: p.Seq}, now)
		covered := now+times.Valid() >= 9*time.Second
		if asks := w.Ask(now); asks != covered {
			t.Fatalf("at %v: asks %v, its promises cover it %v", now, asks, covered)
		} else if asks {
			return
		}
	}
	t.Error("it never asks")
}

// The ward's clock may have gone on a little further than its deadlines: by Noise, which is in M_D.
func TestWard_AsksDespiteNoise(t *testing.T) {
	times := guardians.Times{Promise: 3 * time.Second, Margin: 302 * time.Millisecond, Noise: time.Millisecond}
	for late, want := range map[time.Duration]bool{0: true, times.Noise: true, times.Noise + 1: false} {
		w := guardians.NewWard(times)
		w.Propose([]string{"g"})
		w.Promised("g", guardians.Pong{Seq: w.Ping("g", 0).Seq}, 0)
		w.Relied(times.Valid() + late)
		if asks := w.Ask(0); asks != want {
			t.Errorf("a deadline %v after the promise's end: it asks: %v", late, asks)
		}
		w = guardians.NewWard(times)
		w.Relied(times.Valid() + late)
		if w.Propose(nil); !w.Ask(0) {
			t.Error("a set without members, which needs no promise, is not asked for")
		}
	}
}
