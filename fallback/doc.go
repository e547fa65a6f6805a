// Package fallback holds the arbiter: the strongly consistent store that judges which node owns a
// partition and which process holds a key.
//
// A key's lock is delegated down a ladder: arbiter, owner node, node, goroutine. This package is
// the top rung. Its truth is small: a table of [Sessions] with one entry per process, and one
// [Partition] record for each of a fixed number of partitions. The record has the rows of the keys
// held in the partition. The transitions of these two values are written down once, as methods that
// know neither a clock nor I/O. Every arbiter is a way to run those methods atomically:
//
//   - [NewMemory] runs them under a mutex, for tests, demos and programs of one process;
//   - package redisarbiter runs them as Lua scripts, one per operation and slot;
//   - [NewRecords] runs them in the process that calls, over any store that compares and swaps small records.
//
// [github.com/holdfast-go/holdfast/fallback/arbitertest] checks that an arbiter keeps the contract
// of this package.
//
// Numbers of rules (rule 1 to 17) and invariants (I1 to I8) in comments are those of
// docs/protocol.md.
package fallback
