//go:build unix

package faults

import (
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/takes"
)

// scheduling is the time that a loaded machine may add to a bound of the protocol.
const scheduling = time.Second

// pause is the longest time that a key of healthy holders may be without a new lock, while several
// processes want it all the time. It takes some milliseconds on an idle machine; this bound is for
// a loaded one.
const pause = time.Second

func TestAStoppedProcessIsToldOfItsLossBeforeAnythingElse(t *testing.T) {
	takes.Seconds(t)
	long(t)
	s := newScene(t, job{Redis: redistest.Start(t).Addr, TTL: 2 * time.Second, Grace: 2500 * time.Millisecond})
	held := []string{"held", "quiet"}
	victim := s.start("victim", forever("held"), quietly(forever("quiet")), brief("a", "b"))
	s.settle("held", "quiet", "a", "b")
	for _, name := range []string{"w1", "w2"} {
		s.start(name, brief("held"), brief("quiet"), brief("a", "b"), brief("c"))
	}
	s.settle("a", "b", "c")
	s.work(100)

	stopped := s.signal(victim, syscall.SIGSTOP)
	limit, late := s.base.TTL+500*time.Millisecond+scheduling, mine.Late()
	got := s.judge.await(t, limit, "other processes get the keys",
		each(held, byKey, func(v visit) bool { return v.Worker != "victim" }))
	s.judge.await(t, time.Until(stopped.Add(limit))+slack(late), "the others use all keys",
		each([]string{"a", "b", "c"}, byKey, func(v visit) bool { return v.Entered.After(got) }))
	s.steady("c", stopped, got)
	time.Sleep(time.Until(stopped.Add(s.base.TTL + 250*time.Millisecond)))
	woken := s.signal(victim, syscall.SIGCONT)

	told := s.judge.await(t, scheduling, "the holder is told",
		each(held, byKey, func(v visit) bool { return v.Worker == "victim" && v.State == forfeited }))
	again := s.judge.await(t, s.base.TTL+scheduling, "the stopped process works again",
		func(v visit) bool { return v.Worker == "victim" && v.Entered.After(woken) && v.State == unlocked })
	t.Logf("T is %v; stopped for %v; the others had the keys after %v; told after %v, works again after %v", s.base.TTL,
		woken.Sub(stopped).Round(time.Millisecond), got.Sub(stopped).Round(time.Millisecond),
		told.Sub(woken).Round(time.Millisecond), again.Sub(woken).Round(time.Millisecond))
	all := s.check() // also that the losses were told before a later session's lock was granted
	for _, v := range s.judge.seen() {
		if v.State == forfeited && slices.Contains(held, v.Key) && !strings.HasPrefix(v.late, "rejected") {
			t.Errorf("the late write of %v to %s was answered %q", v, v.Key, v.late)
		}
	}
	if n := all["victim"].Sessions; n != 2 {
		t.Errorf("the stopped process has had %d sessions", n)
	}
	delete(all, "victim")
	s.unscathed(all)
}

func TestTheKeysOfAKilledProcessAreFreeAfterT(t *testing.T) {
	takes.Seconds(t)
	long(t)
	s := newScene(t, job{Redis: redistest.Start(t).Addr, TTL: 2 * time.Second, Grace: 2500 * time.Millisecond})
	victim := s.start("victim", forever("k1"), forever("k2"))
	s.settle("k1", "k2")
	s.start("w1", brief("k1"), brief("k2"), brief("a", "b"))
	s.start("w2", brief("k1"), brief("k2"), brief("a", "b"))
	s.settle("a", "b")
	s.work(100)

	killed := s.kill(victim)
	got := s.judge.await(t, s.base.TTL+500*time.Millisecond+scheduling, "the keys are free",
		each([]string{"k1", "k2"}, byKey, func(v visit) bool { return v.Worker != "victim" }))
	t.Logf("T is %v; the keys of the killed process are free after %v", s.base.TTL, got.Sub(killed).Round(time.Millisecond))
	s.steady("a", killed, got)
	s.steady("b", killed, got)
	s.unscathed(s.check())
}

// steady fails the test if there was a pause in the locks of a key in the time given.
func (s *scene) steady(key string, from, to time.Time) {
	s.t.Helper()
	last, longest := from, time.Duration(0)
	for _, v := range s.judge.seen() {
		if v.Key == key && v.Entered.After(from) && v.Entered.Before(to) {
			longest, last = max(longest, v.Entered.Sub(last)), v.Entered
		}
	}
	longest = max(longest, to.Sub(last))
	s.t.Logf("longest pause of %s: %v", key, longest.Round(time.Millisecond))
	if longest > pause+mine.Late()-s.late {
		s.t.Errorf("%s was not used for %v", key, longest)
	}
}
