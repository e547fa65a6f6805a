package fallback_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/fallback"
)

var trio = fallback.Guardians{Version: 3, Set: []string{"g", "h", "i"}}

// guarded returns a table with session a, which trio guards.
func guarded() *registry {
	r := newRegistry()
	r.open("a")
	r.Guard("a", trio)
	return r
}

// The arbiter buries on enough votes of the recorded set, for the recorded version (G6).
func TestBury_TakesTheRecordedVersionAndEnoughVotes(t *testing.T) {
	alive := fallback.Burial{Left: ttl * time.Millisecond, Version: 3}
	for _, c := range []struct {
		version uint32
		voters  []string
		want    fallback.Burial
	}{
		{3, []string{"g", "i"}, fallback.Burial{Dead: true}},
		{3, []string{"x", "i", "h", "g"}, fallback.Burial{Dead: true}},
		{3, []string{"g"}, alive},
		{3, []string{"g", "g"}, alive},
		{3, []string{"g", "x", "y"}, alive},
		{3, nil, alive},
		{2, []string{"g", "h", "i"}, alive},
		{4, []string{"g", "h", "i"}, alive},
		{0, []string{"g", "h", "i"}, alive},
	} {
		r := guarded()
		want(t, fmt.Sprintf("Bury(%d, %v)", c.version, c.voters), r.Bury(r.now, "a", c.version, c.voters), c.want)
		want(t, "dead", r.dead("a").Dead, c.want.Dead)
		want(t, "alive by Renew", r.renew("a").Alive, !c.want.Dead)
	}
}

func TestBury_NeverWithoutGuardians(t *testing.T) {
	r := newRegistry()
	r.open("a")
	want(t, "Bury", r.Bury(r.now, "a", 0, []string{"g", "h", "i"}).Dead, false)
	r.Guard("a", fallback.Guardians{Version: 1})
	want(t, "Bury of an empty set", r.Bury(r.now, "a", 1, []string{"g", "h", "i"}).Dead, false)
}

func TestBury_OfTheDeadIsDead(t *testing.T) {
	r := guarded()
	want(t, "Bury of what never was", r.Bury(r.now, "nobody", 3, nil), fallback.Burial{Dead: true})
	for range 2 { // a client library may retry
		want(t, "Bury", r.Bury(r.now, "a", 3, trio.Set), fallback.Burial{Dead: true})
	}
	r = guarded()
	r.pass(ttl * time.Millisecond)
	want(t, "Bury of what has expired", r.Bury(r.now, "a", 3, nil), fallback.Burial{Dead: true})
}

// I7: no session is buried in Grace, nor in a table that is lost.
func TestBury_NeverInGrace(t *testing.T) {
	r := guarded()
	r.now.Server = "B"
	want(t, "Bury", r.Bury(r.now, "a", 3, trio.Set), fallback.Burial{Grace: quiet})
	r.pass(quiet - time.Millisecond)
	want(t, "Renew", r.renew("a").Alive, true)
	want(t, "Bury", r.Bury(r.now, "a", 3, trio.Set), fallback.Burial{Grace: time.Millisecond})
	r.pass(time.Millisecond)
	want(t, "Bury after Grace", r.Bury(r.now, "a", 3, trio.Set), fallback.Burial{Dead: true})

	*r.Sessions = fallback.Sessions{}
	want(t, "Bury in a lost table", r.Bury(r.now, "a", 3, trio.Set), fallback.Burial{Grace: quiet})
}

// The arbiter keeps the later version of a set (G1).
func TestGuard_VersionsOnlyRise(t *testing.T) {
	r := guarded()
	want(t, "an earlier version", r.Guard("a", fallback.Guardians{Version: 2, Set: []string{"x"}}), 3)
	want(t, "none", r.Guard("a", fallback.Guardians{}), 3)
	want(t, "the same version", r.Guard("a", fallback.Guardians{Version: 3, Set: []string{"x"}}), 3)
	r.renew("a")
	r.open("a")
	want(t, "Bury by x", r.Bury(r.now, "a", 3, []string{"x"}).Dead, false)
	want(t, "a later version", r.Guard("a", fallback.Guardians{Version: 7, Set: []string{"x"}}), 7)
	want(t, "Bury by those before", r.Bury(r.now, "a", 3, trio.Set).Dead, false)
	want(t, "Bury by x", r.Bury(r.now, "a", 7, []string{"x"}).Dead, true)
}

func TestGuardians_AreRefusedIfMalformed(t *testing.T) {
	n, err := fallback.NewMemory().Attach(t.Context(), plain)
	if err != nil {
		t.Fatal(err)
	}
	for _, g := range []fallback.Guardians{
		{Version: 1, Set: []string{"a,b"}}, {Version: 1, Set: []string{"a b"}}, {Version: 1, Set: []string{""}}, {Version: 1, Set: []string{"\x7f"}},
		{Version: 1, Set: []string{"a", "b", "a"}}, {Version: 1, Set: strings.Split("a b c d e f", " ")}, {Set: []string{"a"}},
	} {
		_, err := n.Open(t.Context(), "x", fallback.Registration{TTL: time.Hour, Guardians: g})
		if !errors.Is(err, fallback.ErrRefused) {
			t.Errorf("Open with %+v: %v", g, err)
		}
		_, err = n.Renew(t.Context(), "x", fallback.Registration{TTL: time.Hour, Guardians: g})
		if !errors.Is(err, fallback.ErrRefused) {
			t.Errorf("Renew with %+v: %v", g, err)
		}
	}
	if _, err := n.(fallback.Burier).Bury(t.Context(), "x", 1, []string{"a,b"}); !errors.Is(err, fallback.ErrRefused) {
		t.Errorf("Bury: %v", err)
	}
}

// A session that was buried and lives knows more than the table seems to: it must not take that for
// lost data, nor come back in Grace.
func TestBury_IsNoLostData(t *testing.T) {
	r := guarded()
	seen := r.now.Now + ttl
	want(t, "Bury", r.Bury(r.now, "a", 3, trio.Set).Dead, true)
	r.open("b") // sweeps
	r.pass(ttl*time.Millisecond - time.Millisecond)
	r.Witness(r.now, fallback.Stamp{Session: "a", Seen: seen})
	want(t, "Renew", r.renew("a"), fallback.Renewal{Server: "A"})
	r.now.Server = "B"
	want(t, "alive by Renew in Grace", r.renew("a").Alive, false)
	want(t, "listed", len(r.List(r.now).Sessions), 1)
	r.pass(quiet)
	r.open("c")
	_, kept := r.Members["a"]
	want(t, "kept for longer than Grace", kept, false)
}
