package coord

import (
	"context"
	"fmt"
	"time"
)

// Trace is a set of functions to be called at events of single locks. Any of them may be nil. They
// are called from the goroutine of the event. That is often the caller of Lock or Unlock and waits
// for them, so they should be quick. No mutex is held meanwhile. They may be called concurrently,
// and in another order than the events.
//
// They must not call the Coordinator; a goroutine that they start may. The goroutine of the event
// may be the one that reads another node's answers: a Lock that needs such an answer would wait
// until its context ends.
//
// The context is that of the call of Lock, TryLock, Do or Share, or has its values. Granted and
// Released cost each lock something; Waited costs only those that wait.
//
// They must not call runtime.Goexit, as FailNow and Fatal of package testing do. It ends the
// goroutine of a caller, whose lock is given back, or one of the coordinator's. Work for callers is
// not lost with it: they get [ErrUnavailable], or their requests are made again. A goroutine that
// works as long as the session or the coordinator is not begun again: then locks may be lost, or
// stay locked after Unlock, until the session has ended.
type Trace struct {
	Granted  func(context.Context, GrantInfo)   // a lock was granted
	Waited   func(context.Context, WaitInfo)    // a caller has waited for a lock, and has it or not
	Released func(context.Context, ReleaseInfo) // a lock was unlocked
	Flight   func(context.Context, FlightInfo)  // a flight of Share ended
	Lost     func(LossError)                    // a lock was lost
	Session  func(SessionInfo)                  // a session began or ended
	Call     func(CallInfo)                     // a call of the arbiter ended
}

// Path is how a lock was granted.
type Path uint8

// Paths. The first two are in memory.
const (
	PathTurn      Path = iota // a turn under a hold that this process had from another node or the arbiter
	PathOwn                   // by this node, which owns the partition
	PathForwarded             // the first turn under a hold that another node granted for it
	PathArbiter               // the first turn under a hold that the arbiter granted for it
	pathCount
)

var paths = [...]string{"turn", "own", "forwarded", "arbiter"}

// String returns a name for logs and metrics, such as "own".
func (p Path) String() string {
	if int(p) < len(paths) {
		return paths[p]
	}
	return fmt.Sprintf("Path(%d)", uint8(p))
}

// GrantInfo describes a grant.
type GrantInfo struct {
	Key    string
	Fence  Fence         // the lock's token
	Path   Path          // how it was granted
	Waited time.Duration // from the call to the grant; 0 if this process had the key and no caller used it
}

// WaitInfo describes a wait that has ended.
type WaitInfo struct {
	Key    string
	Fence  Fence         // the lock's token; 0 if Err is not nil
	Path   Path          // how it was granted, if it was
	Waited time.Duration // since the call, more than 0
	Err    error         // why the caller has no lock
}

// FlightInfo describes a flight of Share: one process's work for all callers that want the result
// of a key at the same time.
type FlightInfo struct {
	Key     string
	Took    time.Duration
	Refresh bool  // it was begun early, in the background: see ShareOptions.RefreshAhead
	Ran     bool  // fn ran; else the result was there, or there is none
	Fence   Fence // of the result, if it was there
	Err     error
}

// ReleaseInfo describes an unlock.
type ReleaseInfo struct {
	Key   string
	Fence Fence         // the lock's token
	Held  time.Duration // from the grant to the unlock
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
	Duration time.Duration // from sending to the answer, or until it was given up; of a batch, of all of it
	Err      error         // of a batch, that of one call that failed; nil: it was answered, whatever the answer was
}

// Op is an operation of the arbiter.
type Op uint8

// Operations, as [fallback.Namespace], [fallback.ResultStore], [fallback.Announcer],
// [fallback.Burier], [fallback.Lister], [fallback.WaiterLister] and [fallback.Adviser] name them.
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
	OpVerify    // Verify, Witness
	OpReclaim   // Restore, ReclaimOwners
	OpOwnership // Acquire, Demote, DemoteUnserved, Revoke, EndGraces
	OpLoadResult
	OpSaveResult
	OpAnnounce
	OpBury
	OpRows // Rows, Waiters
	OpAdvise
	OpRotate
	opCount
)

var ops = [...]string{"attach", "open", "renew", "dead", "close session", "list", "listen", "lock", "unlock", "verify", "reclaim",
	"ownership", "load result", "save result", "announce", "bury",
	"rows", "advise", "rotate"}

// String returns a name for logs and metrics, such as "renew".
func (o Op) String() string {
	if int(o) < len(ops) {
		return ops[o]
	}
	return fmt.Sprintf("Op(%d)", uint8(o))
}

// tell calls a function of the user's while the caller does not have its lock yet.
func (c *Coordinator) tell(l Lock, f func()) {
	returned := false
	defer func() {
		if !returned { // f panicked, so no caller will get the lock
			l.pass()
		}
	}()
	f()
	returned = true
}

func (c *Coordinator) noteReleased(p *partition, l Lock, held time.Duration) {
	c.tells.stats.stripes[p.Number()%stripes].holds.record(held)
	if trace := c.opts.Trace.Released; trace != nil {
		trace(l.ctx, ReleaseInfo{Key: namedKey(l.key), Fence: l.Fence(), Held: held})
	}
}
