package guardians

import (
	"time"

	"github.com/holdfast-go/holdfast/internal/guard"
)

// Max is the most guardians that a session may have (G1).
const Max = 5

// Quorum returns how many of n guardians must promise for a session to be valid (G3), and how many
// must vote for its burial (G6). The two numbers are n+1 together, so a session that is valid can
// not be buried. A session without guardians needs no promise, and no votes bury it: votes is 1,
// which it never gets.
func Quorum(n int) (promises, votes int) {
	votes = n/2 + 1
	promises = n + 1 - votes
	if !guard.Intersect {
		votes = max(votes-1, 1)
	}
	return promises, votes
}

// Instant is a reading of a node's clock, since any moment: of the monotonic one, which stands
// still for no longer than the machine does, or a Ward's, which goes on then: see the package.
type Instant = time.Duration

// Forever is later than any reading.
const Forever Instant = 1<<63 - 1

// Times says how long promises last.
type Times struct {
	Promise time.Duration // D: a guardian does not vote for so long after a ping
	Margin  time.Duration // M_D: a promise counts so much less for the session
	Noise   time.Duration // in M_D: the ward's clock may run ahead of a deadline by so much
}

// Valid returns how long a promise counts for the session, from the sending of the ping (G2).
func (t Times) Valid() time.Duration {
	if !guard.MarginD {
		return t.Promise
	}
	return t.Promise - t.Margin
}

// MarginFor returns M_D for promises of d, where one clock may lose margin on another one within
// lease, as the session's own lease assumes. It is rounded up to milliseconds, in which deadlines
// are announced.
func MarginFor(d, lease, margin time.Duration) time.Duration {
	m := time.Duration(float64(d) * (float64(margin) / float64(lease)))
	return m.Truncate(time.Millisecond) + time.Millisecond
}
