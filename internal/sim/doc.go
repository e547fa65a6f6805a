// Package sim runs whole clusters in one process, on virtual time, in a network that loses, delays,
// cuts and resets, with an arbiter that fails over, and checks the protocol's invariants at every
// step.
//
// What is real: the coordinators, with their owners' tables, forwarding, adoption, demotion and
// clocks; the streams between nodes and their handshakes; the debounce of the ring and its
// placement; the memory arbiter, with the transitions of the Redis scripts, as the differential
// tests of package fallback prove. What is simulated: sockets, the gossip itself (which node hears
// of which, and when), the arbiter's network, and time, which is that of testing/synctest.
//
// A seed decides what happens to the nodes and the network, and when. The order in which goroutines
// run at the same moment is not under its control, so that a seed makes a failure likely to come
// again, not certain.
package sim
