package lease

// A Path is the way by which a lock was granted.
type Path uint8

// The paths, as in package coord.
const (
	PathTurn Path = iota
	PathOwn
	PathForwarded
	PathArbiter
	PathCount
)

// A Cause is why a lock was lost.
type Cause uint8

// The causes, as in package coord.
const (
	SessionExpired Cause = iota + 1
	LeaseExpired
	Superseded
	CoordClosed
	TimeOver
	Broken
)
