package main

import "time"

var fullSizes = sizes{
	hot:  hotSizes{processes: 4, goroutines: 16, rounds: 6, round: 2500 * time.Millisecond},
	cold: coldSizes{blocks: 10, calls: 1000},
	held: heldSizes{locks: 100_000, periods: 4},
}

var quickSizes = sizes{
	hot:  hotSizes{processes: 4, goroutines: 16, rounds: 3, round: 300 * time.Millisecond},
	cold: coldSizes{blocks: 5, calls: 250},
	held: heldSizes{locks: 100_000, periods: 1},
}
