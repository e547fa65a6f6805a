// Chaos runs the nodes of a Holdfast cluster as real processes, each in a network namespace of its
// own. Real Redis servers run in namespaces of theirs. It commits faults against them as Jepsen
// does against databases: kills, stops, cuts of every shape, delays, loss, failovers that lose
// writes, servers that lose everything.
//
//	go run ./internal/chaos -topology sentinel -duration 4m -seed 1 -svg run.svg -json run.json
//
// A run is a row of rounds: a storm of one to three faults, healing, and a wait. Within a bound
// every node has to work on every key again.
//
// Each client writes down its calls and their results, with times of CLOCK_MONOTONIC, which is the
// same for all processes of a machine. A lock was certainly in force from Lock's return to just
// before its holder, by its own clock, last found it in force. So two such intervals of one key
// that overlap are two valid holders, however slow the machine is, and whatever was stopped in
// between. A resource, reached by a socket that no cut affects, counts lost updates besides, with
// the fence and without.
//
// It needs Linux, root, iproute2, iptables and redis-server. See docs/chaos.md.
package main
