package coord

import "sync/atomic"

// reads are the keys that callers of this process read.
type reads struct {
	shards [1 << 6]readShard
	open   atomic.Int64 // size of all shards' current, or more: raised before a reading is in there, lowered after

	// Some of the shards' current readings, to be found without a mutex: see find. Those of a shard
	// are next to each other.
	warm [1 << 10]atomic.Pointer[reading]
}

// A readShard has some of the keys. Its mutex is one of the last in the order of mutexes: see
// rank.go. No clock is read while it is held.
type readShard struct {
	mu      mutex[readRank]     // protects the fields below, and those of readings and flights
	current map[string]*reading // by key: those that let callers in
	flights map[string]*flight  // callers that wait for a key, together
}

// shardOf returns the shard of a key's hash: all keys that have one of the same slots of warm have
// the same.
func (c *Coordinator) shardOf(hash uint64) *readShard {
	r := &c.callers.reads
	return &r.shards[hash%uint64(len(r.warm))/uint64(len(r.warm)/len(r.shards))]
}

// find returns the reading of a key if it is one of those that are found without the mutex. It has
// seats.
func (r *reads) find(hash uint64, key string) *reading {
	i := hash % uint64(len(r.warm))
	if x := r.warm[i].Load(); x != nil && x.id.key == key {
		return x
	}
	if x := r.warm[i^1].Load(); x != nil && x.id.key == key {
		return x
	}
	return nil
}

// readingOf returns the lock of the shared name that callers of this process have, nil if there is
// none.
func (c *Coordinator) readingOf(key string) *reading {
	if c.callers.reads.open.Load() == 0 {
		return nil
	}
	s := c.shardOf(readHash(key))
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.current[key]
}
