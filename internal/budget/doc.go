// Package budget watches the costs of the hot paths: the allocations and the instructions of each
// operation have a limit in limits.txt, and the package's test fails where one is exceeded. Time is
// not looked at, for it depends on the machine and on its load; instructions hardly do.
//
// They are counted without the counters of the processor, which virtual machines often do not have:
// the operations run in a child process, and ptrace steps each of its threads through them, one
// instruction at a time. The child's clock is the count itself, so the way that the code takes does
// not depend on how slow that is; see [Steps].
package budget

import "errors"

// ErrStarved is a round that does not end, as some goroutines keep the processor; see [Steps].
var ErrStarved = errors.New("budget: a round that does not end: some goroutines keep the processor")
