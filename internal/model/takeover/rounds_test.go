package takeover

import (
	"testing"

	"github.com/holdfast-go/holdfast/internal/takes"
)

func rounds(failovers, tables uint8, begun int8) *Rounds {
	return &Rounds{T: 2, Q: 4, Delta: 1, Failovers: failovers, Tables: tables, Begun: begun, Limit: 3_000_000}
}

// finer has two ticks in delta, and as many in M: else a deposed table says that a session is dead
// that has renewed at the other.
func finer(failovers, tables uint8, begun int8) *Rounds {
	m := rounds(failovers, tables, begun)
	m.T, m.M, m.Q, m.Delta = 4, 2, 6, 2
	return m
}

// asking has no round, and Z may ask a deposed table.
func asking() *Rounds {
	m := finer(0, 1, 0)
	m.Asks = true
	return m
}

// replicated has one server, and all its replicas have each change of a session before it counts.
func replicated(failovers uint8) *Rounds {
	m := rounds(failovers, failovers, 2)
	m.Replicated = true
	return m
}

// opened has one server, and all its replicas have each opening of a session before it counts.
func opened(failovers uint8, restarts bool) *Rounds {
	m := rounds(failovers, failovers, 2)
	m.Opened, m.Restarts = true, restarts
	return m
}

// openedApart has two servers, and all replicas of the table's have each opening of a session
// before it counts.
func openedApart(m *Rounds) *Rounds {
	m.Opened, m.Apart = true, true
	return m
}

// openedMoves is openedApart, and the table's slot moves once.
func openedMoves(m *Rounds) *Rounds {
	m.TableMoves = 1
	return openedApart(m)
}

// backup has one server like that, and a backup that is restored.
func backup(failovers uint8, begun int8) *Rounds {
	m := opened(failovers, false)
	m.Backups, m.Begun = 1, begun
	return m
}

// rows has an owner that may give the partition back, to the deposed server, too, while its own
// caller holds the key.
func rows(tables uint8, begun int8) *Rounds {
	m := rounds(1, tables, begun)
	m.Rows = true
	return m
}

// TestRounds_AreSafe: rounds make no second owner, and no second holder of a key.
func TestRounds_AreSafe(t *testing.T) {
	moved := rounds(1, 0, 2)
	moved.Moves = 1
	older := rounds(1, 1, 1)
	older.Older = true
	for _, tt := range []struct {
		name string
		m    *Rounds
	}{
		{"the partition's server fails over", rounds(1, 0, 2)},
		{"twice", rounds(2, 0, 2)},
		{"and its slot moves", moved},
		{"both servers fail over", rounds(1, 1, 2)},
		{"both servers fail over; two ticks in delta", finer(1, 1, 1)},
		{"both, and X never speaks", older},
		{"the table's server fails over, without rounds, and the deposed one says who is dead", asking()},
		{"all replicas have the sessions", replicated(1)},
		{"all replicas have the sessions; twice", replicated(2)},
		{"all replicas have each opening", opened(1, false)},
		{"all replicas have each opening, and so has the disk", opened(1, true)},
		{"all replicas have each opening, and so has the disk; twice", opened(2, true)},
		{"all replicas have each opening, and a backup is restored", backup(0, 2)},
		{"all replicas have each opening, a backup is restored, and a failover", backup(1, 2)},
		{"all replicas of the table's server have each opening, and both servers fail over", openedApart(rounds(1, 1, 2))},
		{"all replicas of the table's server have each opening, and both servers fail over; two ticks in delta", openedApart(finer(1, 1, 1))},
		{"all replicas of the table's server have each opening, both servers fail over, and the owner gives the partition back", openedApart(rows(1, 1))},
		{"all replicas of the table's server have each opening, its slot moves, and both servers fail over", openedMoves(rounds(1, 1, 1))},
		{"the owner gives the partition back", rows(0, 2)},
		{"both servers fail over, and the owner gives the partition back", rows(1, 1)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if tt.m.Failovers > 1 || tt.m.Tables > 0 {
				takes.Seconds(t)
			}
			holds(t, tt.m.Explore(), true)
		})
	}
}

// TestRounds_EachGuardPrevents takes each guard away. Its rule is named beside it.
func TestRounds_EachGuardPrevents(t *testing.T) {
	takes.Seconds(t)
	for _, tt := range []struct {
		off   RoundGuard
		in    *Rounds
		steps int
	}{
		{RoundUnique, rounds(1, 1, 2), 11},     // E1
		{SightedBefore, rounds(2, 0, 2), 12},   // E2
		{EndNamed, rounds(2, 0, 1), 11},        // E5
		{RoundOld, rounds(1, 0, 1), 13},        // E3
		{AnswersIn, rounds(1, 0, 1), 14},       // E3
		{PassReclaims, rounds(1, 0, 1), 13},    // E3
		{PassWaits, rounds(1, 0, 1), 15},       // E3
		{EachSpoke, rounds(1, 0, 1), 9},        // E4
		{CompleteOld, rounds(1, 0, 1), 8},      // E4
		{TableOutOfGrace, rounds(1, 1, 1), 10}, // E4
		{NewcomerWaits, finer(1, 1, 1), 11},    // E6
		{NewcomerWaits, asking(), 4},           // E6
		{PrimarySilent, rounds(1, 0, 1), 8},
		{RoundOld, replicated(1), 13},
		{AnswersIn, replicated(1), 14},
		{EachSpoke, replicated(1), 9},
		{CompleteOld, replicated(1), 8},
		{OpenedAtAll, opened(1, false), 9}, // E7
		{OpenedOnDisk, opened(1, true), 9}, // E7
		{RoundOld, opened(1, false), 13},
		{AnswersIn, opened(1, false), 14},
		{EachSpoke, opened(1, false), 9},
		{Unexpired, opened(1, false), 9}, // E7
		{OpenedAtAll, openedApart(rounds(1, 1, 1)), 10},
		{Unexpired, openedApart(rounds(1, 1, 1)), 10},
		{NewcomerWaits, openedApart(finer(1, 1, 1)), 11},
		{LostLacks, openedMoves(rounds(1, 1, 1)), 11},   // E8
		{MovedInStep, openedMoves(rounds(1, 1, 1)), 11}, // E7: for operators
		{Missing, backup(0, 1), 10},                     // E8
		{Chained, backup(1, 1), 11},                     // E8
		{PassWhole, rows(0, 1), 14},                     // E3
		{PassOld, rounds(2, 0, 1), 15},                  // E3
		{PassOld, opened(2, false), 15},
	} {
		t.Run(tt.off.String(), func(t *testing.T) {
			t.Parallel()
			if tt.in.Failovers > 1 && tt.steps > 14 {
				takes.Seconds(t)
			}
			tt.in.Without = tt.off
			breaks(t, tt.in.Explore(), tt.steps)
		})
	}
}
