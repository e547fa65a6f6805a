package lease

import "fmt"

// A Phase is the phase of a partition at this node. All but Unowned and Owned last as long as calls
// of the arbiter take: Acquire and Demote are called again if they were not answered. One of them
// excludes the others.
type Phase uint8

// The phases of a partition.
const (
	// Unowned: this node does not serve the partition, and makes no call about that. Its callers'
	// keys are requested from the owner or from the arbiter.
	Unowned Phase = iota
	// Acquiring: a call of Acquire is under way, or is about to be made or given up. Requests of
	// other nodes wait for its result.
	Acquiring
	// Owned: this node won Acquire at the ownership's epoch, and grants the partition's keys while
	// the ownership is in force by the clock (I4).
	Owned
	// Demoting: the partition is frozen, and a call of Demote is under way. Nothing is granted
	// (rule 5).
	Demoting
	// Freeing: this node asks for a partition of another node's to become Shared. It revokes the
	// ownership, or acquires the partition of a dead session and demotes it. A record that names
	// this session is demoted (rule 6).
	Freeing
)

var phases = [...]string{"unowned", "acquiring", "owned", "demoting", "freeing"}

// String returns the Phase's name.
func (x Phase) String() string { return name(phases[:], uint8(x), "phase") }

// nextPhases are the legal transitions.
var nextPhases = [...][]Phase{
	Unowned:   {Acquiring, Freeing},
	Acquiring: {Owned, Unowned},
	Owned:     {Demoting, Unowned}, // without Demote when it has lapsed or was lost
	Demoting:  {Unowned},
	Freeing:   {Unowned},
}

// A Naming is a node's knowledge of its name in the arbiter's record, while the node does not serve
// the partition (rule 6).
type Naming uint8

// The namings of a partition.
const (
	// NamedElsewhere: this node has no reason to look. After an ownership that lapsed the record
	// may name it still: the next request makes it look.
	NamedElsewhere Naming = iota
	// NamedPerhaps: the record may name this node. An answer to Acquire came too late, or another
	// node was referred to this one. The node looks at the record.
	NamedPerhaps
	// NamedSurely: a Demote of this node's was not answered, or refused in Grace. The record names
	// this node unless that call arrived.
	NamedSurely
)

var namings = [...]string{"named elsewhere", "perhaps named", "named"}

// String returns the Naming's name.
func (x Naming) String() string { return name(namings[:], uint8(x), "naming") }

// nextNamings are the legal transitions.
var nextNamings = [...][]Naming{
	NamedElsewhere: {NamedPerhaps, NamedSurely},
	NamedPerhaps:   {NamedElsewhere, NamedSurely},
	NamedSurely:    {NamedElsewhere},
}

// An Ending is the progress of Close. It only moves on.
type Ending uint8

// The endings of a partition.
const (
	// Open: the coordinator is open.
	Open Ending = iota
	// Closed: new locks are refused, and nothing lingers. Locks in use go on.
	Closed
	// Leaving: this node gives its partitions back, and never takes this one again.
	Leaving
)

var endings = [...]string{"open", "closed", "leaving"}

// String returns the Ending's name.
func (x Ending) String() string { return name(endings[:], uint8(x), "ending") }

// nextEndings are the legal transitions.
var nextEndings = [...][]Ending{
	Open:    {Closed},
	Closed:  {Leaving},
	Leaving: {},
}

// A Looking is the state of this node's look at the record of a partition that it does not serve.
type Looking uint8

// The lookings of a partition.
const (
	// NotLooking: no read of the record is under way.
	NotLooking Looking = iota
	// LookingAtRecord: the record is read, because it may name this node (rule 6). The balance
	// leaves the partition alone meanwhile. A request may begin to acquire it.
	LookingAtRecord
)

var lookings = [...]string{"not looking", "looking at the record"}

// String returns the Looking's name.
func (x Looking) String() string { return name(lookings[:], uint8(x), "looking") }

// nextLookings are the legal transitions.
var nextLookings = [...][]Looking{
	NotLooking:      {LookingAtRecord},
	LookingAtRecord: {NotLooking},
}

// An Awaited is a set of events that contenders of a partition may wait for at the arbiter, which
// does not tell them.
type Awaited uint8

// The Awaited of a partition.
const (
	// AwaitedRoute: the ring names an owner for the partition, and there is a stream to it.
	AwaitedRoute Awaited = 1 << iota
	// AwaitedStream: there is a stream to the owner that the arbiter named.
	AwaitedStream
)

// A Source is the basis of a hold: it makes the hold valid, and sets the end of its validity.
type Source uint8

// The sources of a hold.
const (
	// SourceArbiter: the hold's row, until a lease after its last confirmation.
	SourceArbiter Source = iota
	// SourceOwner: the word of the partition's owner, another node. Each of its pongs extends the
	// deadline. The hold may also have a confirmed row: then the later deadline counts.
	SourceOwner
	// SourceFrozen: the word of an owner that extends the deadline no more (rule 5). The owner may
	// have been this node. The hold needs a row in time. Once that is confirmed the later deadline
	// counts, as above, and the hold stays frozen until an owner answers for it: see deadlines.
	SourceFrozen
	// SourceOwn: this node's own partition. There is no row.
	SourceOwn
	// SourceHome: this node's own partition, and there is a row from before, which is not read any
	// more (rule 17).
	SourceHome
)

var sources = [...]string{"its row", "its owner", "its owner, frozen", "this node", "this node, with a row"}

// String returns the Source's name.
func (x Source) String() string { return name(sources[:], uint8(x), "source") }

// nextSources are the legal transitions of a hold. A new hold may have any Source.
var nextSources = [...][]Source{
	SourceArbiter: {SourceOwner, SourceHome},
	SourceOwner:   {SourceFrozen, SourceHome},
	SourceFrozen:  {SourceOwner, SourceHome},
	SourceOwn:     {SourceFrozen},
	SourceHome:    {SourceFrozen},
}

func name(names []string, i uint8, kind string) string {
	if int(i) < len(names) {
		return names[i]
	}
	return fmt.Sprintf("%s(%d)", kind, i)
}

// step changes a state. With the build tag simulation it panics if the table does not allow it: see
// Illegal.
func step[S interface {
	~uint8
	fmt.Stringer
}](state *S, next S, table [][]S) {
	if simulated && *state != next && !legal(table, *state, next) {
		Illegal(fmt.Sprintf("%v must not become %v", *state, next))
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
