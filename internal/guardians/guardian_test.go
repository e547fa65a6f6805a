package guardians_test

import (
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/guardians"
)

func ping(sets ...guardians.Set) guardians.Ping { return guardians.Ping{Seq: 7, Sets: sets} }

var (
	one = guardians.Set{Version: 1, Members: []string{"a", "b", "c"}}
	two = guardians.Set{Version: 2, Members: []string{"a", "d"}}
	not = guardians.Set{Version: 3, Members: []string{"b", "c"}}
)

// A guardian promises not to vote for D after a ping (G2), and votes then (G5).
func TestGuardian_VotesWhenItsPromiseHasPassed(t *testing.T) {
	g := guardians.NewGuardian("a", times)
	want(t, "next", g.Next(), guardians.Forever)
	want(t, "pong", g.Pinged("x", ping(one), 0), guardians.Pong{Seq: 7})
	g.Pinged("x", ping(one), 2*s)
	want(t, "next", g.Next(), 12*s)
	want(t, "promised", g.Promised()["x"], 12*s)
	want(t, "votes", len(g.Look(12*s-1)), 0)
	want(t, "votes", fmt.Sprint(g.Look(12*s)), "[{x a {1 [a b c]}}]")
	want(t, "votes again", len(g.Look(13*s)), 0)
	want(t, "next", g.Next(), guardians.Forever)
	want(t, "pong", g.Pinged("x", ping(one), 14*s), guardians.Pong{Seq: 7, Voted: 1})
	want(t, "votes against what it has voted for", len(g.Look(100*s)), 0)
	g.Pinged("x", ping(one, two, not), 14*s)
	want(t, "votes", fmt.Sprint(g.Look(100*s)), "[{x a {2 [a d]}}]")
}

func TestGuardian_ThatIsDroppedDoesNotVote(t *testing.T) {
	g := guardians.NewGuardian("a", times)
	g.Pinged("x", ping(one), 0)
	g.Pinged("y", ping(one), 0)
	g.Pinged("x", ping(not), s)
	want(t, "votes", fmt.Sprint(g.Look(20*s)), "[{y a {1 [a b c]}}]")
	if all := g.Promised(); len(all) != 1 || all["y"] != 10*s {
		t.Errorf("promised: %v", all)
	}
}

// A guardian that leaves is needed until each session names no set with it any more, or is dead.
func TestGuardian_Needed(t *testing.T) {
	g := guardians.NewGuardian("a", times)
	want(t, "by none", g.Needed(), false)
	g.Pinged("x", ping(one), 0)
	g.Pinged("y", ping(one), 0)
	want(t, "by two", g.Needed(), true)
	g.Pinged("y", ping(one, not), s)
	g.Pinged("x", guardians.Ping{}, s) // it leaves
	want(t, "by one that changes its set", g.Needed(), true)
	g.Pinged("y", ping(not), s)
	want(t, "by none any more", g.Needed(), false)
	g.Pinged("y", ping(two), s)
	g.Look(20 * s)
	want(t, "its vote", g.Needed(), true)
	g.Forget("y")
	want(t, "after the burial", g.Needed(), false)
}

// It promises nothing for a version that it has voted for, nor for earlier ones (G5).
func TestGuardian_VotesForBothSets(t *testing.T) {
	g := guardians.NewGuardian("a", times)
	g.Pinged("y", ping(one), 0)
	g.Pinged("x", ping(one, two), 0)
	want(t, "votes", fmt.Sprint(g.Look(10*s)), "[{x a {1 [a b c]}} {x a {2 [a d]}} {y a {1 [a b c]}}]")
	want(t, "pong", g.Pinged("x", ping(one), 14*s), guardians.Pong{Seq: 7, Voted: 2})
}

// Votes of members, for one version, bury (G6).
func TestGuardian_EnoughVotesBury(t *testing.T) {
	g := guardians.NewGuardian("a", times)
	g.Pinged("x", ping(one), 0)
	want(t, "burials", len(g.Burials()), 0)
	g.Look(10 * s)
	want(t, "burials", len(g.Burials()), 0)
	g.Heard(guardians.Vote{Ward: "x", Voter: "z", Set: one}, 10*s) // no member
	want(t, "burials", len(g.Burials()), 0)
	for range 2 {
		g.Heard(guardians.Vote{Ward: "x", Voter: "c", Set: one}, 10*s)
		want(t, "burials", fmt.Sprint(g.Burials()), "[{x 1 [a c]}]")
	}
	g.Outdated("x", 1)
	want(t, "burials", len(g.Burials()), 1)
	g.Outdated("x", 2)
	want(t, "burials", len(g.Burials()), 0)
	want(t, "pong", g.Pinged("x", ping(one), 11*s).Voted, 1)
	g.Outdated("nobody", 2)
	g.Forget("x")
	want(t, "promised", len(g.Promised()), 0)
}

func TestGuardian_BurialsAreSorted(t *testing.T) {
	g := guardians.NewGuardian("e", times) // no member
	for _, v := range []guardians.Vote{
		{Ward: "y", Voter: "a", Set: two}, {Ward: "x", Voter: "a", Set: two}, {Ward: "x", Voter: "b", Set: one},
		{Ward: "x", Voter: "c", Set: one}, {Ward: "x", Voter: "d", Set: two}, {Ward: "y", Voter: "d", Set: two},
	} {
		g.Heard(v, 0)
	}
	want(t, "burials", fmt.Sprint(g.Burials()), "[{x 1 [b c]} {x 2 [a d]} {y 2 [a d]}]")
}

// A member that makes a version up, and votes for it whenever it is outdated, does not come before
// the session's own sets.
func TestGuardian_BurialsOfSetsThatAreToldComeFirst(t *testing.T) {
	told := guardians.Set{Version: 2, Members: []string{"a", "b", "z"}}
	g := guardians.NewGuardian("a", times)
	g.Pinged("x", guardians.Ping{Seq: 1, Sets: []guardians.Set{told}}, 0)
	want(t, "votes", len(g.Look(10*s)), 1)
	g.Heard(guardians.Vote{Ward: "x", Voter: "b", Set: told}, 10*s)
	g.Heard(guardians.Vote{Ward: "x", Voter: "z", Set: guardians.Set{Version: 1, Members: []string{"z"}}}, 10*s)
	want(t, "burials", fmt.Sprint(g.Burials()), "[{x 2 [a b]} {x 1 [z]}]")
}

func TestGuardian_ThatWasNeverPingedWaits(t *testing.T) {
	g := guardians.NewGuardian("a", times)
	g.Heard(guardians.Vote{Ward: "x", Voter: "b", Set: one}, 5*s)
	want(t, "votes", len(g.Look(15*s-1)), 0)
	want(t, "votes", len(g.Look(15*s)), 1)
	want(t, "burials", len(g.Burials()), 1)

	g = guardians.NewGuardian("z", times) // not a member
	g.Heard(guardians.Vote{Ward: "x", Voter: "b", Set: one}, 5*s)
	want(t, "votes", len(g.Look(100*s)), 0)
	want(t, "promised", len(g.Promised()), 0)
}

func TestGuardian_ThatStoodStillWaits(t *testing.T) {
	g := guardians.NewGuardian("a", times)
	g.Pinged("x", ping(one), 0)
	g.Pinged("y", ping(one), 25*s)
	g.Resumed(30*s, 3*s)
	want(t, "next", g.Next(), 33*s)
	want(t, "votes", len(g.Look(32*s)), 0)
	want(t, "votes", len(g.Look(33*s)), 1)
	want(t, "votes", len(g.Look(35*s)), 1)
}

// A guardian that is told of the end of a session's process votes at once: the promise binds it no
// more (G11). Nothing that it hears afterwards, and no pause of its own, delays that.
func TestGuardian_VotesAtOnceForAnEndedProcess(t *testing.T) {
	ofTold := []guardians.Vote{{Ward: "x", Voter: "b", Set: one}}
	for name, after := range map[string]func(g *guardians.Guardian){
		"with nothing after it":     func(*guardians.Guardian) {},
		"and a ping that was late":  func(g *guardians.Guardian) { g.Pinged("x", ping(one), 2*s) },
		"and the vote of another":   func(g *guardians.Guardian) { g.Heard(ofTold[0], 2*s) },
		"and a pause of its own":    func(g *guardians.Guardian) { g.Resumed(2*s, 9*s) },
		"and being told once again": func(g *guardians.Guardian) { g.Ended("x", none) },
	} {
		t.Run(name, func(t *testing.T) {
			g := guardians.NewGuardian("a", times)
			g.Pinged("x", ping(one), s)
			g.Pinged("y", ping(one), s)
			want(t, "next", g.Next(), 11*s)
			g.Ended("x", none)
			after(g)
			if next := g.Next(); next > 2*s {
				t.Errorf("it is to look at %v, not now", next)
			}
			want(t, "votes", fmt.Sprint(g.Look(2*s)), "[{x a {1 [a b c]}}]")
			if next := g.Next(); next < 11*s {
				t.Errorf("then it is to look at %v, before its promise to another session has passed", next)
			}
			want(t, "votes again", len(g.Look(3*s)), 0)
			want(t, "pong", g.Pinged("x", ping(one), 3*s).Voted, 1)
			g.Heard(ofTold[0], 3*s)
			want(t, "burials", len(g.Burials()), 1)
		})
	}
}

func none(string) bool { return false }

// Where other guardians have ended as well, they count as having voted, once the ward's end is
// known and this node has voted. They do not for a session that has not ended.
func TestGuardian_CountsThoseThatEndedAsWell(t *testing.T) {
	g := guardians.NewGuardian("a", times)
	five := guardians.Set{Version: 1, Members: []string{"a", "b", "c", "d", "e"}} // three votes
	g.Pinged("x", ping(five), 0)
	g.Pinged("y", ping(five), 0)
	ended := map[string]bool{"b": true, "a": true, "stranger": true}
	over := func(session string) bool { return ended[session] }
	g.Ended("x", over)
	want(t, "burials before its vote", len(g.Burials()), 0)
	want(t, "votes", len(g.Look(s)), 1)
	want(t, "burials with two of three", len(g.Burials()), 0)
	ended["c"] = true
	want(t, "burials before it is told again", len(g.Burials()), 0)
	g.Ended("x", over)
	want(t, "burials", fmt.Sprint(g.Burials()), "[{x 1 [a b c]}]")
	g.Heard(guardians.Vote{Ward: "x", Voter: "c", Set: five}, s)
	want(t, "burials", fmt.Sprint(g.Burials()), "[{x 1 [a c b]}]")
	want(t, "votes against y", len(g.Look(11*s)), 1)
	want(t, "burials", len(g.Burials()), 1)
}

// It votes at once for a set of which it has heard by another one's vote alone, and for each set of
// a change.
func TestGuardian_VotesAtOnceForEachSet(t *testing.T) {
	g := guardians.NewGuardian("a", times)
	g.Heard(guardians.Vote{Ward: "x", Voter: "b", Set: one}, 0)
	g.Pinged("y", ping(one, two, not), 0)
	g.Ended("x", none)
	g.Ended("y", none)
	want(t, "votes", fmt.Sprint(g.Look(s)), "[{x a {1 [a b c]}} {y a {1 [a b c]}} {y a {2 [a d]}}]")
}

// Of a session that it does not know, a guardian keeps no end: it has promised nothing, and is not
// needed. A promise that it makes later holds.
func TestGuardian_EndOfASessionThatItDoesNotKnow(t *testing.T) {
	g := guardians.NewGuardian("a", times)
	g.Ended("x", none)
	want(t, "next", g.Next(), guardians.Forever)
	want(t, "votes", len(g.Look(s)), 0)
	want(t, "promised", len(g.Promised()), 0)
	want(t, "guards", g.Guards("x"), false)
	g.Pinged("x", ping(one), s)
	want(t, "votes before its promise has passed", len(g.Look(11*s-1)), 0)
	want(t, "votes", len(g.Look(11*s)), 1)
	g.Forget("x")
	g.Ended("x", none)
	g.Pinged("x", ping(one), 20*s)
	want(t, "votes", len(g.Look(30*s-1)), 0)
}

// A node guards the sessions that have told it of a set with it as a member, and no others.
func TestGuardian_Guards(t *testing.T) {
	g := guardians.NewGuardian("a", times)
	guards := func(what string, is bool) {
		t.Helper()
		want(t, what, g.Guards("x"), is)
	}
	guards("a session that it does not know", false)
	g.Heard(guardians.Vote{Ward: "x", Voter: "b", Set: not}, 0)
	guards("one that it has heard a vote against, in a set without it", false)
	g.Pinged("x", ping(not), 0)
	guards("one that has told of a set without it", false)
	g.Pinged("x", ping(not, one), 0)
	guards("one that changes to a set with it", true)
	want(t, "another one", g.Guards("y"), false)
	g.Pinged("x", ping(not), 0)
	guards("one that has dropped it", false)
	g.Pinged("x", ping(one), 0)
	g.Look(10 * s)
	guards("one that it has voted against", true)
	g.Forget("x")
	guards("one that was buried", false)
	g.Heard(guardians.Vote{Ward: "x", Voter: "b", Set: one}, 11*s)
	guards("one that another member has voted against", true)
}

// A vote that is lost with its stream is sent again: until the session is forgotten, or tells of a
// later set.
func TestGuardian_VotesStand(t *testing.T) {
	times := guardians.Times{Promise: 3 * time.Second, Margin: 301 * time.Millisecond}
	g := guardians.NewGuardian("g", times)
	first, second := guardians.Set{Version: 1, Members: []string{"g", "h"}}, guardians.Set{Version: 2, Members: []string{"g", "h"}}
	g.Pinged("x", guardians.Ping{Seq: 1, Sets: []guardians.Set{first}}, 0)
	if votes := g.Standing(); len(votes) != 0 {
		t.Errorf("before its promise has passed: %v", votes)
	}
	voted := g.Look(3 * time.Second)
	if votes := g.Standing(); len(voted) != 1 || !reflect.DeepEqual(votes, voted) {
		t.Errorf("it has voted %v, and stands by %v", voted, votes)
	}
	g.Pinged("x", guardians.Ping{Seq: 2, Sets: []guardians.Set{first, second}}, 3*time.Second)
	if votes := g.Standing(); len(votes) != 0 {
		t.Errorf("the session lives, with a later set: %v", votes)
	}
	before := voted
	voted = g.Look(6 * time.Second)
	if votes := g.Standing(); len(voted) != 1 || voted[0].Set.Version != 2 || !reflect.DeepEqual(votes, slices.Concat(before, voted)) {
		t.Errorf("it has voted %v and %v, and stands by %v", before, voted, votes)
	}
	if g.Forget("x"); len(g.Standing()) != 0 {
		t.Error("a vote against a session that is forgotten")
	}
}

// Of a session that died while it changed its set, the recorded one may be either: a guardian
// stands by its vote for each, also if it is in one of them only.
func TestGuardian_VotesStandForBothSetsOfAChange(t *testing.T) {
	times := guardians.Times{Promise: 3 * time.Second, Margin: 301 * time.Millisecond}
	both := guardians.Set{Version: 1, Members: []string{"g", "h"}}
	for name, next := range map[string]guardians.Set{
		"in both": {Version: 2, Members: []string{"g", "i"}},
		"dropped": {Version: 2, Members: []string{"h", "i"}},
	} {
		g := guardians.NewGuardian("g", times)
		g.Pinged("x", guardians.Ping{Seq: 1, Sets: []guardians.Set{both, next}}, 0)
		voted := g.Look(3 * time.Second)
		if votes := g.Standing(); len(voted) == 0 || voted[0].Set.Version != 1 || !reflect.DeepEqual(votes, voted) {
			t.Errorf("%s: it has voted %v, and stands by %v", name, voted, votes)
		}
		g.Pinged("x", guardians.Ping{Seq: 2, Sets: []guardians.Set{next}}, 4*time.Second)
		for _, v := range g.Standing() {
			if v.Set.Version == 1 {
				t.Errorf("%s: it stands by a vote for a set that is not recorded any more", name)
			}
		}
	}
}

// A member that votes for ever new versions takes no more room than one that votes for those of a
// change.
func TestGuardian_RemembersFewVersionsOfAVoter(t *testing.T) {
	g := guardians.NewGuardian("a", times)
	for version := uint32(1); version <= 1000; version++ {
		g.Heard(guardians.Vote{Ward: "x", Voter: "z", Set: guardians.Set{Version: version, Members: []string{"z"}}}, 0)
		g.Heard(guardians.Vote{Ward: "x", Voter: "y", Set: guardians.Set{Version: 1, Members: []string{"y", "w"}}}, 0)
	}
	var versions []uint32
	for _, b := range g.Burials() {
		versions = append(versions, b.Version)
	}
	want(t, "versions of a voter", fmt.Sprint(versions), "[998 999 1000]")
	g.Heard(guardians.Vote{Ward: "x", Voter: "w", Set: guardians.Set{Version: 1, Members: []string{"y", "w"}}}, 0)
	want(t, "the first burial", fmt.Sprint(g.Burials()[0]), "{x 1 [y w]}")
	g.Outdated("x", 999)
	g.Heard(guardians.Vote{Ward: "x", Voter: "z", Set: guardians.Set{Version: 1001, Members: []string{"z"}}}, 0)
	want(t, "burials after 998", len(g.Burials()), 3)
}

// Of a session that gives up one proposal after another, votes for the recorded set remain: those
// of this node, which repeats them, and those that others repeat. So do those that were heard once,
// for a set that the session tells of.
func TestGuardian_RemembersVotesForTheRecordedSet(t *testing.T) {
	a, other := guardians.NewGuardian("a", times), guardians.NewGuardian("d", times) // the session has never pinged that one
	now := time.Duration(0)
	for version := uint32(2); version <= 9; version++ {
		next := guardians.Set{Version: version, Members: []string{"a", "c"}}
		a.Pinged("x", ping(one, next), now)
		now += 20 * s
		a.Look(now)
		if version == 2 {
			a.Heard(guardians.Vote{Ward: "x", Voter: "c", Set: one}, now)
		}
		a.Heard(guardians.Vote{Ward: "x", Voter: "c", Set: next}, now)
		for _, v := range a.Standing() {
			other.Heard(v, now)
		}
		want(t, "this node stands by", fmt.Sprint(a.Standing()[0]), "{x a {1 [a b c]}}")
		want(t, "the first burial", fmt.Sprint(a.Burials()[0]), "{x 1 [a c]}")
	}
	other.Heard(guardians.Vote{Ward: "x", Voter: "b", Set: one}, now)
	want(t, "the other's burial", fmt.Sprint(other.Burials()), "[{x 1 [a b]}]")
}
