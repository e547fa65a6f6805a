package ring

import "fmt"

// State of a node, as it says itself.
type State uint8

// States of a node.
const (
	Joining State = iota // it looks on and owns nothing
	Active               // it takes partitions
	Leaving              // it still gossips, and gives its partitions away
)

var states = [...]string{"joining", "active", "leaving"}

// String returns the state's name: joining, active or leaving.
func (s State) String() string {
	if int(s) < len(states) {
		return states[s]
	}
	return fmt.Sprintf("State(%d)", uint8(s))
}

// A Node is one process start, as it describes itself in its gossip. It is a value and can be
// compared with ==.
type Node struct {
	Name    string
	Session string // its session ID; changes when the node starts over. May be empty, or be outdated by a second
	Peer    string // where its peers reach it: host:port
	Gossip  string // where it gossips: IP:port
	State   State

	// Incompatible: its metadata cannot be read, or it computes placements in another way. It is
	// shown, with no more than its Name and Gossip, and never placed.
	Incompatible bool

	// Unlisted: Options.Known does not know it. It is never placed.
	Unlisted bool

	// Gone: it has left or gossip cannot reach it, and the settled placement still has it. Its
	// partitions are still its own until the arbiter says otherwise.
	Gone bool
}
