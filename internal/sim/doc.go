// Package sim runs whole clusters in one process, on virtual time. Its network loses, delays, cuts
// and resets, and its arbiter fails over. It checks the protocol's invariants at every step.
//
// The real parts: the coordinators, with their owners' tables, forwarding, adoption, demotion and
// clocks; the streams between nodes and their handshakes; the debounce of the ring and its
// placement; the memory arbiter, with the transitions of the Redis scripts, as the differential
// tests of package fallback prove. The simulated parts: sockets, the gossip itself (the nodes that
// hear of each other, and when), the arbiter's network, and time, which is that of
// testing/synctest.
//
// A seed decides the faults of the nodes and the network, and their times. It does not control the
// order of goroutines that run at the same moment. So a seed makes a failure likely to come again,
// not certain.
package sim
