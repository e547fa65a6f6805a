package coord

import "time"

// Trace is a set of functions to be called at events of single locks. Any of them may be nil. They are called from the
// goroutine in which the event happens, with no mutex held, so they should be quick; they may be called concurrently.
type Trace struct {
	Granted  func(GrantInfo)   // a lock was granted
	Released func(ReleaseInfo) // a lock was unlocked
	Lost     func(LossError)   // a lock was lost
	Session  func(SessionInfo) // a session began or ended
	Call     func(CallInfo)    // a call of the arbiter ended
}

// Path is the way by which a lock was granted.
type Path uint8

// Paths, the cheapest first.
const (
	PathTurn      Path = iota // a turn under a hold that this process had from another node or the arbiter: in memory
	PathOwn                   // by this node, which owns the partition: in memory
	PathForwarded             // the first turn under a hold that another node granted for it
	PathArbiter               // the first turn under a hold that the arbiter granted for it
	pathCount
)

var paths = [...]string{"turn", "own", "forwarded", "arbiter"}

func (p Path) String() string { return paths[p] }

// GrantInfo describes a grant.
type GrantInfo struct {
	Key    string
	Fence  uint64
	Path   Path
	Waited time.Duration
}

// ReleaseInfo describes an unlock.
type ReleaseInfo struct {
	Key   string
	Fence uint64
	Held  time.Duration
}

// SessionInfo describes the beginning of a session or, if Ended, its end.
type SessionInfo struct {
	ID    string
	Ended bool
	Err   error // why it ended; nil if by Close
}

// CallInfo describes a call of the arbiter.
type CallInfo struct {
	Op       Op
	Duration time.Duration
	Err      error
}

// Op is an operation of the arbiter.
type Op uint8

// Operations, as [fallback.Namespace] and [fallback.ResultStore] name them.
const (
	OpAttach Op = iota
	OpOpen
	OpRenew
	OpDead
	OpCloseSession
	OpList
	OpListen
	OpLock
	OpUnlock
	OpVerify
	OpReclaim   // ReclaimRow, ReclaimOwner, Adopt
	OpOwnership // Acquire, Demote, DemoteUnserved, Revoke
	OpLoadResult
	OpSaveResult
	opCount
)

var ops = [...]string{"attach", "open", "renew", "dead", "close session", "list", "listen", "lock", "unlock", "verify", "reclaim",
	"ownership", "load result", "save result"}

func (o Op) String() string { return ops[o] }
