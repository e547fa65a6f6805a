package takeover

import (
	"fmt"
	"math/bits"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/guardians"
)

// replay takes ways through the model at random, and leads the state machines of package guardians
// along. A step is taken in both; after it they have to agree on the promises, votes and deadlines
// of X, its guardians and Y. Versions are one higher there; a unit is a second.
type replay struct {
	t      *testing.T
	m      *Guardians
	s      guardState
	rand   *rand.Rand
	ward   *guardians.Ward
	guards [maxG]*guardians.Guardian
	others *guardians.Guardian // hears all votes
	pongs  [maxG]guardians.Pong
	named  [maxG]uint32      // the latest version in the last ping
	knows  [maxG]uint32      // in the last one that was answered
	x, g   guardians.Instant // the clocks of X and of the guardians
	shy    int               // a guardian that X seldom reaches
	log    []string
}

var guardianNames = []string{"a", "b", "c", "d"}

func members(set uint8) (names []string) {
	for j, name := range guardianNames {
		if set&(1<<j) != 0 {
			names = append(names, name)
		}
	}
	return names
}

func units(n int8) time.Duration { return time.Duration(n) * time.Second }

func newReplay(t *testing.T, m *Guardians, seed uint64) *replay {
	times := guardians.Times{Promise: units(m.D), Margin: units(m.D - m.V)}
	r := &replay{t: t, m: m, rand: rand.New(rand.NewPCG(seed, 0)), ward: guardians.NewWard(times), others: guardians.NewGuardian("others", times)}
	all := m.initial()
	r.s, r.shy = all[r.rand.IntN(len(all))], r.rand.IntN(3)
	for j, name := range guardianNames {
		r.guards[j] = guardians.NewGuardian(name, times)
	}
	r.ward.Propose(members(m.Sets[0]))
	for j := range guardianNames {
		if m.Sets[0]&(1<<j) != 0 {
			r.ping(j)
			r.ward.Promised(guardianNames[j], r.pongs[j], 0)
		}
	}
	if !r.ward.Ask(0) {
		t.Fatal("the first set cannot be asked for")
	}
	r.ward.Recorded(1, false, 0)
	r.propose()
	return r
}

func (r *replay) ping(j int) {
	p := r.ward.Ping(guardianNames[j], r.x)
	r.pongs[j], r.named[j] = r.guards[j].Pinged("X", p, r.g), p.Sets[len(p.Sets)-1].Version
}

func (r *replay) propose() {
	if next := int(r.s.conf) + 1; next < len(r.m.Sets) {
		r.ward.Propose(members(r.m.Sets[next]))
	}
}

func (r *replay) fail(format string, args ...any) {
	r.t.Helper()
	for i, line := range r.log {
		r.t.Logf("%3d. %s", i+1, line)
	}
	r.t.Fatalf(format, args...)
}

type choice struct {
	e event
	s guardState
}

func (r *replay) choices() (all []choice) {
	r.m.next(&r.s, func(e event, s guardState) { all = append(all, choice{e, s}) })
	return all
}

// step takes a step that the machines can take as well.
func (r *replay) step() {
	all := r.choices()
	asks := false
	for _, c := range all {
		asks = asks || c.e.kind == gAsk
	}
	if !asks && !r.s.gone && r.ward.Ask(r.x) {
		r.fail("the machine asks for the next version, the model does not")
	}
	c := all[r.rand.IntN(len(all))]
	for range 3 { // without this, X hardly ever gets as far as a change
		if k := c.e.kind; k != gPromise && k != gVote && k != gAsk && k != gReply && k != gSetArrives && k != gRenew && k != gPing {
			c = all[r.rand.IntN(len(all))]
		}
	}
	if c.e.kind == gPing && int(c.e.node) == r.shy && r.rand.IntN(8) > 0 { // so that it votes, while others promise
		return
	}
	if !r.follow(c) {
		return
	}
	r.s = c.s
	r.compare()
}

// follow takes a step with the machines, and reports whether they can.
func (r *replay) follow(c choice) bool {
	e, j := c.e, int(c.e.node)
	was := r.s
	switch e.kind {
	case gTick:
		r.x += units(r.m.rate(&r.s, 0))
		r.g += units(r.m.rate(&r.s, 2))
	case gPing:
		r.ping(j)
		if got, want := r.pongs[j].Voted, uint32(c.s.ackVoted[j]+1); got != want {
			r.fail("%s says that it has voted for %d, not %d", guardianNames[j], got, want)
		}
	case gPromise:
		r.ward.Promised(guardianNames[j], r.pongs[j], r.x)
		r.knows[j] = max(r.knows[j], r.named[j])
	case gAnnounce:
		lease := r.x + units(was.lease)
		bound, most := r.ward.Bound(lease, r.x)-r.x, units(r.m.announced(&was))
		switch {
		case bound > most:
			r.fail("the machine announces %v, the model %v at most", bound, most)
		case bound != units(e.n):
			return false // it announces less, so that it may ask soon
		}
		r.ward.Announce(lease, r.x)
	case gAsk:
		for j, name := range guardianNames {
			if slices.Contains(members(r.m.Sets[e.n]), name) && r.knows[j] <= uint32(e.n) {
				return false // the machine waits until each member knows the set
			}
		}
		if !r.ward.Ask(r.x) {
			r.fail("the machine does not ask for version %d", e.n)
		}
	case gSend, gRenew, gRenewOld, gRenewLate:
		if v := r.ward.Names().Version; v != uint32(e.n)+1 {
			r.fail("a renewal names version %d, not %d", v, e.n+1)
		}
		if e.kind == gRenew || e.kind == gRenewOld {
			at := c.s.at(e.kind == gRenewOld)
			r.recorded(at.ver, r.m.young(at), c.s.conf)
		}
	case gReply:
		r.recorded(e.n, e.node == 1, c.s.conf)
	case gVote:
		return r.vote(j)
	case gRestart:
		r.guards[j] = guardians.NewGuardian(guardianNames[j]+" again", guardians.Times{Promise: units(r.m.D), Margin: units(r.m.D - r.m.V)})
	}
	r.log = append(r.log, (&Result{names: r.m.names(), events: []event{e}}).Story()[0])
	return true
}

func (r *replay) recorded(version int8, soon bool, conf int8) {
	before := r.s.conf
	r.ward.Recorded(uint32(version)+1, soon, r.x)
	if conf != before {
		r.s.conf = conf
		r.propose()
	}
}

// vote makes a guardian look. It votes for all versions that it knows, and each vote is a step in
// the model.
func (r *replay) vote(j int) bool {
	for _, v := range r.guards[j].Look(r.g) {
		r.others.Heard(v, r.g)
		found := r.s.votes[v.Set.Version-1]&(1<<j) != 0
		for _, c := range r.choices() {
			if c.e.kind == gVote && int(c.e.node) == j && c.e.n == int8(v.Set.Version)-1 {
				r.s, found = c.s, true
				r.log = append(r.log, fmt.Sprintf("%c votes that version %d is dead", 'a'+j, c.e.n))
				break
			}
		}
		if !found && !r.s.gone {
			r.fail("%s votes for version %d, which it may not", guardianNames[j], v.Set.Version-1)
		}
	}
	r.compare()
	return false
}

func (r *replay) compare() {
	r.t.Helper()
	s := &r.s
	if !s.gone {
		left := min(r.m.covered(s, s.conf), never)
		if s.pend != s.conf {
			left = min(left, r.m.covered(s, s.pend))
		}
		until := r.ward.Until()
		if left == never != (until == guardians.Forever) || left != never && until-r.x != units(left) {
			r.fail("the machine says that X is valid for %v, the model for %d", until-r.x, left)
		}
		if !r.ward.Alive(r.x) {
			r.fail("the machine says that X has lapsed")
		}
	} else if s.lease > 0 && r.ward.Alive(r.x) {
		r.fail("the machine says that X is alive")
	}
	for j, g := range r.guards {
		if s.until[j] > 0 && s.lost&(1<<j) == 0 && len(g.Look(r.g)) > 0 {
			r.fail("%s votes though it has promised", guardianNames[j])
		}
	}
	for v, set := range r.m.Sets {
		_, e := guardians.Quorum(bits.OnesCount8(set))
		enough := set != 0 && bits.OnesCount8(s.votes[v]) >= e
		got := false
		for _, b := range r.others.Burials() {
			got = got || b.Version == uint32(v)+1
		}
		if got && !enough {
			r.fail("the machines would bury version %d, the model would not", v)
		}
	}
	// The model permits all that the machines do: if X is dead there, it does not rely on itself
	// here.
	if s.taken && !s.gone && r.ward.Alive(r.x) && s.lease > 0 {
		r.fail("X is dead, and the machine says that it is alive")
	}
}

// TestReplay_MachinesDoAsTheModel takes ways at random through the model.
func TestReplay_MachinesDoAsTheModel(t *testing.T) {
	walks, seed := 600, rand.Uint64()
	if testing.Short() {
		walks = 100
	}
	t.Logf("seed %d", seed)
	steps, votes, changes, announced := 0, 0, 0, 0
	for i := range walks {
		all := []*Guardians{
			bounds(a, b, a), bounds(0, a, 0), bounds(a, a|b, b), bounds(a|b|c, b|c|d).with(0, 1, allRates),
			bounds(a, b, 0).with(1, 0, allRates), bounds(a, b, 0).with(1, 0, allRates).answering(1), bounds(a|b, a|b, a|b), quarter(a, a|b|c),
		}
		r := newReplay(t, all[i%len(all)], seed+uint64(i))
		for range 150 {
			r.step()
			if r.s.gone && r.s.y == 0 {
				break
			}
		}
		steps += len(r.log)
		for v := range r.s.votes {
			votes += bits.OnesCount8(r.s.votes[v])
		}
		changes += int(r.s.conf)
		if r.s.ann > 0 {
			announced++
		}
	}
	t.Logf("%d steps, %d votes, %d changes of the set, %d ended with an announcement", steps, votes, changes, announced)
	if votes == 0 || changes == 0 || announced == 0 {
		t.Error("the ways lead nowhere")
	}
}
