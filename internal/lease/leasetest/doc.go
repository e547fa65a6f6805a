// Package leasetest steps the decisions of package lease without goroutines or a clock: two or
// three nodes, the record of an arbiter, streams that deliver in order, and a clock that a script
// moves. A transcript in testdata tells a rule of the protocol as commands and their results; it is
// documentation and test in one. A search sees all that two nodes can do within a few steps. The
// stories of package model, one for each guard of the protocol, are replayed, as are random walks
// of it.
package leasetest
