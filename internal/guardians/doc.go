// Package guardians has the state machines by which a dead session's keys are free soon:
// docs/takeover.md.
//
// A [Ward] is what a session knows of its own guardians: their promises, and the set that is
// recorded at the arbiter. A [Guardian] is what a node has promised to other sessions, and voted.
// They do nothing by themselves: the caller sends what they return, tells them what it receives,
// and reads the clock. A Guardian's times are those of the node's monotonic clock, since any
// moment. A Ward's go on by the wall clock where that has made the longer step: a machine that was
// suspended has lost the time of its promises.
//
//	ward := NewWard(times)
//	ward.Propose(members)          // the guardians that the session wants
//	ping := ward.Ping(g, now)      // to each guardian, six times in D; the answer: ward.Promised
//	asked := ward.Ask(now)         // once they have promised: then each renewal names ward.Names(), each answer is told to ward.Recorded
//	ward.Announce(lease, now)      // how long the session is good: for grants, and told to holders
//
// They are not safe for concurrent use.
package guardians
