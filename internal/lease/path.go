package lease

// A Path is one of the ways to the grant of a lock.
type Path uint8

// The paths, with the numbers that they have in package coord.
const (
	PathTurn      Path = iota // a turn under a hold that this process had from another node or the arbiter
	PathOwn                   // by this node, which owns the partition
	PathForwarded             // the first turn under a hold that another node granted for it
	PathArbiter               // the first turn under a hold that the arbiter granted for it
	PathCount
)
