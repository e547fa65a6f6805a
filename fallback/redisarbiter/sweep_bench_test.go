package redisarbiter_test

import (
	"fmt"
	"math"
	"strconv"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/fallback/redisarbiter"
	"github.com/holdfast-go/holdfast/internal/redistest"
)

// BenchmarkSweep measures the server's cost of a look at all partitions after a failover: the time
// that its main thread uses for a record, by its own account, in the quickest calls of 256 records
// each. In it are the reading of requests and the writing of answers. By turns with them the same
// records are read by HMGET in a pipeline and nothing else, which is the floor. A cluster of N
// nodes and P partitions reads N x P records: P of them, those that are the first to be read of
// their partition, begin Grace there.
func BenchmarkSweep(b *testing.B) {
	for _, kind := range []string{"usual", "Grace", "Grace begins"} {
		b.Run(kind, func(b *testing.B) { benchmarkSweep(b, kind) })
	}
}

func benchmarkSweep(b *testing.B, kind string) {
	s := redistest.Start(b)
	stats, other := s.Client(b), s.Client(b)
	settings := plain
	settings.Partitions, settings.Grace = 256, 1<<40 // ns: 18 minutes
	n := attachTo(b, s.Client(b), map[bool]*redisarbiter.Options{true: cold, false: {}}[kind == "usual"], settings)
	reads := make([]fallback.Read, settings.Partitions)
	for i := range reads {
		reads[i].Partition = uint32(i)
	}
	each := func(do func(redis.Pipeliner, string)) {
		if _, err := other.Pipelined(b.Context(), func(pipe redis.Pipeliner) error {
			for i := range reads {
				do(pipe, fmt.Sprintf("{ns:p%d}", i))
			}
			return nil
		}); err != nil {
			b.Fatal(err)
		}
	}
	sweep := func() {
		for _, state := range n.Verify(b.Context(), reads) {
			if in := state.Record.Grace > 0; state.Err != nil || in != (kind != "usual") {
				b.Fatalf("%+v", state)
			}
		}
	}
	plainly := func() { each(func(pipe redis.Pipeliner, name string) { pipe.HMGet(b.Context(), name, "i", "m") }) }
	sweep() // makes the records
	batch := 16
	if kind == "Grace begins" {
		batch = 1
	}
	least := [2]float64{math.Inf(1), math.Inf(1)}
	for b.Loop() {
		for i, read := range []func(){sweep, plainly} {
			if batch == 1 {
				each(func(pipe redis.Pipeliner, name string) { pipe.HSet(b.Context(), name, "i", "another", "u", "another") })
			}
			used := cpu(b, stats)
			for range batch {
				read()
			}
			least[i] = min(least[i], cpu(b, stats)-used)
		}
	}
	for i, unit := range []string{"core-µs/record", "HMGET-µs/record"} {
		b.ReportMetric(least[i]*1e6/float64(batch*len(reads)), unit)
	}
	b.ReportMetric(0, "ns/op")
}

// cpu is the time of a processor that the server's main thread has used.
func cpu(b *testing.B, c *redis.Client) (seconds float64) {
	text, err := c.Info(b.Context(), "cpu").Result()
	if err != nil {
		b.Fatal(err)
	}
	info := redisarbiter.ParseInfo(text)
	for _, field := range []string{"used_cpu_user_main_thread", "used_cpu_sys_main_thread"} {
		n, err := strconv.ParseFloat(info[field], 64)
		if err != nil {
			b.Fatal(err)
		}
		seconds += n
	}
	return seconds
}
