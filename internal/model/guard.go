package model

// A Guard is something that the protocol does so that nothing bad happens. Each can be taken away,
// to see the failure without it.
type Guard uint64

// Guards of the arbiter.
const (
	ImportRows           Guard = 1 << iota // a new owner gets all rows, and respects them (rule 5, I5)
	EpochCompare                           // acquire succeeds only at the expected epoch (I6)
	OwnedRefusesLocks                      // lock is refused while the partition has an owner (I4)
	DemoteReplaces                         // the owner's table replaces the rows (I5)
	UnservedKeeps                          // demote-unserved keeps the rows (I5, rule 6)
	DeadBeforeEvictRow                     // a row is evicted only when its session was seen dead (rule 2)
	DeadBeforeEvictOwner                   // an owner likewise (rule 2, I4)
	DeadBeforeEvictHold                    // a hold in an owner's table likewise (rules 2, 8)
	ExactUnlock                            // unlock removes one identity's row, no other (rule 9)
	AdoptCompares                          // adopt compares epoch and token (rule 7, I5)
	ReclaimInGrace                         // reclaim only in Grace
	ReclaimRaises                          // a reclaimed row of a later epoch raises the record, and ends its owner
	Identity                               // another server is noticed, and Grace begins
	GraceTakesNothing                      // nothing is taken in Grace (I7)
	NobodyDiesInGrace                      // no session is dead in Grace (I3)
	Clock                                  // the clock is in the epoch (I6)

	// Guards of time.
	Margin       // leases end M before the arbiter's expiry (I3)
	FromSend     // deadlines count from the send of the acknowledged request (rule 1)
	ClockAtGrant // a grant is checked against the clock, not by a timer's mark (rule 1)
	SlotDeadline // an ownership lapses when the slot was not verified in time, though the session lives (rule 1)
	Announced    // a hold without a row lasts until its owner's announced deadline (rule 7)
	LocalDeath   // a session that is dead by its own clock stays dead (rule 3)
	LookInTime   // a hold ends at its deadline, also if the clock was to be looked at later (rule 1)

	// Guards of nodes.
	StopBeforeDemote  // nothing is granted after a demote was sent (rule 5)
	FrozenTold        // holders are told first, and adopt (rule 5, I5)
	UnservedWaits     // demote-unserved waits until the announced deadlines have passed (rule 6)
	UnservedForswears // the epoch of an unserved record is never served, also if acquire's answer still comes (rule 6)
	PendingIsHad      // a node asked about a hold has it also if its grant is on its way (rule 13)
	ImportedStay      // a statement ends only holds that this owner granted itself (rule 12)
	StreamGenerations // frames on their way on a stream that breaks are lost for good (rule 12)
	VouchesForTable   // an owner answers for a hold that rests on its row only if that is in its table (rule 17)
	SteppedRemote     // a session that a step of the clock ended demotes with others' holds (rule 4, I5)
	SteppedCallers    // and with those of its own callers, that end when the arbiter counts it dead (rule 4)
	FreedRead         // an owner that hears of a release looks at the row before it frees the key (rule 9)
	FreedGranted      // the row of a hold that the owner granted itself is not expected to be there
	FreedVouched      // nor that of a hold that the owner answers for (rule 17)
	FreedAsked        // one that was the owner leaves the row of a release to the holder (rule 9)
	FrozenVouched     // a freeze goes by the epoch that the owner answers at, whatever the token's (rules 5, 17)
	Witness           // older data than a node has seen are refused, and the arbiter is told: Grace begins (I2)
	WitnessNamed      // a node compares also the record that names it, before it demotes that (I1)
	WitnessNext       // a grant from older data has an epoch that is above the record's (I2)
	WitnessAbove      // a node that has been told of a record compares nothing only if that shows no older data than it has seen (I1)
	SeenExpiry        // a session brings the expiry told last: a table with an earlier one is in Grace (I1)
	BuryWaits         // a session's burial waits for its promises and announced deadlines (docs/takeover.md)

	// Guards of modes: a hold is granted only if the key's other holds let it in, and all of those
	// are handed on.
	LockLooksExclusive  // the arbiter grants no shared hold beside an exclusive one (I1)
	LockLooksShared     // and no exclusive one beside shared ones (I1)
	GrantLooksExclusive // an owner grants no shared hold beside an exclusive one (I1)
	GrantLooksShared    // and no exclusive one beside shared ones (I1)
	ImportAll           // a new owner respects each of several rows (I1, I5)
	DemoteAll           // each of several holds in an owner's table becomes a row (I1, I5)
	Downgrades          // a reader is let in beside the exclusive hold of its own session only (I1)

	// Guards of progress.
	Doubt     // a node that is asked about a hold that it has not got releases it (rule 13, I8)
	Unserved  // a record that names a node that does not serve is demoted (rule 6, I8)
	EvictDead // holds and ownerships of the dead end (rule 2, I8)
)

var guardNames = []string{
	"ImportRows", "EpochCompare", "OwnedRefusesLocks", "DemoteReplaces", "UnservedKeeps", "DeadBeforeEvictRow", "DeadBeforeEvictOwner",
	"DeadBeforeEvictHold", "ExactUnlock", "AdoptCompares", "ReclaimInGrace", "ReclaimRaises", "Identity", "GraceTakesNothing",
	"NobodyDiesInGrace", "Clock", "Margin", "FromSend", "ClockAtGrant", "SlotDeadline", "Announced", "LocalDeath", "LookInTime",
	"StopBeforeDemote", "FrozenTold", "UnservedWaits", "UnservedForswears", "PendingIsHad", "ImportedStay", "StreamGenerations", "VouchesForTable",
	"SteppedRemote", "SteppedCallers", "FreedRead", "FreedGranted", "FreedVouched", "FreedAsked", "FrozenVouched", "Witness", "WitnessNamed", "WitnessNext", "WitnessAbove", "SeenExpiry", "BuryWaits",
	"LockLooksExclusive", "LockLooksShared", "GrantLooksExclusive", "GrantLooksShared", "ImportAll", "DemoteAll", "Downgrades",
	"Doubt", "Unserved", "EvictDead",
}

func (g Guard) String() string {
	text := ""
	for i, name := range guardNames {
		if g&(1<<i) != 0 {
			if text != "" {
				text += "+"
			}
			text += name
		}
	}
	return text
}
