package subjects

import "time"

var FullSizes = Sizes{
	Hot:  Crowd{Processes: 4, Goroutines: 16, Rounds: 6, Round: 2 * time.Second},
	Cold: ColdSizes{Blocks: 10, Calls: 1000},
	Held: HeldSizes{Locks: 100_000, Periods: 4},

	own:     ownSizes{Blocks: 15, Pairs: 200_000, HandOvers: 64_000, Calls: 200},
	Shared:  Crowd{Processes: 4, Goroutines: 16, Keys: 1, Rounds: 9, Round: time.Second},
	Zipf:    Crowd{Processes: 4, Goroutines: 64, Keys: 1000, Rounds: 7, Round: 1200 * time.Millisecond},
	forward: forwardSizes{Blocks: 12, Calls: 800, Callers: 64, Round: 400 * time.Millisecond},
	idle:    idleSizes{processes: 8, periods: 6},
	http:    httpSizes{Blocks: 12, Calls: 50_000, Posts: 1000},
	latency: latencySizes{Blocks: 10, Calls: 500},
	growth: growthSizes{
		Blocks: 5, Keys: 1_000_000, Pairs: 200_000, Waiters: 1024, HandOvers: 64_000, Rows: 100_000, Calls: 600, RowBlocks: 5,
		Processes: 8, Goroutines: 64, Rounds: 4, Round: 1200 * time.Millisecond, Window: 2 * idlePeriod,
	},
	stalls: stallSizes{
		Rounds: 3, Processes: 4, Rate: 500, Keys: 1000, Hold: time.Millisecond, Limit: 20 * time.Second,
		Calm: 3 * time.Second, Every: 4 * time.Second, Outage: 5 * time.Second, After: 18 * time.Second,
	},
	rows:  rowsSizes{Crowd{Processes: 4, Goroutines: 16, Keys: 1000, Rounds: 4, Round: time.Second}, 3000},
	modes: modesSizes{blocks: 10, block: 200 * time.Millisecond, ratios: 200},
}

var QuickSizes = Sizes{
	Hot:  Crowd{Processes: 4, Goroutines: 16, Rounds: 3, Round: 300 * time.Millisecond},
	Cold: ColdSizes{Blocks: 5, Calls: 250},
	Held: HeldSizes{Locks: 100_000, Periods: 1},

	own:     ownSizes{Blocks: 5, Pairs: 50_000, HandOvers: 32_000, Calls: 50},
	Shared:  Crowd{Processes: 4, Goroutines: 16, Keys: 1, Rounds: 3, Round: 300 * time.Millisecond},
	Zipf:    Crowd{Processes: 4, Goroutines: 64, Keys: 1000, Rounds: 2, Round: 400 * time.Millisecond},
	forward: forwardSizes{Blocks: 5, Calls: 200, Callers: 64, Round: 150 * time.Millisecond},
	idle:    idleSizes{processes: 8, periods: 2},
	http:    httpSizes{Blocks: 5, Calls: 20_000, Posts: 300},
	latency: latencySizes{Blocks: 4, Calls: 100},
	growth: growthSizes{
		Blocks: 2, Keys: 100_000, Pairs: 50_000, Waiters: 1024, HandOvers: 16_384, Rows: 1000, Calls: 100, RowBlocks: 2,
		Processes: 4, Goroutines: 64, Rounds: 2, Round: 300 * time.Millisecond, Window: idlePeriod,
	},
	stalls: stallSizes{
		Rounds: 1, Processes: 3, Rate: 200, Keys: 1000, Hold: time.Millisecond, Limit: 20 * time.Second,
		Calm: time.Second, Every: 2 * time.Second, Outage: 5 * time.Second, After: 14 * time.Second,
	},
	rows:  rowsSizes{Crowd{Processes: 4, Goroutines: 16, Keys: 1000, Rounds: 2, Round: 400 * time.Millisecond}, 500},
	modes: modesSizes{blocks: 5, block: 100 * time.Millisecond, ratios: 30},
}
