package redisarbiter_test

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/redistest"
)

// BenchmarkRestore measures the server's cost of a row that a holder adopts: the time of its main
// thread, by its own account, in the quickest call of 164 rows. A partition's owner that was killed
// has answered for them.
func BenchmarkRestore(b *testing.B) {
	const holds = 164
	s := redistest.Start(b)
	stats := s.Client(b)
	n := attachTo(b, s.Client(b), cold, plain)
	ctx := b.Context()
	if _, err := n.Open(ctx, "owner", fallback.Registration{TTL: time.Hour}); err != nil {
		b.Fatal(err)
	}
	got, err := n.Acquire(ctx, 0, "owner", fallback.Expect{}) // which tells the epoch
	if err == nil {
		got, err = n.Acquire(ctx, 0, "owner", fallback.Expect{Epoch: got.Record.Epoch})
	}
	if err != nil || got.Verdict != fallback.Granted {
		b.Fatal(got, err)
	}
	least := math.Inf(1)
	for i := 0; b.Loop(); i++ {
		claims := fallback.Claims{Partition: 0}
		for k := range holds {
			row := fallback.Row{Identity: fallback.Identity{Session: "LDAHL7EEGHC2YCWRPR5SUVLC4O", Request: uint64(k + 1)}, Token: fallback.MakeToken(got.Record.Epoch, uint32(k+1))}
			claims.Holds = append(claims.Holds, fallback.Claim{Key: fmt.Sprintf("order/%d/%d", i, k), Row: row, Owned: got.Record.Epoch})
		}
		used := cpu(b, stats)
		for _, r := range n.Restore(ctx, []fallback.Claims{claims}) {
			if r.Err != nil || r.Verdicts[0] != fallback.Granted {
				b.Fatalf("%+v", r)
			}
		}
		least = min(least, cpu(b, stats)-used)
	}
	b.ReportMetric(least*1e6/holds, "core-µs/row")
	b.ReportMetric(0, "ns/op")
}
