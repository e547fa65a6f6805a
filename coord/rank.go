package coord

// The order in which the mutexes of this package are locked, outermost first. A goroutine locks a
// mutex only while those that it holds are further up. Two of one rank are never held at the same
// time, but for sections: that of a Do within another one asks the outer one while it is locked
// itself, and never the other way.
//
//	section        the context of a lock, or that Do gives to its function
//	settling       callers of Settled
//	cluster        streams that are up, and the session that they were told
//	partition      keys, holds, turns and the ownership of one partition
//	link           the state of one stream, other than the fields that are read without a mutex
//	readShard      the keys that this process reads; events of a partition lock it (lease.Sharer)
//	pool           permits of one semaphore; the same
//	pools          the list of those
//	the rest       confirmations, sessions, releases, lingers, doubts, liveness, and others
//	last           lockers, the journal, and life.last; held for no call of another type of this package
//
// Below them are the mutexes of packages peer (a stream), singleflight, workers and ring. Their
// methods are called with any of these held, and call back none of this package while they hold
// their own.
//
// The build tag simulation checks the order of the mutexes with a rank (rank_simulated.go): one
// Lock in 2048, and each Lock while that mutex is held. It checks neither TryLock nor the two plain
// mutexes: that of a section, and matesMu, which all coordinators share and which is a last one.
type (
	settlingRank  struct{}
	clusterRank   struct{}
	partitionRank struct{}
	linkRank      struct{}
	readRank      struct{}
	poolRank      struct{}
	poolsRank     struct{}
	leafRank      struct{}
	lastRank      struct{}
)

func (settlingRank) rank() rank  { return 1 }
func (clusterRank) rank() rank   { return 2 }
func (partitionRank) rank() rank { return 3 }
func (linkRank) rank() rank      { return 4 }
func (readRank) rank() rank      { return 5 }
func (poolRank) rank() rank      { return 6 }
func (poolsRank) rank() rank     { return 7 }
func (leafRank) rank() rank      { return 8 }
func (lastRank) rank() rank      { return 9 }

// A rank is a place in the order. A mutex of a higher rank is locked later.
type rank uint8

type ranked interface{ rank() rank }
