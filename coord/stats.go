package coord

import (
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/internal/lease"
)

// Stats is a snapshot of a coordinator's counts since New, and of its present state.
type Stats struct {
	Granted  map[Path]uint64      // locks granted, by path
	Calls    map[Op]uint64        // calls of the arbiter, by operation; each release or read in a batch counts, and none that was cancelled
	Failed   map[Op]uint64        // the calls that failed
	Failures map[Failure]uint64   // the same, by reason
	Lost     map[LossCause]uint64 // locks lost while they were held, by cause
	Sessions uint64               // sessions begun; more than 1 means that all locks were lost in between

	Deadlocks uint64 // callers sent away with a DeadlockError

	// Waits for another caller of this process, of keys that this node owns, are a sample: one in
	// about 8. Holds of keys that it owns, or that were locked a moment ago, are one in about 64.
	// All others are counted.
	Waits Histogram // how long granted locks were waited for, those that waited
	Holds Histogram // how long locks were held

	// How long calls of the arbiter took; those of a batch count as one. Arbiter is of all of them,
	// also those that failed.
	Arbiter  Histogram
	Outcomes map[Outcome]Histogram // the same, by operation and outcome, those that there were

	Session string // the current session's ID, empty while there is none
	Locked  int    // keys that callers in this process have locked now
	Kept    int    // keys kept without being locked (see Handoff.Linger)
	Waiting int    // callers that wait now
	Owned   int    // partitions of which this node grants the keys

	// LongestWait is the longest wait so far of the callers that wait now for another caller; 0:
	// none. A wait that was not measured counts from when LongWait was looked for, a quarter of
	// that later at most. Waits that ExpectLong expects do not count, nor do those for the arbiter,
	// while that is away or in Grace.
	LongestWait time.Duration

	// LongestHold is the longest hold so far of this process's locks that other callers or
	// processes were seen to want since; 0: none. They are looked for as LongWait and LongHold are,
	// and by Stats. Holds that ExpectLong expects do not count.
	LongestHold time.Duration

	// GaveUp counts callers that waited and went away without the lock: "locked" and "unavailable"
	// name the obstacle when their time was over, or the arbiter refused; "canceled": their ctx was
	// canceled before.
	GaveUp map[string]uint64

	// Grace is the rest of the arbiter's: the arbiter grants nothing new. It is the longest of the
	// one in the last renewal and those of partitions that this process has asked for: in a Redis
	// Cluster each server fails over alone. 0 outside.
	Grace time.Duration

	// Missing is how many nodes of the cluster the arbiter lists, as far as it was asked, that this
	// one hears nothing of: no gossip of theirs arrives. A node that has just started or crashed is
	// one for some seconds. [Coordinator.Nodes] does not have them.
	Missing int

	// Unfit: the arbiter has settings that New would refuse, such as a maxmemory-policy that evicts
	// locks, or a clock years ahead. They are looked at every 12 RenewEvery. NodeReport.Unfit says
	// which.
	Unfit bool

	Permits PermitStats // of semaphores

	// With Cluster.Takeover.
	Takeover  time.Duration // Cluster.Takeover, while there is a session that others can guard; else 0
	Guardians int           // nodes that guard this one
	Promised  time.Duration // for how long their promises make the session valid; 0 without guardians
	Buried    uint64        // sessions of other nodes that this one has had buried
}

// PermitStats counts this process's work on the permits of semaphores, since its start.
type PermitStats struct {
	Local  uint64 // callers that got permits of a block which the process had
	Asked  uint64 // blocks that the process asked for, at the owner or the arbiter
	Shrunk uint64 // blocks that were given back in part while the rest was in use
}

func (s *PermitStats) add(o PermitStats) {
	s.Local += o.Local
	s.Asked += o.Asked
	s.Shrunk += o.Shrunk
}

// An Outcome is an operation of the arbiter, and how calls of it ended.
type Outcome struct {
	Op    Op
	Error string // text of a [Reason]; "": the call was answered. A batch with one call that failed has failed
}

// stripes spread the counts of all locks over cache lines.
const stripes = 16

type stripe struct {
	waits recorder
	holds recorder
	_     [64]byte
}

type counters struct {
	stripes  [stripes]stripe
	calls    [opCount]atomic.Uint64
	failed   [opCount][reasonCount]atomic.Uint64
	failures [opCount]atomic.Pointer[CallFailure] // the last of each
	renewals renewals
	lost     [len(lossCauses)]atomic.Uint64
	sessions atomic.Uint64
	buried   atomic.Uint64

	deadlocks atomic.Uint64
	gaveUp    [len(waitEnds)]atomic.Uint64
	took      [opCount][reasonCount + 1]atomic.Pointer[recorder] // calls of the arbiter, the last of each those that were answered; nil: none
}

// Stats returns a snapshot. It takes each partition's mutex for a moment.
func (c *Coordinator) Stats() Stats {
	s := Stats{
		Granted:  make(map[Path]uint64),
		Calls:    make(map[Op]uint64),
		Failed:   make(map[Op]uint64),
		Failures: make(map[Failure]uint64),
		Outcomes: make(map[Outcome]Histogram),
		Lost:     make(map[LossCause]uint64),
		GaveUp:   make(map[string]uint64),
		Sessions: c.tells.stats.sessions.Load(),
		Permits:  c.callers.pools.stats(),
	}
	for i := range c.tells.stats.stripes {
		x := &c.tells.stats.stripes[i]
		x.waits.addTo(&s.Waits)
		x.holds.addTo(&s.Holds)
	}
	c.tells.stats.addOutcomes(&s)
	for op := range c.tells.stats.calls {
		nonZero(s.Calls, Op(op), c.tells.stats.calls[op].Load())
		failed := uint64(0)
		for reason := range c.tells.stats.failed[op] {
			n := c.tells.stats.failed[op][reason].Load()
			nonZero(s.Failures, Failure{Op(op), Reason(reason)}, n)
			failed += n
		}
		nonZero(s.Failed, Op(op), failed)
	}
	for cause := range c.tells.stats.lost {
		nonZero(s.Lost, LossCause(cause), c.tells.stats.lost[cause].Load())
	}
	for i, name := range waitEnds {
		nonZero(s.GaveUp, name, c.tells.stats.gaveUp[i].Load())
	}
	if x := c.sessions.current(); x != nil {
		s.Session = x.ID
		x.guarded.status(&s)
	}
	s.Grace = c.graceLeft()
	if c.cluster != nil {
		s.Missing = c.cluster.missing()
	}
	s.Unfit = c.remote.advised.notFit() != ""
	s.Buried = c.tells.stats.buried.Load()
	s.Deadlocks = c.tells.stats.deadlocks.Load()
	var n lease.Counts
	for i := range c.parts {
		c.parts[i].count(&s, &n)
	}
	s.Owned, s.Locked, s.Kept, s.Waiting = n.Owned, n.Locked, n.Kept, n.Waiting
	if n.First != 0 {
		s.LongestWait = max(c.moment()-n.First, 0)
	}
	if n.Held != 0 {
		s.LongestHold = max(c.moment()-n.Held, 0)
	}
	return s
}

// addOutcomes adds how long calls took.
func (c *counters) addOutcomes(s *Stats) {
	for op := range c.took {
		for reason := range c.took[op] {
			r := c.took[op][reason].Load()
			if r == nil {
				continue
			}
			var h Histogram
			r.addTo(&h)
			s.Arbiter.add(&h)
			o := Outcome{Op: Op(op)}
			if reason < int(reasonCount) {
				o.Error = Reason(reason).String()
			}
			s.Outcomes[o] = h
		}
	}
}

// tookFor notes how long a call, or a batch, took. err is looked at if calls failed.
func (c *counters) tookFor(op Op, d time.Duration, failed int, err error) {
	at := &c.took[op][reasonCount]
	if failed > 0 {
		at = &c.took[op][reasonOf(err)]
	}
	if at.Load() == nil {
		at.CompareAndSwap(nil, new(recorder))
	}
	at.Load().record(d)
}

func nonZero[K comparable](m map[K]uint64, k K, n uint64) {
	if n > 0 {
		m[k] = n
	}
}
