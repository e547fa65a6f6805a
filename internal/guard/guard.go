//go:build !mutants

// Package guard names the guards of the protocol, so that each can be taken out: a simulation has
// to notice. They are constants, and cost nothing, unless the build tag mutants makes them
// variables.
package guard

// The guards, by subject.
const (
	Grace      = true // an arbiter that is another server grants nothing new for a while (I7)
	Epoch      = true // a call that acquires, demotes or adopts names an epoch, and is refused at another (I6)
	Identity   = true // a release removes the row with that very identity only (rule 9, I5)
	Dead       = true // a session is dead when the arbiter says so (rules 2, 8)
	Import     = true // a node that acquires a partition respects the rows that are there (rule 5)
	Freeze     = true // an owner that begins to demote grants nothing more (I4, I5, rule 5)
	Lapse      = true // an ownership that was not confirmed in time is over (rule 1)
	Announced  = true // a hold without a row is over when its owner does not answer for it any more (rule 7)
	Renewal    = true // an answer to a renewal that comes after the old deadline is too late (rule 3)
	OnItsWay   = true // a node with a pending request does not deny that it has the hold (rule 13, I5)
	Hearsay    = true // a release that a message tells of is looked up, or its holder asked (rule 9)
	Absent     = true // the absence of a row proves nothing for a hold that the owner answers for (rule 17)
	Listed     = true // nodes that the arbiter lists get streams and partitions, and no others
	Sooner     = true // a hold that lapses before its node would look is looked after (rule 1)
	Above      = true // a node that has been told of a record looks at it first if that may be of older data than it has seen (I1)
	Witness    = true // older data under the same identity are refused by a token that a process has seen, and begin Grace (I2)
	Waits      = true // a record is demoted once all announced deadlines have passed (rule 6)
	Forsworn   = true // an epoch that is about to be demoted is never served (rule 6)
	Told       = true // the holder of a key is told that its epoch is frozen (rule 5)
	Promised   = true // a session is over when the promises of its guardians have passed (G3)
	VoteLate   = true // a guardian votes when its promise has passed (G5)
	Votes      = true // the arbiter buries a session on enough votes for the recorded version (G6)
	Covered    = true // a next set is asked for when its promises cover the announced deadlines (G7)
	MarginD    = true // a promise counts M_D less for the session than for its guardian (G2)
	PingSent   = true // and from when the ping was sent (G2)
	PongSent   = true // as an announcement counts from when the holder asked (G4)
	Capped     = true // it is D - M_D long at most, guardians or not (G4)
	VoteFinal  = true // a guardian that has voted promises nothing for that version any more (G5)
	Intersect  = true // so many promise, and so many vote, that one did both (G3, G6)
	Compares   = true // the votes are for the recorded version (G6)
	NoneBuried = true // in Grace nothing is buried (G6)
	Rising     = true // the arbiter records later versions only (G1)
	NextCounts = true // from asking for a next set on its promises are needed (G7)
	BothCount  = true // and those of the set before, until the next one is recorded (G7)
	NamesNext  = true // from then on renewals name the next set (G8)
	NamesSet   = true // and else the recorded one, for another server (G8)
	SetKnown   = true // each member of a set that is asked for knows it (G7)
	Deaf       = true // a session that hears neither them nor the arbiter keeps its guardians (G7)
	Overdue    = true // and one that does not hear them renews at once, to give them up in time (G7)
	Proof      = true // a process is said to have ended only with proof of it (G9)
	ClearRests = true // a node is clear of it when nothing rests on its word (G10)
	ClearCut   = true // and when its streams have ended, for good (G10)
	ClearAll   = true // a guardian votes early when each listed session is clear (G11)
	ListAfter  = true // and was listed after the end (G11)
	ListGrace  = true // outside of Grace (G11)
	Resumed    = true // a guardian that stood still does not vote at once (G5)
	Silenced   = true // a set of guardians counts until a deposed server is silent (G7)
	LeaseLeft  = true // and a server that has just taken over renews a lease only if delta of it is left (rule 3)
	RowLate    = true // and it confirms no row of a hold that rests on an owner's word (rule 7)
	Modes      = true // a hold is granted beside those only that its mode lets it stand beside (I1)
	Downgrades = true // a reader stands beside a hold that its session has (I1)
	Blocks     = true // holds of different blocks of permits are counted together (I1)
	InUse      = true // a block of permits becomes no smaller than its permits in use (I1)
	Seats      = true // a writer waits for the readers that have a seat (I1)
	Pledge     = true // callers that share a turn look again once it is to end (I1)

	// Of rounds, which end Grace early.
	RoundUnique   = true // each round has a name of its own (E1)
	SightedBefore = true // a round ends the Graces that were seen before it began, and no others (E2)
	Spoken        = true // a round is complete when each session of the table has spoken for it, or is dead (E4)
	CompleteOld   = true // and when it is delta + M old (E4)
	TableGrace    = true // and never in Grace of a table that may lack sessions (E4)
	OnReplicas    = true // a session counts once each server that may take over has it, in a namespace with that option (E7)
	Unexpired     = true // in Grace of such a table no session is dead by its expiry (E7)
	Missing       = true // a table that lacks a session after all does not have all (E8)
	Chained       = true // nor does another server that takes over in Grace of such a table (E8)
	LostLacks     = true // nor does one that is made anew, as it was lost (E8)
	TableAge      = true // each session renews there before a round counts (E8)
	GraceNamed    = true // a Grace that ends early is ended by its name (E2, E5)
	Floor         = true // epochs are then ahead of the clock (I2, E5)
	SpeaksApart   = true // a session that knew another round, or is new, speaks later (I2, E3)
	RoundOld      = true // a session begins its pass when a deposed server is silent (E3)
	AnswersIn     = true // and when no earlier call of its own is without an answer (E3)
	PassAll       = true // it speaks when the pass has found, or reclaimed, all that it has (E3)
	PassWhole     = true // also rows that were written a moment ago: it may have been a deposed server that wrote them (E3)
	PassOld       = true // and no server has taken over a moment ago (E3)
	PassAdopts    = true // and holds that rest on an owner have rows (E3)
	PassWaits     = true // and when its announced deadlines, at epochs that it has given up, have passed (E3)
	Newcomer      = true // a session that is opened in Grace of the table takes nothing while a deposed server may answer (E6)

	// Of observers, circles of callers, and fairness.
	SameBeat   = true // an observer that sees another beat of a session begins its count anew
	BeatUnique = true // no beat is used twice, whatever the store has forgotten
	GraceLook  = true // an observer counts a Grace from its own first look
	GraceAnew  = true // a failover begins another Grace, also of data that are in one
	Twice      = true // a circle of callers is told when it was found twice
	Between    = true // a reader is in the way of another one only with a writer between them
	Quantum    = true // a key that others want is handed over after a while (DESIGN.md, Quantum)
)

// Preempt marks a point where another goroutine may run. A simulation has to try that.
func Preempt() {}
