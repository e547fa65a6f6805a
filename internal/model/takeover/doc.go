// Package takeover explores every state of the rules that free a dead session's keys soon:
// docs/takeover.md.
//
//   - guardians.go: promises, votes and burials, with clocks that run at different rates, changes of the set of guardians,
//     failovers of the arbiter, guardians that restart.
//   - endings.go: an early burial, once a session's process has ended.
//   - grace.go: an early end of Grace.
//   - rounds.go: rounds, the way to such an end.
//   - tokens.go: epochs over failovers, where Grace ends early.
//   - length.go: a Grace whose length changes while processes run.
//   - consent.go: a store that is deposed and goes on acknowledging.
//
// Each guard of the rules can be taken away. Then there is a shortest story of the failure.
// README.md has bounds and results.
package takeover
