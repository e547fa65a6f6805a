// Package model sees every state that the lock protocol can come to, within bounds: one partition,
// one key, two or three nodes, and a few faults. In each it checks the invariants I1 to I7 of
// docs/protocol.md. When it has seen them all, it looks for states where no process can be granted
// the key any more (I8).
//
// The arbiter is the real one: its operations are those of package fallback's Partition and
// Sessions, which the embedded arbiter runs as well, and which the Redis scripts are tested
// against. The nodes are written anew, after the protocol and not after package coord, as few
// actions that take no time. README.md names the omissions.
//
// Each guard of the protocol can be taken away. Then the model tells a shortest story of the
// failure. It shows the guard's purpose, and that the model can find the failure. The stories are
// in testdata. Package leasetest replays them on internal/lease: nothing comes of them, unless that
// lacks the guard as well.
//
// # The way of a state
//
// Model.next makes the states that one action leads to: action.owner, holder, stream, late, tick,
// faults. explorer.search makes each canonical, so that states that differ by names only are one,
// and looks at the new ones breadth-first.
package model
