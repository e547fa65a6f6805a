// Chaos runs the nodes of a Holdfast cluster as real processes, each in a network namespace of its
// own, with real Redis servers in namespaces of theirs, and does to them what Jepsen does to
// databases: kills, stops, cuts of every shape, delays, loss, failovers that lose writes, servers
// that lose everything.
//
//	go run ./internal/chaos -topology sentinel -duration 4m -seed 1 -svg run.svg -json run.json
//
// A run is a row of rounds: a storm of one to three faults, healing, and the wait until every node
// works on every key again, which has to come within a bound.
//
// Each client writes down what it does and what it finds, with times of CLOCK_MONOTONIC, which is
// the same for all processes of a machine. A lock was certainly in force from the moment Lock
// returned to the last moment before its holder, by its own clock, found it in force. So two such
// intervals of one key that overlap are two valid holders, however slow the machine is, and
// whatever was stopped in between. A resource, reached by a socket that no cut affects, counts
// beside that what a critical section is for: updates that were lost, with the fence and without.
//
// It needs Linux, root, iproute2, iptables and redis-server. See docs/chaos.md.
package main
