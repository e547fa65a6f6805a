package redisarbiter_test

import (
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/takes"
)

// Stories are sequences of moves that random choices hardly ever make. Each is a move as well, so
// that others come before and after it, and then some of its steps may be left out.

var stories = []struct {
	name string
	move move
}{
	{"a waiter that was woken does not come", inOrder(locks("a", "k"), locks("b", "k"), locks("c", "k"), unlocks("a", "k"), promisedLate(0), locks("c", "k"), locks("b", "k"))},
	{"the clock steps back in a promise", inOrder(locks("a", "k"), locks("b", "k"), unlocks("a", "k"), promisedLate(100*time.Hour), locks("c", "k"), locks("b", "k"))},
	{"the clock steps back in one's own promise", inOrder(locks("a", "k"), locks("b", "k"), unlocks("a", "k"), promisedLate(100*time.Hour), unlocks("c", "k"))},
	{"one that is promised the key loses its place", inOrder(locks("a", "k"), locks("b", "k"), unlocks("a", "k"), writes("c", "k"), locks("a", "k"), locks("b", "k"))},
	{"a waiter has the row already", inOrder(locks("a", "k"), locks("b", "k"), writes("b", "k"), locks("b", "k"))},
	{"a lock is downgraded before those that wait", inOrder(locks("a", "k"), locks("b", "k"), locks("a", downgraded), unlocks("a", "k"), reads)},
	{"readers come one after another", inOrder(locks("a", "k"), locks("b", read1), locks("c", read2), locks("a", read3), reads, unlocks("a", "k"), locks("b", read1), locks("c", read2), reads)},
	{"another hold is evicted than the one of the name", inOrder(writes("a", read1), writes("b", two3), locks("c", read1, "b"))},
	{"a hold is evicted that is in the way of the request before", inOrder(locks("a", read1), locks("a", "k"), locks("b", read2, "a"), reads)},
	{"one that waited is granted before the others", inOrder(locks("a", "k"), locks("b", downgraded), unlocks("a", "k"), writes("b", "k"), locks("b", downgraded), locks("c", "k"), reads)},
	{"names of a later version", pairs(malformed)},
	{"permits of other numbers", inOrder(locks("a", fallback.PermitsName("k", 1, 2, "1")), each(malformed))},
	{"a lock behind a reader", inOrder(locks("a", read1), locks("b", "k"))},
	{"numbers are used up", inOrder(exhausts, locks("a", "k"))},
	{"a block of another number", inOrder(locks("a", fallback.BlockName("k", 2, 3, "1", 1)), locks("b", "k"), locks("a", fallback.BlockName("k", 1, 4, "1", 1)), reads)},
	{"permits that do not fit together", inOrder(locks("a", one3), locks("b", two3), locks("c", fallback.PermitsName("k", 1, 3, "4")))},
	{"permits behind a reader and permits of another number", inOrder(writes("a", read1), writes("b", fallback.PermitsName("k", 1, 2, "3")), locks("c", one3))},
	{"an unlock sees another server", inOrder(locks("a", "k"), moved(0), unlocks("a", "k"))},
	{"an unlock in Grace", inOrder(locks("a", "k"), locks("b", "k"), moved(0), unlocks("a", "k"))},
	{"an unlock under an owner", inOrder(locks("a", "k"), locks("b", "k"), acquires("c"), unlocks("a", "k"))},
	{"a witness in Grace", inOrder(moved(0), locks("a", "k"), graceEnds(0, 30*time.Minute), witnesses(1, 7))},
	{"a witness of an epoch that cannot be", inOrder(witnesses(1<<31, 7))},
	{"a witness of a later number", inOrder(locks("a", "k"), witnesses(0, 7))},
	{"the server takes another name in Grace", inOrder(moved(0), locks("a", "k"), renamed(0), locks("a", "k"))},
	{"the clock steps back in Grace", inOrder(moved(0), locks("a", "k"), graceEnds(0, 100*time.Hour), locks("a", "k"))},
	{"Grace ends for many", inOrder(moved(0), moved(1), (*twins).readsMany, graceEnds(0, 0), graceEnds(1, 0), (*twins).readsMany)},
	{"Grace ends for one of many", inOrder(moved(0), moved(1), (*twins).readsMany, graceEnds(1, 0), (*twins).readsMany)},
	{"the clock steps back in many Graces", inOrder(moved(0), moved(1), (*twins).readsMany, graceEnds(1, 100*time.Hour), (*twins).readsMany)},
	{"Grace ends for most", inOrder(moved(0), moved(1), (*twins).readsMost, graceEnds(0, 0), graceEnds(1, 0), (*twins).readsMost)},
	{"Grace ends for one of most", inOrder(moved(0), moved(1), (*twins).readsMost, graceEnds(1, 0), (*twins).readsMost)},
	{"the clock steps back in Grace of most", inOrder(moved(0), moved(1), (*twins).readsMost, graceEnds(1, 100*time.Hour), (*twins).readsMost)},
	{"most have been at another server", inOrder(acquires("a"), (*twins).readsMost, moved(0), (*twins).readsMost)},
	{"maxmemory: read of most", inOrder(acquires("a"), afterFailover((*twins).readsMost))},
	{"nobody owns what is revoked", inOrder(locks("a", "k"), (*twins).revokeOwner)},
	{"a revocation sees another server", inOrder(acquires("a"), moved(0), (*twins).revokeOwner)},
	{ballot, buries},
	{"one that has expired is buried", inOrder(opens("a"), expires("a", -time.Second), (*twins).buryUnseen)},
	{"there are no secrets", inOrder(opens("a"), (*twins).losesSecrets, renews("a"))},
	{"one that was buried is told in Grace", inOrder(buried, asks("a", "b", 0), (*twins).list, (*twins).changeSessionsServer, (*twins).list, renews("a"), expires("a", -3*time.Hour), sessionsGraceEnds(-1), (*twins).list)},
	{"a session expires", inOrder(opens("a"), opens("b"), asks("a", "b", 0), expires("a", -time.Second), asks("a", "b", 0), (*twins).list)},
	{"a session that expired goes when another one begins", inOrder(opens("a"), expires("a", -time.Second), opens("b"))},
	{"sessions in Grace", inOrder(opens("a"), expires("a", -time.Minute), (*twins).changeSessionsServer, (*twins).list, opens("b"), asks("a", "b", 0), expires("b", -3*time.Hour), (*twins).list)},
	{"the clock steps back for sessions", inOrder(opens("a"), expires("a", 100*time.Hour), (*twins).stored)},
	{"Grace ends once", inOrder((*twins).changeSessionsServer, sessionsGraceEnds(30*time.Minute), opens("a"), asks("b", "nobody", 50*time.Minute))},
	{"Grace of sessions that ends too late", inOrder((*twins).changeSessionsServer, sessionsGraceEnds(100*time.Hour), (*twins).list)},
	{"sessions at another server", inOrder(opens("a"), (*twins).changeSessionsServer, asks("a", "b", 0))},
	{"sessions at a server of another name", inOrder(opens("a"), (*twins).renameSessionsServer, asks("a", "b", 0))},
	{"a session closes at another server", inOrder(opens("a"), (*twins).changeSessionsServer, closes("a"))},
	{"a session begins with what it was told", inOrder(opens("a"), (*twins).opensSeen)},
	{"a longer Grace and back", inOrder(opens("a"), opens("c"), renews("a"), renews("a"), opens("c"), renews("a"), closes("c"), renews("a"), (*twins).raiseLapses, renews("a"), renews("a"), opens("b"))},
	{"a longer Grace and back in Grace", inOrder(opens("a"), opens("c"), renews("a"), renews("a"), opens("c"), renews("a"), closes("c"), (*twins).changeSessionsServer, (*twins).raiseLapses, renews("a"), opens("b"))},
	{"one that is dead needs a longer Grace", inOrder(opens("a"), renews("c"))},
	{"versions of before in a longer Grace", inOrder(opens("a"), opens("b"), opens("c"), renews("a"), renews("b"), renews("a"), renews("b"), opens("c"), closes("c"), forgetsTerms("a"), (*twins).raiseLapses, renews("b"), renews("b"))},
	{"versions of before in a namespace with a longer Grace", inOrder(formattedLonger, opens("c"), forgetsTerms("c"), opens("a"), opens("a"), renews("a"))},
	{"the table is lost when the secret changes", loses((*twins).rotate)},
	{"the table is lost when sessions are listed", loses((*twins).list)},
	{"a round begins once", inOrder(opens("a"), opens("b"), begins("a", "r1", ""), begins("b", "r2", ""), begins("b", "r2", "r1"), speaks("b", "r2"), begins("b", "r2", "r2"), speaks("a", "r1"), renews("a"))},
	{"a round is complete", inOrder(opens("a"), opens("b"), begins("a", "r1", ""), speaks("a", "r1"), speaks("a", "r1"), speaks("b", "r0"), speaks("b", "r1"), speaks("a", "r1"))},
	{"a round waits for no one that is dead", inOrder(opens("a"), opens("b"), opens("c"), begins("a", "r1", ""), speaks("a", "r1"), expires("b", -time.Second), buried, speaks("c", "r1"))},
	{"a round waits for no one that has expired", inOrder(opens("a"), opens("b"), begins("a", "r1", ""), expires("b", -time.Second), speaks("a", "r1"))},
	{"the names of sessions in a round", inOrder(opens("d"), opens("dd"), begins("dd", "r.", ""), speaks("dd", "r."), speaks("d", "r."))},
	{"a round is no other server's", inOrder(opens("a"), begins("a", "r1", ""), speaks("a", "r1"), (*twins).changeSessionsServer, renews("a"), speaks("a", "r1"))},
	{"a round is no other server's, which a version without rounds noticed", inOrder(opens("a"), begins("a", "r1", ""), speaks("a", "r1"), (*twins).roundOfBefore, speaks("a", "r1"))},
	{"a round does not end as none begins", inOrder(opens("a"), begins("a", "r1", ""), begins("a", "", "r1"), speaks("a", "r1"))},
	{"a round is not forgotten with a name", inOrder(opens("a"), begins("a", "r1", ""), (*twins).renameSessionsServer, speaks("a", "r1"))},
	{"a round in Grace of the table", inOrder((*twins).changeSessionsServer, opens("a"), begins("a", "r1", ""), speaks("a", "r1"), sessionsGraceEnds(-1), speaks("a", "r1"))},
	{"a round in Grace of a table that has all sessions", inOrder(opens("a"), opens("b"), (*twins).changeSessionsServer, begins("a", "r1", ""), speaks("a", "r1"), speaks("b", "r1"))},
	{"a round in such a Grace waits for one that has expired", inOrder(opens("a"), opens("b"), (*twins).changeSessionsServer, begins("a", "r1", ""), expires("b", -time.Second), speaks("a", "r1"), speaks("b", "r1"))},
	{"a round in such a Grace, of a table that lacks one", inOrder(opens("a"), (*twins).changeSessionsServer, begins("a", "r1", ""), speaks("a", "r1"), renews("b"), begins("a", "r2", ""), speaks("b", "r2"), speaks("a", "r2"))},
	{"a round in a Grace that the clock has shortened", inOrder(opens("a"), (*twins).changeSessionsServer, renews("a"), (*twins).stepBackSessions, begins("a", "r1", ""), speaks("a", "r1"))},
	{"a round in a second such Grace", inOrder(opens("a"), (*twins).changeSessionsServer, renews("a"), (*twins).changeSessionsServer, begins("a", "r1", ""), speaks("a", "r1"), sessionsGraceEnds(-1), speaks("a", "r1"))},
	{"a round is forgotten when it is old", inOrder(opens("a"), begins("a", "r1", ""), (*twins).roundLapses, renews("b"), speaks("a", "r1"))},
	{"a round is forgotten over older data", inOrder(opens("a"), begins("a", "r1", ""), asks("b", "nobody", 50*time.Minute), speaks("a", "r1"))},
	{"Grace ends by its name", inOrder(acquires("a"), moved(0), reads, (*twins).named, endsNamed(0), reads)},
	{"Grace without an owner ends by its name", inOrder(moved(0), moved(1), reads, endsNamed(0), reads)},
	{"Grace does not end by another name", inOrder(moved(0), moved(1), reads, endsNamed(4), reads, endsNamed(5), reads, endsNamed(6), reads)},
	{"Grace ends by its name, and the server has taken another one", inOrder(acquires("a"), moved(0), reads, endsNamed(0x20), reads)},
	{"Grace ends by its name at a server that does not tell its process", inOrder(acquires("a"), moved(0), reads, processUntold(0), (*twins).named, endsNamed(0), reads)},
	{"Grace of older data has no name", inOrder(locks("a", "k"), witnesses(1, 7), (*twins).named, endsNamed(0), reads)},
	{"older data after a Grace that ended by its name", inOrder(acquires("a"), moved(0), reads, endsNamed(0), reads, witnesses(1, 7), graceEnds(0, -1), reads, locks("b", "k"), acquires("c"), reads)},
	{"the end of Grace sees another server", inOrder(moved(0), reads, moved(0), endsNamed(0), reads)},
	{"a Grace that the clock prolonged has no name", inOrder(moved(0), reads, graceEnds(0, 100*time.Hour), reads, endsNamed(0), reads)},
	{"a lost record's Grace has a name", inOrder(loses0, reads, (*twins).named, endsNamed(0), reads)},
	{"maxmemory: end of Grace by its name", inOrder(moved(0), reads, full(endsNamed(0)), afterFailover(endsNamed(0)))},
	{"results", inOrder(loads, saves(5, "v", time.Hour), loads, saves(4, "older", time.Hour), loads, (*twins).resultExpires, saves(6, "w", time.Minute), loads)},
	{"an observer at maxmemory", inOrder(full(saves(1, "card", time.Hour)), loads)},
	{"a row without a token is not written", inOrder(acquires("a"), writesWithoutToken("b", "k"), reads)},
	{"maxmemory: unlock", inOrder(locks("a", "k"), acquires("b"), afterFailover(unlocks("a", "k")))},
	{"maxmemory: unlock of what is not there", inOrder(locks("a", "k"), afterFailover(unlocks("b", "k")))},
	{"maxmemory: unlock with waiters", inOrder(locks("a", "k"), locks("b", "k"), full(unlocks("a", "k")))},
	{"maxmemory: unlock of a reader", inOrder(locks("a", read1), locks("b", read2), full(unlocks("a", read1)))},
	{"maxmemory: restore", inOrder(acquires("a"), full(writes("b", "k")), full(writes("b", read1)))},
	{"maxmemory: demote", inOrder(acquires("a"), full((*twins).demoteOwner))},
	{"maxmemory: reclaim of an owner", inOrder(acquires("a"), moved(0), full((*twins).reclaimLater))},
	{"maxmemory: revoke", inOrder(acquires("a"), full((*twins).revokeOwner))},
	{"maxmemory: witness", inOrder(acquires("a"), full(witnesses(1, 7)))},
	{"maxmemory: verify", inOrder(acquires("a"), afterFailover(reads))},
	{"maxmemory: read of many", inOrder(acquires("a"), afterFailover((*twins).readsMany))},
	{"maxmemory: renew", inOrder(opens("a"), full(renews("a")), (*twins).changeSessionsServer, full(renews("a")))},
	{"maxmemory: dead", inOrder(opens("a"), afterFailover(asks("a", "b", 0)))},
	{"maxmemory: list", inOrder(opens("a"), full((*twins).list), afterFailover((*twins).list))},
	{"maxmemory: list when Grace has ended", inOrder(opens("a"), (*twins).changeSessionsServer, (*twins).list, sessionsGraceEnds(-1), full((*twins).list))},
	{"maxmemory: bury", inOrder(opens("a"), full(buried), afterFailover(buried))},
	{"maxmemory: close", inOrder(opens("a"), afterFailover(closes("a")))},
}

// ballot is of so many calls that it is not among the random moves.
const ballot = "a session is buried by enough of its guardians"

// TestMemoryAndRedisTellTheSameStories is for each story with nothing before it, and nothing left
// out.
func TestMemoryAndRedisTellTheSameStories(t *testing.T) {
	takes.Seconds(t)
	t.Parallel()
	x := newTwins(t, cold)
	for _, s := range stories {
		t.Run(s.name, func(t *testing.T) {
			x.deck = []move{s.move}
			x.check(t, []byte{0})
		})
	}
}
