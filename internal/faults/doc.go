// Package faults tests Holdfast as processes meet it: real redis-servers, real processes that lock
// keys through package coord over and over, and real faults: signals, restarts, failovers, broken
// connections. It has tests only.
//
// The judge of it all is outside of the library: the resource that the locks protect, a small TCP
// server in the test's process. With every message a worker tells it that it found its lock in
// force after the answer to the message before. So the judge knows intervals, in the order of its
// messages: in each the lock was certainly in force by its holder's own account. Two of them that
// overlap on one key are two valid holders at once (I1), however slow the network or the scheduler.
// A holder that has been told of its loss ends its interval where it last found its lock in force.
// So overlaps that no lease can prevent are not counted.
package faults
