// Package guardians has the state machines that free a dead session's keys soon: docs/takeover.md.
//
// A [Ward] is a session's knowledge of its own guardians: their promises, and the set that is
// recorded at the arbiter. A [Guardian] is the record of a node's promises to other sessions, and
// of its votes. They do nothing by themselves: the caller sends the pings, pongs, votes and burials
// that they return, tells them the received ones, and reads the clock. A Guardian's times are those
// of the node's monotonic clock, since any moment. A Ward's go on by the wall clock where that has
// made the longer step: a machine that was suspended has lost the time of its promises.
//
//	ward := NewWard(times)
//	ward.Propose(members)          // the guardians that the session wants
//	ping := ward.Ping(g, now)      // to each guardian, six times in D; the answer: ward.Promised
//	asked := ward.Ask(now)         // once they have promised: then each renewal names ward.Names(), each answer is told to ward.Recorded
//	ward.Announce(lease, now)      // how long the session is good: for grants, and told to holders
//
// They are not safe for concurrent use.
package guardians
