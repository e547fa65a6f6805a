package fallback_test

import (
	"testing"

	"github.com/holdfast-go/holdfast/fallback"
)

// Reclaim by an owner: the record's epoch not above its own.
func TestReclaimOwner(t *testing.T) {
	const e = 1_000_000
	for _, tt := range []struct {
		name     string
		owner    string // in the record, at epoch e
		epoch    uint32 // reclaimed by me
		want     fallback.Verdict
		newOwner string
	}{
		{"of a later epoch, from nobody", "", e + 5, fallback.Granted, "me"},
		{"of the same epoch, from nobody", "", e, fallback.Granted, "me"},
		{"of an earlier epoch, from nobody", "", e - 1, fallback.Lost, ""},
		{"of a later epoch, from an earlier owner", "other", e + 5, fallback.Granted, "me"},
		{"of an earlier epoch, from a later owner", "other", e - 1, fallback.Lost, "other"},
		{"of what the server still has", "me", e, fallback.Granted, "me"},
		{"of an earlier ownership of my own", "me", e - 1, fallback.Lost, "me"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l := newLab(t)
			l.Owner, l.Epoch, l.Seq, l.From = tt.owner, e, 77, 3
			l.Rows = map[string]fallback.Row{"k": row("alice", 1, e-1, 1)}
			l.now.Server = "B"
			for range 2 {
				want(t, "verdict", l.ReclaimOwner(l.now, "me", tt.epoch).Verdict, tt.want)
				want(t, "owner", l.Owner, tt.newOwner)
			}
			want(t, "epoch", l.Epoch, map[bool]uint32{true: tt.epoch, false: e}[tt.want == fallback.Granted])
			want(t, "rows", len(l.Rows), 1)
			l.pass(quiet)
			want(t, "verdict after Grace", l.ReclaimOwner(l.now, "me", tt.epoch).Verdict, tt.want)
			want(t, "verdict after Grace, of a later epoch", l.ReclaimOwner(l.now, "me", l.Epoch+1).Verdict, fallback.Lost)
		})
	}
}

// Reclaim by a holder: the row's token not above its own; and if epoch(token) is above the record's
// epoch, it raises the record to it with no owner.
func TestReclaimRow(t *testing.T) {
	const e = 1_000_000
	for _, tt := range []struct {
		name       string
		was, mine  fallback.Row
		want       fallback.Verdict
		wantEpoch  uint32
		wantsOwner bool // the record still names one
	}{
		{"lost", fallback.Row{}, row("me", 1, e, 5), fallback.Granted, e, true},
		{"lost, of an earlier epoch", fallback.Row{}, row("me", 1, e-1, 5), fallback.Granted, e, true},
		{"lost, of a later epoch", fallback.Row{}, row("me", 1, e+3, 5), fallback.Granted, e + 3, false},
		{"older", row("ghost", 1, e, 4), row("me", 1, e, 5), fallback.Granted, e, true},
		{"older by an epoch", row("ghost", 1, e-1, 9), row("me", 1, e, 5), fallback.Granted, e, true},
		{"older, of a later epoch than the record's", row("ghost", 1, e, 9), row("me", 1, e+1, 1), fallback.Granted, e + 1, false},
		{"still there", row("me", 1, e, 5), row("me", 1, e, 5), fallback.Granted, e, true},
		{"newer", row("bob", 1, e, 6), row("me", 1, e, 5), fallback.Lost, e, true},
		{"newer by an epoch", row("bob", 1, e, 1), row("me", 1, e-1, 5), fallback.Lost, e, true},
	} {
		for op, reclaim := range map[string]func(*lab) fallback.Verdict{
			"ReclaimRow": func(l *lab) fallback.Verdict { return l.ReclaimRow(l.now, "k", tt.mine) },
			"Adopt":      func(l *lab) fallback.Verdict { return l.Adopt(l.now, "k", tt.mine, tt.mine.Token.Epoch()) }, // in Grace it is a reclaim
		} {
			t.Run(op+" of a row that is "+tt.name, func(t *testing.T) {
				l := newLab(t)
				l.Owner, l.Epoch = "owner", e
				if tt.was != (fallback.Row{}) {
					l.Rows = map[string]fallback.Row{"k": tt.was}
				}
				l.now.Server = "B"
				for range 2 {
					want(t, "verdict", reclaim(l), tt.want)
					want(t, "row", l.Rows["k"], map[bool]fallback.Row{true: tt.mine, false: tt.was}[tt.want == fallback.Granted])
					want(t, "epoch", l.Epoch, tt.wantEpoch)
					want(t, "owned", l.Owner != "", tt.wantsOwner)
				}
			})
		}
	}
}
