package guardians

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/internal/guard"
)

// Vote is a guardian's word that a session is dead, for one version of its guardians.
type Vote struct {
	Ward  string
	Voter string
	Set   Set // with Voter as a member
}

// Burial is a request to the arbiter to bury a session.
type Burial struct {
	Ward    string
	Version uint32
	Voters  []string
}

// Guardian is the record of a node's promises to other sessions, and of the votes that it knows.
type Guardian struct {
	me      string
	promise time.Duration
	wards   map[string]*charge
}

// charge is one session that the node guards, or has heard votes against.
type charge struct {
	until Instant  // the promise
	ended bool     // its process has ended, and none relies on it (G11)
	over  []string // members that have ended or died as well: they promise nothing more
	voted uint32   // the latest version that this node has voted for
	sets  []Set    // as the session told at last
	votes map[uint32][]string
	known map[uint32]Set      // of the versions in votes
	heard map[string][]uint32 // versions in votes by voter, the one that was heard last at the end
}

// A guardian remembers so many versions of each voter. Votes count for the recorded set, which is
// one of two that a session has. A guardian repeats its votes for both, so these are among the last
// that are heard of it. Others are of sets that the session has given up, or of a guardian that
// makes versions up.
const versionsOfVoter = 3

// NewGuardian returns the Guardian of a session, without promises. A process that starts again is
// another session, and begins anew: the session that had made its promises is in no set any more.
func NewGuardian(me string, t Times) *Guardian {
	return &Guardian{me: me, promise: t.Promise, wards: make(map[string]*charge)}
}

func (g *Guardian) charge(ward string) *charge {
	c := g.wards[ward]
	if c == nil {
		c = &charge{votes: make(map[uint32][]string), known: make(map[uint32]Set), heard: make(map[string][]uint32)}
		g.wards[ward] = c
	}
	return c
}

// Pinged takes a ping of a session and promises that this node will not vote for D (G2). now has to
// be read after the ping was received. This node never promises again for a version that it has
// voted for: the answer names the last one (G5).
func (g *Guardian) Pinged(ward string, p Ping, now Instant) Pong {
	c := g.charge(ward)
	c.until, c.sets = max(c.until, now+g.promise), p.Sets
	return Pong{Seq: p.Seq, Voted: c.voted}
}

// Next returns when the first promise passes, or Forever: Look is to be called then.
func (g *Guardian) Next() Instant {
	next := Forever
	for _, c := range g.wards {
		if len(g.due(c)) > 0 {
			next = min(next, c.promised())
		}
	}
	return next
}

// promised is when this node may vote.
func (c *charge) promised() Instant {
	if c.ended {
		return 0
	}
	return c.until
}

// Guards reports whether a session has told of a set with this node.
func (g *Guardian) Guards(ward string) bool {
	c := g.wards[ward]
	return c != nil && slices.ContainsFunc(c.sets, func(s Set) bool { return slices.Contains(s.Members, g.me) })
}

// Ended is told that a session's process has ended, and that no other session relies on it: the
// promise binds this node no more. over says which sessions have ended as well, or are dead at the
// arbiter: those of them that are guardians count as having voted (G11). To be told again may make
// them more.
func (g *Guardian) Ended(ward string, over func(session string) bool) {
	c := g.wards[ward]
	if c == nil {
		return
	}
	c.ended = true
	for _, s := range c.sets {
		for _, member := range s.Members {
			if member != g.me && over(member) && !slices.Contains(c.over, member) {
				c.over = append(c.over, member)
			}
		}
	}
}

// voters returns the votes for a version.
func (c *charge) voters(version uint32) []string {
	all := slices.Clone(c.votes[version])
	for _, member := range c.known[version].Members {
		if slices.Contains(c.over, member) && !slices.Contains(all, member) {
			all = append(all, member)
		}
	}
	return all
}

// due returns the sets that this node may vote for once its promise has passed.
func (g *Guardian) due(c *charge) (sets []Set) {
	for _, s := range c.sets {
		if s.Version > c.voted && slices.Contains(s.Members, g.me) {
			sets = append(sets, s)
		}
	}
	return sets
}

// Look returns this node's votes against all sessions with promises that have passed (G5). They are
// to be sent to the other members of their sets, and count here already.
func (g *Guardian) Look(now Instant) (votes []Vote) {
	for _, ward := range slices.Sorted(maps.Keys(g.wards)) {
		c := g.wards[ward]
		if now < c.promised() && guard.VoteLate {
			continue
		}
		if len(g.due(c)) == 0 && c.voted == 0 && len(c.votes) == 0 {
			delete(g.wards, ward) // it is another's ward now, and there is nothing to remember
		}
		for _, s := range g.due(c) {
			v := Vote{Ward: ward, Voter: g.me, Set: s}
			votes = append(votes, v)
			c.add(v)
		}
		for _, v := range votes {
			if v.Ward == ward {
				c.voted = max(c.voted, v.Set.Version)
			}
		}
	}
	return votes
}

// Standing returns this node's votes against sessions that have not been heard of since, those that
// Look has just returned among them. They are to be sent again, as messages get lost, until the
// sessions are forgotten. A session may have died while it changed its set: then it is not known
// here which version is recorded, and there is a vote for each that it has told of. A session that
// has told of a later set, with this node in it, and with some of its promise left, lives.
func (g *Guardian) Standing() (votes []Vote) {
	for _, ward := range slices.Sorted(maps.Keys(g.wards)) {
		c := g.wards[ward]
		if len(g.due(c)) > 0 {
			continue
		}
		for _, set := range c.sets { // the recorded one is among them
			if slices.Contains(c.votes[set.Version], g.me) {
				votes = append(votes, Vote{Ward: ward, Voter: g.me, Set: set})
			}
		}
	}
	return votes
}

// Resumed is to be called where this node has stood still: pings may have come that it has not read
// yet. It votes against no session for a while.
func (g *Guardian) Resumed(now Instant, while time.Duration) {
	for _, c := range g.wards {
		c.until = max(c.until, now+while)
	}
}

// Heard takes another guardian's vote, from that guardian itself. A member of the set that never
// was pinged waits for D before it votes as well.
func (g *Guardian) Heard(v Vote, now Instant) {
	if !slices.Contains(v.Set.Members, v.Voter) {
		return
	}
	c := g.charge(v.Ward)
	if c.sets == nil && slices.Contains(v.Set.Members, g.me) {
		c.until, c.sets = now+g.promise, []Set{v.Set}
	}
	c.add(v)
}

func (c *charge) add(v Vote) {
	if voters := c.votes[v.Set.Version]; !slices.Contains(voters, v.Voter) {
		c.votes[v.Set.Version], c.known[v.Set.Version] = append(voters, v.Voter), v.Set
	}
	heard := slices.DeleteFunc(c.heard[v.Voter], func(version uint32) bool { return version == v.Set.Version })
	c.heard[v.Voter] = append(heard, v.Set.Version)
	if len(heard) == versionsOfVoter {
		c.drop(v.Voter)
	}
}

// drop forgets one version of a voter: that which was heard first, and is none that the session has
// told of at last.
func (c *charge) drop(voter string) {
	heard := c.heard[voter]
	i := slices.IndexFunc(heard, func(version uint32) bool {
		return !slices.ContainsFunc(c.sets, func(s Set) bool { return s.Version == version })
	})
	version := heard[i] // there is one, as a session tells of two
	c.heard[voter] = slices.Delete(heard, i, i+1)
	c.votes[version] = slices.DeleteFunc(c.votes[version], func(name string) bool { return name == voter })
	if len(c.votes[version]) == 0 {
		delete(c.votes, version)
		delete(c.known, version)
	}
}

// Burials returns the burials with enough votes (G6). It returns the same again until the session
// is forgotten. Those for a set that the session has told of come first: a member that makes
// versions up is in the way of none of them. In each part the earliest version comes first, as the
// answer to it tells the recorded one.
func (g *Guardian) Burials() (all []Burial) {
	for ward, c := range g.wards {
		for version, set := range c.known {
			voters := c.voters(version)
			if _, need := Quorum(len(set.Members)); len(voters) >= need {
				all = append(all, Burial{ward, version, voters})
			}
		}
	}
	slices.SortFunc(all, func(a, b Burial) int {
		return cmp.Or(cmp.Compare(a.Ward, b.Ward), cmp.Compare(g.rank(a), g.rank(b)), cmp.Compare(a.Version, b.Version))
	})
	return all
}

// rank is 0 of a burial for a set that the session has told of, and 1 of another one.
func (g *Guardian) rank(b Burial) int {
	if slices.ContainsFunc(g.wards[b.Ward].sets, func(s Set) bool { return s.Version == b.Version }) {
		return 0
	}
	return 1
}

// Outdated forgets the votes for versions before the recorded one, which an answer to a burial
// tells. This node's own votes bind it still.
func (g *Guardian) Outdated(ward string, recorded uint32) {
	if c := g.wards[ward]; c != nil {
		maps.DeleteFunc(c.votes, func(version uint32, _ []string) bool { return version < recorded })
		maps.DeleteFunc(c.known, func(version uint32, _ Set) bool { return version < recorded })
		for voter, heard := range c.heard {
			c.heard[voter] = slices.DeleteFunc(heard, func(version uint32) bool { return version < recorded })
		}
	}
}

// Forget drops a session that the arbiter has said is dead. Its ID is never used again.
func (g *Guardian) Forget(ward string) { delete(g.wards, ward) }

// Needed reports whether a session may need this node's vote yet: its last ping names a set with
// this node, or this node has voted against it, and it is not forgotten.
func (g *Guardian) Needed() bool {
	for _, c := range g.wards {
		if len(g.due(c)) > 0 || slices.ContainsFunc(c.sets, func(s Set) bool { return slices.Contains(c.votes[s.Version], g.me) }) {
			return true
		}
	}
	return false
}

// Promised returns the sessions that this node guards, with the end of its promise to each.
func (g *Guardian) Promised() map[string]Instant {
	all := make(map[string]Instant, len(g.wards))
	for ward, c := range g.wards {
		if len(c.sets) > 0 {
			all[ward] = c.until
		}
	}
	return all
}
