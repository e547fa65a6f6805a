package model

import (
	"flag"
	"testing"
)

var guardCases = []struct {
	off   Guard
	check Invariant // 0: every one
	in    bounds
}{
	{ImportRows, Harm, bounds{}},
	{EpochCompare, 0, bounds{faults: 2, delays: 2}},
	{OwnedRefusesLocks, Harm, bounds{}},
	{DemoteReplaces, Harm, bounds{}},
	{UnservedKeeps, Harm, bounds{faults: 1, delays: 1}},
	{DeadBeforeEvictRow, Harm, bounds{}},
	{DeadBeforeEvictOwner, Harm, bounds{}},
	{DeadBeforeEvictHold, Harm, bounds{}},
	{ExactUnlock, Harm, bounds{faults: 1, delays: 1}},
	{AdoptCompares, Harm, bounds{faults: 2, delays: 1, cuts: 1}},
	{ReclaimInGrace, Harm, bounds{faults: 2, delays: 1, failovers: 1, lossy: true}},
	{ReclaimRaises, Harm, bounds{faults: 2, delays: 1, failovers: 1, lossy: true}},
	{Identity, Harm, bounds{faults: 1, failovers: 1, lossy: true}},
	{GraceTakesNothing, Harm, bounds{faults: 1, failovers: 1, lossy: true}},
	{NobodyDiesInGrace, Harm, bounds{faults: 1, sessions: 1}},
	{Clock, 0, bounds{faults: 1, failovers: 1, lossy: true}},
	{Margin, Harm, bounds{faults: 2, cuts: 1, drift: 1}},
	{FromSend, Harm, bounds{faults: 2, delays: 1, cuts: 1}},
	{ClockAtGrant, Harm, bounds{faults: 1, cuts: 1}},
	{SlotDeadline, Harm, bounds{faults: 2, cuts: 1, failovers: 1, lossy: true}},
	{Announced, Harm, bounds{faults: 1, crashes: 1, cuts: 1}},
	{LocalDeath, Harm, bounds{faults: 2, cuts: 1, sessions: 1}},
	{LookInTime, Harm, bounds{faults: 1, cuts: 1}},
	{StopBeforeDemote, Harm, bounds{faults: 1, delays: 1}},
	{FrozenTold, Harm, bounds{faults: 1, delays: 1}},
	{UnservedWaits, Harm, bounds{faults: 1, delays: 1}},
	{UnservedForswears, Harm, bounds{faults: 1, delays: 1}},
	{PendingIsHad, Harm, bounds{}},
	{ImportedStay, Harm, bounds{faults: 1, cuts: 1}},
	{StreamGenerations, Harm, bounds{faults: 1, cuts: 1}},
}

var sweepLimit = flag.Int("sweep", 250000, "")
var only = flag.Int("only", -1, "")

func TestSweep(t *testing.T) {
	for i, c := range guardCases {
		if *only >= 0 && i != *only {
			continue
		}
		m := c.in.model()
		m.Without, m.Check, m.Limit = c.off, c.check, *sweepLimit
		r := m.Explore()
		t.Logf("== %v %+v: %q complete %v states %d steps %d, %v", c.off, c.in, r.Broken, r.Complete, r.States, len(r.Story), r.Took)
		for _, l := range r.Story {
			t.Log("    ", l)
		}
	}
}
