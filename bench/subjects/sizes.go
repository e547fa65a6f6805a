package subjects

import "time"

var FullSizes = Sizes{
	Hot:  HotSizes{Processes: 4, Goroutines: 16, Rounds: 6, Round: 2 * time.Second},
	Cold: ColdSizes{Blocks: 10, Calls: 1000},
	Held: HeldSizes{Locks: 100_000, Periods: 4},

	own:     ownSizes{blocks: 15, pairs: 200_000, handOvers: 64_000, calls: 200},
	shared:  sharedSizes{processes: 4, goroutines: 16, keys: 1, rounds: 9, round: time.Second},
	zipf:    sharedSizes{processes: 4, goroutines: 64, keys: 1000, rounds: 7, round: 1200 * time.Millisecond},
	forward: forwardSizes{blocks: 12, calls: 800, callers: 64, round: 400 * time.Millisecond},
	idle:    idleSizes{processes: 8, periods: 6},
	http:    httpSizes{blocks: 12, calls: 50_000, posts: 1000},
	latency: latencySizes{blocks: 10, calls: 500},
	growth: growthSizes{
		blocks: 5, keys: 1_000_000, pairs: 200_000, waiters: 1024, handOvers: 64_000, rows: 100_000, calls: 600, rowBlocks: 5,
		processes: 8, goroutines: 64, rounds: 4, round: 1200 * time.Millisecond, window: 2 * idlePeriod,
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

	own:     ownSizes{blocks: 5, pairs: 50_000, handOvers: 32_000, calls: 50},
	shared:  sharedSizes{processes: 4, goroutines: 16, keys: 1, rounds: 3, round: 300 * time.Millisecond},
	zipf:    sharedSizes{processes: 4, goroutines: 64, keys: 1000, rounds: 2, round: 400 * time.Millisecond},
	forward: forwardSizes{blocks: 5, calls: 200, callers: 64, round: 150 * time.Millisecond},
	idle:    idleSizes{processes: 8, periods: 2},
	http:    httpSizes{blocks: 5, calls: 20_000, posts: 300},
	latency: latencySizes{blocks: 4, calls: 100},
	growth: growthSizes{
		blocks: 2, keys: 100_000, pairs: 50_000, waiters: 1024, handOvers: 16_384, rows: 1000, calls: 100, rowBlocks: 2,
		processes: 4, goroutines: 64, rounds: 2, round: 300 * time.Millisecond, window: idlePeriod,
	},
	stalls: stallSizes{
		rounds: 1, processes: 3, rate: 200, keys: 1000, hold: time.Millisecond, limit: 20 * time.Second,
		calm: time.Second, every: 2 * time.Second, outage: 5 * time.Second, after: 14 * time.Second,
	},
	rows:  rowsSizes{processes: 4, goroutines: 16, stock: 500, rows: 1000, rounds: 2, round: 400 * time.Millisecond},
	modes: modesSizes{blocks: 5, block: 100 * time.Millisecond, ratios: 30},
}
