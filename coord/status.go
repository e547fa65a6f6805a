package coord

import "fmt"

// A phase is what this node does with a partition. All but phaseUnowned and phaseOwned last as long as a call of the
// arbiter takes; one of them excludes the others.
type phase uint8

// The phases of a partition.
const (
	// phaseUnowned: this node does not serve the partition, and makes no call about that. Its callers' keys are
	// requested from the owner or from the arbiter.
	phaseUnowned phase = iota
	// phaseAcquiring: a call of Acquire is under way, or is about to be made or given up. Requests of other nodes wait
	// for its result.
	phaseAcquiring
	// phaseOwned: this node won Acquire at the ownership's epoch, and grants the partition's keys while the ownership
	// is in force by the clock (I4).
	phaseOwned
	// phaseDemoting: the partition is frozen, and a call of Demote is under way. Nothing is granted (rule 5).
	phaseDemoting
	// phaseFreeing: this node asks for a partition of another node's to become Shared. It revokes the ownership, or
	// acquires the partition of a dead session and demotes it.
	phaseFreeing
)

var phases = [...]string{"unowned", "acquiring", "owned", "demoting", "freeing"}

// String returns the phase's name.
func (x phase) String() string { return name(phases[:], uint8(x), "phase") }

// nextPhases are the legal transitions.
var nextPhases = [...][]phase{
	phaseUnowned:   {phaseAcquiring, phaseFreeing},
	phaseAcquiring: {phaseOwned, phaseUnowned},
	phaseOwned:     {phaseDemoting, phaseUnowned}, // without Demote when it has lapsed or was lost
	phaseDemoting:  {phaseUnowned},
	phaseFreeing:   {phaseUnowned},
}

// A naming is what the arbiter's record may say of this node while the node does not serve the partition (rule 6).
type naming uint8

// The namings of a partition.
const (
	// namedElsewhere: as far as this node knows, the record does not name it.
	namedElsewhere naming = iota
	// namedPerhaps: the record may name this node. An answer to Acquire came too late, or another node was referred
	// to this one. The node looks at the record.
	namedPerhaps
	// namedSurely: a Demote of this node's was not answered. The record names this node unless that call arrived.
	namedSurely
)

var namings = [...]string{"named elsewhere", "perhaps named", "named"}

// String returns the naming's name.
func (x naming) String() string { return name(namings[:], uint8(x), "naming") }

// nextNamings are the legal transitions.
var nextNamings = [...][]naming{
	namedElsewhere: {namedPerhaps, namedSurely},
	namedPerhaps:   {namedElsewhere, namedSurely},
	namedSurely:    {namedElsewhere, namedPerhaps},
}

// An ending is how far Close has come. It only moves on.
type ending uint8

// The endings of a partition.
const (
	// endingNot: the coordinator is open.
	endingNot ending = iota
	// endingClosed: new locks are refused, and nothing lingers. Locks in use go on.
	endingClosed
	// endingLeaving: this node gives its partitions back, and never takes this one again.
	endingLeaving
)

var endings = [...]string{"open", "closed", "leaving"}

// String returns the ending's name.
func (x ending) String() string { return name(endings[:], uint8(x), "ending") }

// nextEndings are the legal transitions.
var nextEndings = [...][]ending{
	endingNot:     {endingClosed},
	endingClosed:  {endingLeaving},
	endingLeaving: {},
}

// A checking is what this node is finding out about the record of a partition that it does not serve.
type checking uint8

// The checkings of a partition.
const (
	// checkingNothing: no read of the record is under way.
	checkingNothing checking = iota
	// checkingRecord: the record is read, because it may name this node (rule 6). The balance leaves the partition
	// alone meanwhile. A request may begin to acquire it.
	checkingRecord
)

var checkings = [...]string{"not looking", "looking at the record"}

// String returns the checking's name.
func (x checking) String() string { return name(checkings[:], uint8(x), "checking") }

// nextCheckings are the legal transitions.
var nextCheckings = [...][]checking{
	checkingNothing: {checkingRecord},
	checkingRecord:  {checkingNothing},
}

// An awaited is what contenders of a partition may wait for at the arbiter, which does not tell them. It is a set.
type awaited uint8

// The awaited of a partition.
const (
	// awaitedRoute: the ring names an owner for the partition, and there is a stream to it.
	awaitedRoute awaited = 1 << iota
	// awaitedStream: there is a stream to the owner that the arbiter named.
	awaitedStream
)

// A source is what a hold rests on: what makes it valid, and until when.
type source uint8

// The sources of a hold.
const (
	// sourceArbiter: the hold's row, until a lease after its last confirmation.
	sourceArbiter source = iota
	// sourceOwner: the word of the partition's owner, another node. Each of its pongs extends the deadline. The hold
	// may also have a confirmed row: then the later deadline counts.
	sourceOwner
	// sourceFrozen: the same, but the owner extends the deadline no more (rule 5). The owner may have been this node.
	// The hold needs a row in time.
	sourceFrozen
	// sourceOwn: this node's own partition. There is no row.
	sourceOwn
	// sourceHome: this node's own partition, and there is a row from before, which is not read any more (rule 17).
	sourceHome
)

var sources = [...]string{"its row", "its owner", "its owner, frozen", "this node", "this node, with a row"}

// String returns what the hold rests on.
func (x source) String() string { return name(sources[:], uint8(x), "source") }

// nextSources are the legal transitions of a hold. A new hold may have any source.
var nextSources = [...][]source{
	sourceArbiter: {sourceOwner, sourceHome},
	sourceOwner:   {sourceFrozen, sourceHome},
	sourceFrozen:  {sourceOwner, sourceHome},
	sourceOwn:     {sourceFrozen},
	sourceHome:    {sourceFrozen},
}

func name(names []string, i uint8, kind string) string {
	if int(i) < len(names) {
		return names[i]
	}
	return fmt.Sprintf("%s(%d)", kind, i)
}

// step changes a state. With the build tag simulation it panics if the table does not allow it.
func step[S interface {
	~uint8
	fmt.Stringer
}](state *S, next S, table [][]S) {
	if checked && *state != next && !legal(table, *state, next) {
		panic(fmt.Sprintf("coord: %v must not become %v", *state, next))
	}
	*state = next
}

func legal[S ~uint8](table [][]S, from, to S) bool {
	if int(from) >= len(table) {
		return false
	}
	for _, next := range table[from] {
		if next == to {
			return true
		}
	}
	return false
}
