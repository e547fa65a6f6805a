package fallback_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/fallback"
)

// ttl is T in these tests, in milliseconds.
const ttl = 10_000

// registry is a table of sessions with the world around it.
type registry struct {
	*fallback.Sessions
	now fallback.Moment
}

// newRegistry returns a formatted table that is not in Grace.
func newRegistry() *registry {
	r := &registry{Sessions: new(fallback.Sessions)}
	r.now = fallback.Moment{Now: 1_800_000_000_000, Server: "A", Grace: quiet.Milliseconds()}
	r.Mark(r.now, "mark", 0)
	return r
}

func (r *registry) pass(d time.Duration) { r.now.Now += d.Milliseconds() }

func (r *registry) open(id string) fallback.Renewal {
	a, _ := r.Open(r.now, id, ttl, "addr of "+id)
	return a
}

func (r *registry) renew(id string) fallback.Renewal {
	a, _ := r.Renew(r.now, id, ttl, "addr of "+id)
	return a
}

func (r *registry) dead(id string) fallback.Liveness { return r.Dead(r.now, id) }

var isDead = fallback.Liveness{Dead: true}

// I3, the arbiter's half: a session lives until its time is over by the arbiter's clock, and not a
// moment longer.
func TestSessionLivesForItsTime(t *testing.T) {
	r := newRegistry()
	want(t, "Dead of what was never opened", r.dead("a"), isDead)
	want(t, "Open", r.open("a"), fallback.Renewal{Alive: true, Server: "A", Sessions: 1})
	want(t, "Dead", r.dead("a"), fallback.Liveness{Left: ttl * time.Millisecond})
	r.pass(ttl*time.Millisecond - time.Millisecond)
	want(t, "Dead at the last moment", r.dead("a"), fallback.Liveness{Left: time.Millisecond})
	r.pass(time.Millisecond)
	want(t, "Dead after it", r.dead("a"), isDead)
}

func TestRenewalCountsFromNow(t *testing.T) {
	r := newRegistry()
	r.open("a")
	for range 5 {
		r.pass(ttl*time.Millisecond - time.Millisecond)
		want(t, "Renew", r.renew("a"), fallback.Renewal{Alive: true, Server: "A", Sessions: 1})
		want(t, "Dead", r.dead("a"), fallback.Liveness{Left: ttl * time.Millisecond})
	}
	want(t, "Open of what exists", r.open("a").Alive, true)
	a, _ := r.Renew(r.now, "a", 2*ttl, "addr of a")
	want(t, "Renew for longer", a.Alive, true)
	want(t, "Dead", r.dead("a").Left, 2*ttl*time.Millisecond)
}

// Outside Grace nothing brings a session back.
func TestSessionThatExpiredIsDeadForEver(t *testing.T) {
	r := newRegistry()
	r.open("a")
	r.pass(ttl * time.Millisecond)
	for range 3 {
		want(t, "Renew", r.renew("a"), fallback.Renewal{Server: "A"})
		want(t, "Open", r.open("a"), fallback.Renewal{Server: "A"})
		want(t, "Dead", r.dead("a"), isDead)
		r.pass(time.Hour)
	}
	r.open("b") // sweeps it
	want(t, "members", len(r.Members), 1)
	want(t, "Renew", r.renew("a"), fallback.Renewal{Server: "A"})
	want(t, "Dead", r.dead("a"), isDead)
}

func TestOpenSweepsOnlyTheDead(t *testing.T) {
	r := newRegistry()
	r.open("dead")
	r.pass(time.Millisecond)
	r.open("alive")
	r.pass(ttl*time.Millisecond - time.Millisecond)
	r.open("new")
	want(t, "members", len(r.Members), 2)
	want(t, "the one with a millisecond left", r.dead("alive"), fallback.Liveness{Left: time.Millisecond})

	r.now.Server = "B" // in Grace no session is dead
	r.pass(time.Hour)
	r.open("newer")
	want(t, "members", len(r.Members), 3)
}

func TestClosedSessionIsDead(t *testing.T) {
	r := newRegistry()
	r.open("a")
	r.open("b")
	for range 2 {
		r.CloseSession(r.now, "a")
		want(t, "Dead", r.dead("a"), isDead)
		want(t, "Renew", r.renew("a").Alive, false)
	}
	want(t, "Dead of another", r.dead("b").Dead, false)
}

// I7: in Grace there is no death verdict.
func TestNobodyIsDeadInGrace(t *testing.T) {
	r := newRegistry()
	r.open("alive")
	r.open("expires")
	r.now.Server = "B"
	r.pass(time.Millisecond)
	for _, step := range []time.Duration{0, quiet - time.Millisecond} {
		r.pass(step)
		for _, session := range []string{"alive", "expires", "nobody"} {
			want(t, "Dead of "+session, r.dead(session), fallback.Liveness{Grace: quiet - step})
		}
		want(t, "Grace by List", r.List(r.now).Grace, quiet-step)
	}
	want(t, "Renew", r.renew("alive"), fallback.Renewal{Alive: true, Server: "B", Grace: time.Millisecond, Sessions: 2})
	r.pass(time.Millisecond)
	want(t, "Grace by List after Grace", r.List(r.now).Grace, 0)
	want(t, "Dead after Grace, of who renewed", r.dead("alive"), fallback.Liveness{Left: ttl*time.Millisecond - time.Millisecond})
	want(t, "Dead after Grace, of who did not", r.dead("expires"), isDead)
	want(t, "Dead after Grace, of nobody", r.dead("nobody"), isDead)
}

func TestRenewRecreatesInGrace(t *testing.T) {
	r := newRegistry()
	r.open("expired")
	r.pass(ttl * time.Millisecond)
	r.now.Server = "B"
	for i, session := range []string{"expired", "lost"} {
		want(t, "Renew of "+session, r.renew(session), fallback.Renewal{Alive: true, Server: "B", Grace: quiet, Sessions: 1 + i, Missed: session == "lost"})
	}
	want(t, "Open", r.open("new"), fallback.Renewal{Alive: true, Server: "B", Grace: quiet, Sessions: 3})
	want(t, "Open of what exists", r.open("lost"), fallback.Renewal{Alive: true, Server: "B", Grace: quiet, Sessions: 3})
	for _, session := range []string{"expired", "lost", "new"} {
		want(t, "Info of "+session, r.Members[session].Info, "addr of "+session)
	}
	r.CloseSession(r.now, "new")
	want(t, "members", len(r.Members), 2)
}

func TestEveryOperationOnSessionsNoticesAnotherServer(t *testing.T) {
	for name, run := range map[string]func(r *registry){
		"Open":         func(r *registry) { r.open("x") },
		"Open again":   func(r *registry) { r.open("a") },
		"Renew":        func(r *registry) { r.renew("a") },
		"Dead":         func(r *registry) { r.dead("a") },
		"List":         func(r *registry) { r.List(r.now) },
		"CloseSession": func(r *registry) { r.CloseSession(r.now, "x") },
		"Mark":         func(r *registry) { r.Mark(r.now, "", 0) },
	} {
		r := newRegistry()
		r.open("a")
		for i, server := range []string{"B", "A"} {
			r.now.Server = server
			r.pass(time.Second)
			run(r)
			want(t, fmt.Sprintf("%s: end of Grace %d", name, i), r.GraceEnd, r.now.Now+r.now.Grace)
		}
		r.pass(quiet - time.Millisecond)
		run(r)
		want(t, name+": in Grace at the last moment", r.GraceEnd != 0, true)
		r.pass(time.Millisecond)
		run(r)
		want(t, name+": in Grace after it", r.GraceEnd != 0, false)
	}
}

func TestClockThatStepsBackProlongsNothing(t *testing.T) {
	r := newRegistry()
	r.now.Server = "B"
	r.open("a")
	r.pass(-time.Hour)
	want(t, "Grace", r.renew("b").Grace, quiet)
	r.pass(quiet)
	want(t, "Grace, Q later", r.renew("b").Grace, 0)

	r = newRegistry()
	r.open("a")
	r.pass(-time.Hour)
	want(t, "Dead", r.dead("a"), fallback.Liveness{Left: ttl * time.Millisecond})
	r.pass(ttl * time.Millisecond)
	want(t, "Dead, T later", r.dead("a"), isDead)
}

// The format mark and the sessions are lost or kept as one.
func TestTableThatIsLost(t *testing.T) {
	r := newRegistry()
	r.open("a")
	*r.Sessions = fallback.Sessions{}
	if a, ok := r.Open(r.now, "b", ttl, ""); ok || a != (fallback.Renewal{}) {
		t.Errorf("Open: got %+v, %t, want that the table is lost", a, ok)
	}
	if a, ok := r.Renew(r.now, "a", ttl, ""); ok || a != (fallback.Renewal{}) {
		t.Errorf("Renew: got %+v, %t, want that the table is lost", a, ok)
	}
	want(t, "Dead, for Grace is about to begin", r.dead("a"), fallback.Liveness{Grace: quiet})
	want(t, "List, likewise", r.List(r.now), fallback.Listing{Sessions: map[string]string{}, Grace: quiet})
	r.CloseSession(r.now, "a")
	want(t, "table", *r.Sessions, fallback.Sessions{})
}

func TestFirstMarkWins(t *testing.T) {
	r := &registry{Sessions: new(fallback.Sessions), now: newRegistry().now}
	want(t, "mark", r.Mark(r.now, "first", 5000), "first")
	want(t, "mark", r.Mark(r.now, "second", 0), "first")
	want(t, "Dead", r.dead("a"), fallback.Liveness{Grace: 5 * time.Second})
	want(t, "Renew", r.renew("a").Alive, true)
	r.pass(5 * time.Second)
	want(t, "Dead, when that Grace is over", r.dead("nobody"), isDead)

	r = &registry{Sessions: new(fallback.Sessions), now: r.now}
	r.Mark(r.now, "mark", time.Hour.Milliseconds())
	want(t, "Grace, of Q at most", r.dead("a").Grace, quiet)
}

func TestCloneOfSessionsSharesNothing(t *testing.T) {
	r := newRegistry()
	r.open("a")
	c := r.Clone()
	r.open("b")
	r.CloseSession(r.now, "a")
	want(t, "members of the copy", len(c.Members), 1)
	want(t, "Dead in the copy", c.Dead(r.now, "a").Dead, false)
}

// A server started from a copy of the data is in Grace, and knows sessions of another day.
func TestListInGraceLeavesOutTheLongExpired(t *testing.T) {
	r := newRegistry()
	r.open("long expired")
	r.pass(10 * time.Millisecond)
	r.open("just within")
	r.pass(ttl*time.Millisecond + quiet - 10*time.Millisecond)
	r.now.Server = "B"
	if l := r.List(r.now); len(l.Sessions) != 1 || l.Sessions["just within"] == "" || l.Grace != quiet {
		t.Errorf("listed: %v", l)
	}
	want(t, "members", len(r.Members), 2)
	r.renew("long expired")
	want(t, "listed, once it has renewed", len(r.List(r.now).Sessions), 2)
}

func TestListSweeps(t *testing.T) {
	r := newRegistry()
	r.open("expired")
	r.pass(ttl * time.Millisecond / 2)
	r.open("alive")
	r.pass(ttl * time.Millisecond / 2)
	if l := r.List(r.now); len(l.Sessions) != 1 || l.Sessions["alive"] != "addr of alive" || l.Grace != 0 || len(r.Members) != 1 {
		t.Errorf("%v, %d are left", l, len(r.Members))
	}
	r.pass(ttl * time.Millisecond)
	r.now.Server = "B"
	if l := r.List(r.now); len(l.Sessions) != 1 || l.Grace != quiet {
		t.Errorf("in Grace nobody is dead: %v", l)
	}
}

// The table goes back to earlier data under the same identity.
func TestSessionsWitness(t *testing.T) {
	const second = 1000
	for _, x := range []struct {
		name   string
		expiry int64 // in the older data, from now on; 0: there is no entry
		seen   int64 // from now on
		back   int64 // by how much the clock was set back
		grace  bool
	}{
		{"as it was told", 8 * second, 8 * second, 0, false},
		{"older by a renewal or two", 4 * second, 8 * second, 0, false},
		{"older by more", 2 * second, 8 * second, 0, true},
		{"expired", -1, 8 * second, 0, true},
		{"missing", 0, 8 * second, 0, true},
		{"missing, and it knows to be dead", 0, 0, 0, false},
		{"missing, and it was told nothing", 0, -1 << 40, 0, false},
		{"newer, as an answer was lost", 9 * second, 6 * second, 0, false},
		{"the clock stepped back", ttl, 8 * second, ttl, false},
	} {
		t.Run(x.name, func(t *testing.T) {
			r := newRegistry()
			if r.open("other"); x.expiry != 0 {
				r.open("a")
				m := r.Members["a"]
				m.Expiry = r.now.Now + x.expiry
				r.Members["a"] = m
			}
			seen := r.now.Now + x.seen
			r.now.Now -= x.back
			r.Witness(r.now, fallback.Stamp{Session: "a", Seen: seen})
			want(t, "in Grace", r.GraceEnd == r.now.Now+r.now.Grace, x.grace)
			if x.grace {
				want(t, "Dead", r.dead("b").Dead, false)
				want(t, "alive", r.renew("a").Alive, true)
				end := r.GraceEnd
				r.pass(time.Second)
				r.Witness(r.now, fallback.Stamp{Session: "c", Seen: seen})
				want(t, "end of Grace, told again", r.GraceEnd, end)
			}
		})
	}
}
