package subjects

import "time"

var FullSizes = Sizes{
	Hot:  HotSizes{Processes: 4, Goroutines: 16, Rounds: 6, Round: 2 * time.Second},
	Cold: ColdSizes{Blocks: 10, Calls: 1000},
	Held: HeldSizes{Locks: 100_000, Periods: 4},

	own:     ownSizes{Blocks: 15, Pairs: 200_000, HandOvers: 64_000, Calls: 200},
	shared:  sharedSizes{processes: 4, goroutines: 16, keys: 1, rounds: 9, round: time.Second},
	zipf:    sharedSizes{processes: 4, goroutines: 64, keys: 1000, rounds: 7, round: 1200 * time.Millisecond},
	forward: forwardSizes{Blocks: 12, Calls: 800, Callers: 64, Round: 400 * time.Millisecond},
	idle:    idleSizes{processes: 8, periods: 6},
	http:    httpSizes{Blocks: 12, Calls: 50_000, Posts: 1000},
	latency: latencySizes{Blocks: 10, Calls: 500},
	growth: growthSizes{
		Blocks: 5, Keys: 1_000_000, Pairs: 200_000, Waiters: 1024, HandOvers: 64_000, Rows: 100_000, Calls: 600, RowBlocks: 5,
		Processes: 8, Goroutines: 64, Rounds: 4, Round: 1200 * time.Millisecond, Window: 2 * idlePeriod,
	},
	stalls: stallSizes{
		rounds: 3, processes: 4, rate: 500, keys: 1000, hold: time.Millisecond, limit: 20 * time.Second,
		calm: 3 * time.Second, every: 4 * time.Second, outage: 5 * time.Second, after: 18 * time.Second,
	},
	rows:  rowsSizes{processes: 4, goroutines: 16, stock: 3000, rows: 1000, rounds: 4, round: time.Second},
	modes: modesSizes{blocks: 10, block: 200 * time.Millisecond, ratios: 200},
}

var QuickSizes = Sizes{
	Hot:  HotSizes{Processes: 4, Goroutines: 16, Rounds: 3, Round: 300 * time.Millisecond},
	Cold: ColdSizes{Blocks: 5, Calls: 250},
	Held: HeldSizes{Locks: 100_000, Periods: 1},

	own:     ownSizes{Blocks: 5, Pairs: 50_000, HandOvers: 32_000, Calls: 50},
	shared:  sharedSizes{processes: 4, goroutines: 16, keys: 1, rounds: 3, round: 300 * time.Millisecond},
	zipf:    sharedSizes{processes: 4, goroutines: 64, keys: 1000, rounds: 2, round: 400 * time.Millisecond},
	forward: forwardSizes{Blocks: 5, Calls: 200, Callers: 64, Round: 150 * time.Millisecond},
	idle:    idleSizes{processes: 8, periods: 2},
	http:    httpSizes{Blocks: 5, Calls: 20_000, Posts: 300},
	latency: latencySizes{Blocks: 4, Calls: 100},
	growth: growthSizes{
		Blocks: 2, Keys: 100_000, Pairs: 50_000, Waiters: 1024, HandOvers: 16_384, Rows: 1000, Calls: 100, RowBlocks: 2,
		Processes: 4, Goroutines: 64, Rounds: 2, Round: 300 * time.Millisecond, Window: idlePeriod,
	},
	stalls: stallSizes{
		rounds: 1, processes: 3, rate: 200, keys: 1000, hold: time.Millisecond, limit: 20 * time.Second,
		calm: time.Second, every: 2 * time.Second, outage: 5 * time.Second, after: 14 * time.Second,
	},
	rows:  rowsSizes{processes: 4, goroutines: 16, stock: 500, rows: 1000, rounds: 2, round: 400 * time.Millisecond},
	modes: modesSizes{blocks: 5, block: 100 * time.Millisecond, ratios: 30},
}
