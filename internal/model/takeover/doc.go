// Package takeover explores every state of the rules by which a dead session's keys are free soon:
// docs/takeover.md.
//
//   - guardians.go: promises, votes and burials, with clocks that run at different rates, changes of the set of guardians,
//     failovers of the arbiter, guardians that restart.
//   - grace.go: an early end of Grace.
//   - rounds.go: rounds, by which that is built.
//   - length.go: a Grace whose length changes while processes run.
//   - consent.go: a store that is deposed and goes on acknowledging.
//
// Each guard of the rules can be taken away. Then a shortest story says what goes wrong. README.md
// has bounds and results.
package takeover
