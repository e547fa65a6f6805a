package lease

import (
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/handoff"
)

// A View is a partition's knowledge of other nodes and of this one. It is looked at on slow paths
// only. The shell's is coord.view.
type View interface {
	// Session returns this node's session, nil if it has none.
	Session() *Session
	// Route returns the way to the node that should own a partition.
	Route(partition uint32) Route
	// LinkTo returns the stream to the node that has a session, nil if there is none.
	LinkTo(session string) Link
	// LinkNode returns the stream to a node, nil if there is none.
	LinkNode(name string) Link
	// Adoption returns when holds are adopted now.
	Adoption() Adoption
}

// A Route is the way of this node's callers to the keys of a partition. Its zero value is the
// arbiter.
type Route struct {
	Mine bool // this node should own the partition
	Link Link // to the node that should
}

// Known reports whether there is a way to the node that should own the partition.
func (r Route) Known() bool { return r.Mine || r.Link != nil }

// A Link is a stream to another node, with its state. Links are compared: another stream is another
// Link. The shell's is coord.link: coord/link.go, heartbeat.go and quota.go.
type Link interface {
	// Node returns the name of the other node.
	Node() string
	// Session returns the session that the other node has introduced, "" if none.
	Session() string
	// Down reports whether the stream has ended. It stays so.
	Down() bool
	// Full reports whether the other node may have no more keys of this one.
	Full() bool
	// Refuse counts a request that is refused for that.
	Refuse()
	// Use counts the keys that the other node holds or waits for.
	Use(n int)
	// Offer returns how a grant tells the other node its deadline: as the time left since a ping of
	// that node, its last one, which was heard at the time heard. left is 0 if there was no ping,
	// or if the deadline had passed by then.
	Offer(deadline time.Time) (ping, left uint32, heard time.Time)
	// Heard returns when the other node's last ping came; zero if none has.
	Heard() time.Time
	// Announced returns the owner's deadline for a hold that was granted with the deadline first,
	// when there had been so many pongs.
	Announced(first time.Time, pongs uint64) time.Time
}

// A Session is one life of this process at the arbiter.
type Session struct {
	ID      string
	expires atomic.Pointer[time.Time]
}

// NewSession returns a session that expires at a time.
func NewSession(id string, expires time.Time) *Session {
	s := &Session{ID: id}
	s.Extend(expires)
	return s
}

// Deadline returns when the session expires: T - M after the sending of the last renewal that was
// acknowledged. With guardians it is earlier if their promises pass before that (G3).
func (s *Session) Deadline() time.Time { return *s.expires.Load() }

// Extend sets the deadline.
func (s *Session) Extend(expires time.Time) { s.expires.Store(&expires) }

// A Config has the settings that all partitions of a coordinator share. It does not change.
type Config struct {
	Began      time.Time     // when moments count from
	Lease      time.Duration // T - M: how long an answer of the arbiter counts, since the request was sent
	Margin     time.Duration // M
	SessionTTL time.Duration // T
	RenewEvery time.Duration // R

	RetryEvery time.Duration

	Least time.Duration // how long a grant to another node is good at least
	Death time.Duration // how long after the last ping of a node it is known whether that is dead, if that is soon; else 0

	Handoff   handoff.Limits
	Clustered bool
	NoAnswer  error                   // why a key is not to be had that the arbiter was not asked for, or has not answered
	Full      func(node string) error // why a key is not to be had of a node that lets this one have no more
	View      View

	// Size returns why permits are not to be had of a key that is used with another number of them.
	Size func(key string, wanted, inUse uint32) error

	Requests *atomic.Uint64 // numbers of requests
	Offers   *atomic.Int64  // holds that may still be offered to their owners until the next look at the arbiter

	Sights func(Sight) // called with the partition's mutex held, in a simulation only; may be nil
}

// At returns a time as a moment.
func (c *Config) At(t time.Time) Moment { return t.Sub(c.Began) }
