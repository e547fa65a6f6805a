// Package lease decides what a node does with its partitions and their keys. It is the second and the third rung of the ladder as a
// state machine that can be stepped: it has no goroutine, clock, mutex, context, input or output.
//
// An event is a method of [Partition]. It gets a reading of the clock, looks at a [View] of the other nodes where it has to,
// changes the partition, and adds to [Effects] what has to happen outside. Its caller (package coord) holds a mutex during the
// event, carries out the ordered effects before it frees the mutex, and the deferred ones afterwards.
//
// One key's journey: an owner grants a key that is free at once ([Partition.Fresh], [Partition.Again], and on the long way
// [Partition.BeginOwn]). If it is not to be had like that, the caller waits, and [Partition.Want] finds out where a hold has to come from. An
// owner grants it to its own callers in turn with other nodes (wantHere, grantNext, grantSelf). Another node asks the owner (a Request frame,
// then [Partition.Granted]), and if there is none but should be, the node that is asked takes the partition first. Where no node is to be
// asked, a [Contender] asks the arbiter ([Partition.Install]). Then the callers take turns. An owner that has others waiting asks for the key
// back (recall, [Partition.Recalled]). [Partition.Unlock] or [Partition.Relax] gives the hold back, or [Partition.Lapsed],
// [Partition.Compare] or [Partition.Restored] finds it lost. DESIGN.md has that call by call.
package lease
