package redisarbiter

import (
	"context"
	"time"

	"github.com/holdfast-go/holdfast/fallback"
)

// What the tests see of the inside.
var (
	CheckInfo     = checkInfo
	ParseInfo     = parseInfo
	ParseMessage  = parseMessage
	Refused       = refused
	ErrReplica    = errReplica
	ErrDenied     = errDenied
	CompareClocks = compareClocks
)

// EpochZero is what epochs count seconds from.
var EpochZero = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC).Unix()

// Reformat formats a namespace on a Redis that was flushed, as Attach does with ColdStart.
func Reformat(ctx context.Context, n fallback.Namespace) error {
	n.(*redisSpace).secrets.Store(nil)
	return n.(*redisSpace).formatAs(ctx, "cold")
}

// Adopt is n.Restore of one hold, granted at its token's epoch.
func Adopt(ctx context.Context, n fallback.HoldStore, p uint32, key string, row fallback.Row) (fallback.Verdict, error) {
	return restore(ctx, n, p, fallback.Claim{Key: key, Row: row, Owned: row.Token.Epoch()})
}

// ReclaimRow is n.Restore of one hold that rests on its row.
func ReclaimRow(ctx context.Context, n fallback.HoldStore, p uint32, key string, row fallback.Row) (fallback.Verdict, error) {
	return restore(ctx, n, p, fallback.Claim{Key: key, Row: row})
}

func restore(ctx context.Context, n fallback.HoldStore, p uint32, c fallback.Claim) (fallback.Verdict, error) {
	r := n.Restore(ctx, []fallback.Claims{{Partition: p, Holds: []fallback.Claim{c}}})[0]
	if r.Err != nil {
		return 0, r.Err
	}
	return r.Verdicts[0], nil
}

// Verify is n.Verify for those who want one error.
func Verify(ctx context.Context, n fallback.Namespace, reads []fallback.Read) ([]fallback.State, error) {
	states := n.Verify(ctx, reads)
	for _, s := range states {
		if s.Err != nil {
			return nil, s.Err
		}
	}
	return states, nil
}
