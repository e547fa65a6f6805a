// Package lease decides what a node does with its partitions and their keys. It is the second and the third rung of the ladder as a
// state machine that can be stepped: it has no goroutine, clock, mutex, context, input or output.
//
// An event is a method of [Partition]. It gets a reading of the clock, looks at a [View] of the other nodes where it has to,
// changes the partition, and adds to [Effects] what has to happen outside. Its caller (package coord) holds a mutex during the
// event, carries out the ordered effects before it frees the mutex, and the deferred ones afterwards.
//
// One key's journey: [Partition.Want] finds out where the key's hold has to come from, once a caller waits. An owner grants it by
// itself ([Partition.BeginOwn]). Another node asks the owner (a Request frame, then [Partition.Granted]). Without an owner a
// [Contender] asks the arbiter ([Partition.Install]). Then the callers take turns, until [Partition.Unlock] or [Partition.Relax]
// gives the hold back, or [Partition.Lapsed], [Partition.Compare] or [Partition.Restored] finds it lost.
package lease
