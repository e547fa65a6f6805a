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
