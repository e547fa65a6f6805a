package fallback

import "time"

// MaxClaims is how many holds one atomic step of Restore writes at most, so that it ends soon.
const MaxClaims = 256

// Claims are holds of one partition that are in force; the arbiter may lack their rows.
type Claims struct {
	Partition uint32
	Holds     []Claim
}

// A Claim is a hold that is in force.
type Claim struct {
	Key string
	Row Row

	// Owned is the epoch of the owner that answers for the hold. Outside of Grace the row is
	// written if the record is at that epoch and the present row's token is lower (rule 7). 0: no
	// owner does, the hold rests on its row. Such a row is written only in Grace, if the server has
	// lost it or has one with a lower token.
	Owned uint32
}

// Restored is the answer to one Claims.
type Restored struct {
	Verdicts []Verdict     // as Claims.Holds: Granted if the row is there now, else Lost
	Grace    time.Duration // left of Grace; 0 outside of it
	Err      error         // why there are no verdicts
}

// An Ownership is an epoch of the caller as the owner of a partition.
type Ownership struct {
	Partition, Epoch uint32
}

// Reclaimed is the answer to one Ownership.
type Reclaimed struct {
	Verdict Verdict       // Granted, if the record names the caller now, else Lost
	Grace   time.Duration // left of Grace; 0 outside of it
	Err     error         // why there is no verdict
}
