//go:build mutants

// Package guard names the guards of the protocol, so that each can be taken out.
package guard

import "time"

// The guards. They must not change while anything runs that they guard.
var (
	Grace      = true
	Epoch      = true
	Identity   = true
	Dead       = true
	Import     = true
	Freeze     = true
	Lapse      = true
	Announced  = true
	Renewal    = true
	OnItsWay   = true
	Hearsay    = true
	Absent     = true
	Listed     = true
	Sooner     = true
	Above      = true
	Witness    = true
	Waits      = true
	Promised   = true
	VoteLate   = true
	Votes      = true
	Covered    = true
	MarginD    = true
	PingSent   = true
	PongSent   = true
	Capped     = true
	VoteFinal  = true
	Intersect  = true
	Compares   = true
	NoneBuried = true
	Rising     = true
	NextCounts = true
	BothCount  = true
	NamesNext  = true
	NamesSet   = true
	SetKnown   = true
	Deaf       = true
	Overdue    = true
	Proof      = true
	ClearRests = true
	ClearCut   = true
	ClearAll   = true
	ListAfter  = true
	ListGrace  = true
	Resumed    = true
	Forsworn   = true
	Told       = true
	Silenced   = true
	LeaseLeft  = true
	RowLate    = true
	Quantum    = true
	Modes      = true
	Downgrades = true
	Blocks     = true
	InUse      = true
	Seats      = true
	Pledge     = true

	RoundUnique   = true
	SightedBefore = true
	Spoken        = true
	CompleteOld   = true
	TableGrace    = true
	OnReplicas    = true
	Unexpired     = true
	Missing       = true
	Chained       = true
	LostLacks     = true
	TableAge      = true
	GraceNamed    = true
	Floor         = true
	SpeaksApart   = true
	RoundOld      = true
	AnswersIn     = true
	PassAll       = true
	PassWhole     = true
	PassOld       = true
	PassAdopts    = true
	PassWaits     = true
	Newcomer      = true

	SameBeat   = true
	BeatUnique = true
	GraceLook  = true
	GraceAnew  = true
	Twice      = true
	Between    = true
)

// All is the guards by name.
var All = map[string]*bool{
	"Grace": &Grace, "Epoch": &Epoch, "Identity": &Identity, "Dead": &Dead, "Import": &Import, "Freeze": &Freeze, "Lapse": &Lapse,
	"Announced": &Announced, "Renewal": &Renewal, "OnItsWay": &OnItsWay, "Hearsay": &Hearsay, "Absent": &Absent, "Listed": &Listed, "Waits": &Waits,
	"Sooner": &Sooner, "Quantum": &Quantum, "Modes": &Modes, "Downgrades": &Downgrades, "Blocks": &Blocks, "InUse": &InUse, "Seats": &Seats, "Pledge": &Pledge,
	"Twice": &Twice, "Between": &Between,
	"SameBeat": &SameBeat, "BeatUnique": &BeatUnique, "GraceLook": &GraceLook, "GraceAnew": &GraceAnew,
	"RoundUnique": &RoundUnique, "SightedBefore": &SightedBefore, "CompleteOld": &CompleteOld, "LostLacks": &LostLacks,
	"Spoken": &Spoken, "TableGrace": &TableGrace, "OnReplicas": &OnReplicas, "Unexpired": &Unexpired, "Missing": &Missing, "Chained": &Chained, "TableAge": &TableAge, "GraceNamed": &GraceNamed, "Floor": &Floor, "SpeaksApart": &SpeaksApart, "RoundOld": &RoundOld, "AnswersIn": &AnswersIn,
	"PassAll": &PassAll, "PassWhole": &PassWhole, "PassOld": &PassOld, "PassAdopts": &PassAdopts, "PassWaits": &PassWaits, "Newcomer": &Newcomer,
	"Witness": &Witness, "Above": &Above,
	"MarginD": &MarginD, "PingSent": &PingSent, "PongSent": &PongSent, "Capped": &Capped, "VoteFinal": &VoteFinal, "Intersect": &Intersect, "Compares": &Compares,
	"NoneBuried": &NoneBuried, "Rising": &Rising, "NextCounts": &NextCounts, "BothCount": &BothCount, "NamesNext": &NamesNext, "Forsworn": &Forsworn, "Told": &Told,
	"NamesSet": &NamesSet, "SetKnown": &SetKnown, "Deaf": &Deaf, "Overdue": &Overdue, "Resumed": &Resumed,
	"Proof": &Proof, "ClearRests": &ClearRests, "ClearCut": &ClearCut, "ClearAll": &ClearAll, "ListAfter": &ListAfter, "ListGrace": &ListGrace,
	"Promised": &Promised, "VoteLate": &VoteLate, "Votes": &Votes, "Covered": &Covered, "Silenced": &Silenced, "LeaseLeft": &LeaseLeft, "RowLate": &RowLate,
}

// Core is the guards of package lease without which two nodes hold a key, or a token is out of
// order. The bounded search of leasetest has to notice each.
var Core = map[string]*bool{
	"Import": &Import, "Freeze": &Freeze, "Lapse": &Lapse, "Announced": &Announced, "OnItsWay": &OnItsWay, "Hearsay": &Hearsay,
	"Absent": &Absent, "Waits": &Waits,
}

// Preempt lets others run for a moment: other goroutines, and messages on their way. No mutex may
// be held.
func Preempt() { time.Sleep(50 * time.Microsecond) }
