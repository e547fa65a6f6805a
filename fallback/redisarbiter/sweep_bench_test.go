package redisarbiter_test

import (
	"math"
	"regexp"
	"strconv"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/fallback/redisarbiter"
	"github.com/holdfast-go/holdfast/internal/redistest"
)

// BenchmarkSweep is what a look at all partitions after a failover costs the server: the time of the quickest script of 256 records, by
// the server's own clock, and what its process uses for all of it, in the quickest 16 scripts. A cluster of N nodes and P partitions reads N x P records.
func BenchmarkSweep(b *testing.B) {
	for name, opts := range map[string]*redisarbiter.Options{"usual": cold, "Grace": {}} {
		b.Run(name, func(b *testing.B) {
			s := redistest.Start(b)
			stats := s.Client(b)
			settings := plain
			settings.Partitions, settings.Grace = 256, 1<<40 // ns: 18 minutes
			n := attachTo(b, s.Client(b), opts, settings)
			reads := make([]fallback.Read, settings.Partitions)
			for i := range reads {
				reads[i].Partition = uint32(i)
			}
			read := func() {
				for _, state := range n.Verify(b.Context(), reads) {
					if in := state.Record.Grace > 0; state.Err != nil || in != (name == "Grace") {
						b.Fatalf("%+v", state)
					}
				}
			}
			read() // makes the records
			usec := regexp.MustCompile(`(?m)^cmdstat_evalsha:calls=1,usec=(\d+),`)
			best := 0
			for b.Loop() {
				if err := stats.ConfigResetStat(b.Context()).Err(); err != nil {
					b.Fatal(err)
				}
				read()
				text, err := stats.Info(b.Context(), "commandstats").Result()
				if err != nil {
					b.Fatal(err)
				}
				if m := usec.FindStringSubmatch(text); m != nil { // else something else was executed
					if took, _ := strconv.Atoi(m[1]); best == 0 || took < best {
						best = took
					}
				}
			}
			const batch = 16
			least := math.Inf(1)
			for range 1 + b.N/batch {
				used := cpu(b, stats)
				for range batch {
					read()
				}
				least = min(least, cpu(b, stats)-used)
			}
			b.ReportMetric(float64(best)/float64(len(reads)), "server-µs/record")
			b.ReportMetric(least*1e6/batch/float64(len(reads)), "all-cpu-µs/record")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// cpu is the time of a processor that the server has used.
func cpu(b *testing.B, c *redis.Client) (seconds float64) {
	text, err := c.Info(b.Context(), "cpu").Result()
	if err != nil {
		b.Fatal(err)
	}
	info := redisarbiter.ParseInfo(text)
	for _, field := range []string{"used_cpu_user", "used_cpu_sys"} {
		n, err := strconv.ParseFloat(info[field], 64)
		if err != nil {
			b.Fatal(err)
		}
		seconds += n
	}
	return seconds
}
