// Package election elects one leader among the processes that campaign under the same name.
//
// One term's journey: [Election.Campaign] waits for the lock of the election, as
// [coord.Coordinator.Lock] does. The process that gets it is the leader for one [Term]. It
// publishes a value, such as its address, under the term's fence, and tells all processes of the
// namespace at once; [Election.Leader] reads the value, and [Election.Observe] yields each change
// of it. [Term.Resign] frees the lock, and the candidate that has waited longest gets it within a
// few milliseconds. The lock of a leader that crashed lapses after coord.Options.SessionTTL, in a
// cluster after coord.Cluster.Takeover.
//
// A leader knows of its term's end before the next one begins: [Term.Context] ends when the lock is
// lost by the leader's own clock, before the arbiter gives the lock to another candidate:
// coord.Options.Margin before (1 s), or, where other nodes say in a takeover that the leader is
// dead, as large a share of coord.Cluster.Takeover (0.3 s). A process that stops between looking at
// the context and writing is not stopped by that. The resource stops it, if it refuses a
// [Term.Fence] that is lower than the highest it has seen.
//
// [Election.Run] campaigns for a function, again and again. [Election.Assign] divides numbered
// shards among processes.
package election
