// Package lease makes a node's decisions about its partitions and their keys. It is two rungs of
// the ladder in DESIGN.md, owner node and node, as a state machine that can be stepped: it has no
// goroutine, clock, mutex, context, input or output, and waits for nothing. (It closes the channel
// of [Partition.Wanted], and calls [Link] and [Sharer], behind which the caller's mutexes and
// clocks are.)
//
// An event is a method of [Partition]. It gets a reading of the clock, and looks at a [View] of the
// other nodes where it has to. It changes the partition, and adds to [Effects] the actions that
// have to follow outside. Its caller (package coord) holds a mutex during the event, carries out
// the ordered effects before it frees the mutex, and the deferred ones afterwards.
//
// One key's journey, at its owner. A key that is free is granted at once: [Partition.Fresh], or
// [Partition.Again] if it was used a moment ago, or on the long way [Partition.BeginOwn]. Further
// callers queue ([Key.Join]). [Partition.Pass] gives the next one the turn. After the last one
// [Partition.EndOwn] keeps the key on the partition's shelf. When another key needs the place
// there, the key is forgotten. Whatever these cannot do, [Partition.Unlock] does.
//
// The same key, asked for by another node. Its caller waits, and [Partition.Want] finds out where a
// hold has to come from: in this case from the owner, so it sends a Request frame there. At the
// owner [Partition.Requested] queues that node, in turn with its own callers (wantHere, grantNext).
// It takes the partition first if it should have it, and recalls the key if another node has it
// (recall, [Partition.Recalled] there). Then it sends a Grant frame. At the node that asked,
// [Partition.Granted] gives the first caller the turn. Then callers take turns there, too.
// [Partition.Keep] keeps the hold for the next caller, and [Partition.Relax] gives it back if none
// comes: at the owner, [Partition.Released].
//
// Where no node is to be asked, a [Contender] asks the arbiter ([Partition.Install]).
// [Partition.Lapsed], [Partition.Compare] or [Partition.Restored] finds that a hold is lost.
// DESIGN.md has all of that call by call.
package lease
