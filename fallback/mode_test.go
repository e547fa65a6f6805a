package fallback_test

import (
	"math"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/fallback"
)

func TestNames(t *testing.T) {
	for _, key := range []string{"k", "", "\x00", "a\x00sb", "\x00\xff", "k\xff", "鍵"} {
		for name, want := range map[string]fallback.Mode{
			fallback.SharedName(key, "h"):         {Kind: fallback.Shared},
			fallback.DowngradedName(key, "h"):     {Kind: fallback.Downgraded},
			fallback.PermitsName(key, 2, 7, "h"):  {Kind: fallback.Permits, N: 2, Of: 7},
			fallback.BlockName(key, 2, 7, "h", 5): {Kind: fallback.Permits, N: 2, Of: 7, Block: "h/5"},
			fallback.BlockName(key, 1, math.MaxUint32, strings.Repeat("h", 13), 3656158440062975): {
				Kind: fallback.Permits, N: 1, Of: math.MaxUint32, Block: strings.Repeat("h", 13) + "/zzzzzzzzzz",
			},
			fallback.PermitsName(key, math.MaxUint32, math.MaxUint32, strings.Repeat("h", fallback.MaxHolder)): {Kind: fallback.Permits, N: math.MaxUint32, Of: math.MaxUint32},
		} {
			k, m := fallback.Split(name)
			if k != key || m != want || !fallback.IsName(name) || len(name)-len(key) > fallback.NameLen {
				t.Errorf("%q is of %q, %+v, is name %t", name, k, m, fallback.IsName(name))
			}
		}
		if k, m := fallback.Split(key); k != key || m != (fallback.Mode{}) || fallback.IsName(key) {
			t.Errorf("%q is of %q, %+v", key, k, m)
		}
	}
}

func TestMode_Beside(t *testing.T) {
	mode := func(spec string) fallback.Mode {
		if spec == "" {
			return fallback.Mode{}
		}
		_, m := fallback.Split("k\x00" + spec + "h\x00\xff")
		return m
	}
	for _, c := range []struct {
		mine   string
		others []string
		may    bool
	}{
		{"", nil, true}, {"", []string{""}, false}, {"", []string{"s"}, false}, {"s", []string{""}, false},
		{"s", []string{"s", "s"}, true}, {"s", []string{"s", ""}, false}, {"s", []string{"p1/9/"}, false},
		{"p1/3/", []string{"p1/3/", "p1/3/"}, true}, {"p1/3/", []string{"p2/3/", "p1/3/"}, false}, {"p2/3/", []string{"p2/3/"}, false},
		{"p1/3/", []string{"p1/4/"}, false}, {"p3/3/", nil, true}, {"p4294967295/4294967295/", []string{"p4294967295/4294967295/"}, false},
		{"d", []string{"s", "d"}, true}, {"s", []string{"d"}, true}, {"d", []string{""}, false}, {"", []string{"d"}, false}, {"p1/3/", []string{"d"}, false},
		{"p2/3/b/", []string{"p3/3/b/"}, true}, {"p2/3/b/", []string{"p3/3/c/"}, false}, {"p3/4/b/", []string{"p1/4/c/", "p2/4/b/", "p1/4/b/"}, true},
		{"p3/4/b/", []string{"p1/4/c/", "p2/4/c/"}, false}, {"p1/4/b/", []string{"p2/4/c/", "p3/4/c/", "p1/4/x"}, false},
		{"p1/4/b/", []string{"p2/4/c/", "p2/4/c/", "p1/4/x"}, true}, {"p1/4/", []string{"p4/4/"}, false},
		{"later", nil, true}, {"later", []string{"later"}, false}, {"later", []string{"s"}, false}, {"s", []string{"later"}, false},
		{"p0/3/", []string{"p0/3/"}, false}, {"p4/3/", []string{"p4/3/"}, false}, {"px/3/", []string{"px/3/"}, false},
	} {
		var others []fallback.Mode
		for _, o := range c.others {
			others = append(others, mode(o))
		}
		if may := mode(c.mine).Beside(others...); may != c.may {
			t.Errorf("%q beside %q: %t", c.mine, c.others, may)
		}
	}
}

// TestLock_Downgraded checks that a session with the exclusive hold is let in as a reader, before
// those that wait. No other is while it has both.
func TestLock_Downgraded(t *testing.T) {
	l := newLab(t)
	s, d := fallback.SharedName, fallback.DowngradedName
	locked := func(name, session string, want fallback.Verdict) fallback.LockAnswer {
		t.Helper()
		a := l.Lock(l.now, fallback.LockRequest{Key: name, Me: id(session, 1), Block: 1, Wait: true}, l.send)
		if a.Verdict != want {
			t.Errorf("%q for %s: %v, want %v", name, session, a.Verdict, want)
		}
		return a
	}
	first := locked("k", "a", fallback.Granted)
	locked(s("k", "b"), "b", fallback.Held)
	locked("k", "c", fallback.Held)
	locked(d("k", "c"), "c", fallback.Held) // it has nothing
	if a := locked(d("k", "a"), "a", fallback.Granted); a.Token <= first.Token || !a.Contended {
		t.Errorf("%+v after %v", a, first.Token)
	}
	locked(s("k", "b"), "b", fallback.Held)
	l.Unlock(l.now, "k", id("a", 1), l.send)
	locked(s("k", "b"), "b", fallback.Granted)
	locked("k", "c", fallback.Held)
	l.Unlock(l.now, s("k", "b"), id("b", 1), l.send)
	locked("k", "c", fallback.Held)
	l.Unlock(l.now, d("k", "a"), id("a", 1), l.send)
	locked("k", "c", fallback.Granted)
}

// TestLock_Behind checks that a reader is told whether a writer that waits is all that is in its
// way.
func TestLock_Behind(t *testing.T) {
	l := newLab(t)
	locked := func(name, session string, want fallback.Verdict, behind bool) {
		t.Helper()
		a := l.Lock(l.now, fallback.LockRequest{Key: name, Me: id(session, 1), Block: 1, Wait: true}, l.send)
		if a.Verdict != want || a.Behind != behind {
			t.Errorf("%q for %s: %v, behind %t, want %v, %t", name, session, a.Verdict, a.Behind, want, behind)
		}
	}
	s := fallback.SharedName
	locked(s("k", "a"), "a", fallback.Granted, false)
	locked("k", "b", fallback.Held, false)
	locked(s("k", "c"), "c", fallback.Held, true)
	l.Unlock(l.now, s("k", "a"), id("a", 1), l.send)
	locked(s("k", "c"), "c", fallback.Promised, false)
	locked("k", "b", fallback.Granted, false)
	locked(s("k", "c"), "c", fallback.Held, false)
	locked("k", "d", fallback.Held, false)
	l.Unlock(l.now, "k", id("b", 1), l.send)
	locked(s("k", "c"), "c", fallback.Granted, false)
	locked(s("k", "e"), "e", fallback.Held, true)
	l.Unlock(l.now, "k", id("d", 1), l.send) // it gives up
	locked(s("k", "e"), "e", fallback.Granted, false)
}

// TestLock_Block checks that a holder of permits of a block is let in with fewer of it. It comes
// before those that wait, also where there are no others. The rest is free when it has given the
// larger hold back.
func TestLock_Block(t *testing.T) {
	l := newLab(t)
	b := func(n uint32, holder string, number uint64) string {
		return fallback.BlockName("k", n, 8, holder, number)
	}
	locked := func(name, session string, request uint64, want fallback.Verdict) {
		t.Helper()
		a := l.Lock(l.now, fallback.LockRequest{Key: name, Me: id(session, request), Block: 1, Wait: true}, l.send)
		if a.Verdict != want {
			t.Errorf("%q for %s: %v, want %v", name, session, a.Verdict, want)
		}
	}
	locked(b(8, "a", 1), "a", 1, fallback.Granted)
	locked(b(5, "b", 1), "b", 1, fallback.Held)
	locked(b(2, "a", 2), "a", 2, fallback.Held) // of another block: it waits behind b
	locked(b(3, "a", 1), "a", 3, fallback.Granted)
	locked(b(5, "b", 1), "b", 1, fallback.Held)
	locked(b(1, "a", 1), "a", 4, fallback.Granted) // all three are eight permits
	l.Unlock(l.now, b(8, "a", 1), id("a", 1), l.send)
	locked(b(5, "b", 1), "b", 1, fallback.Granted)
	locked(b(2, "a", 2), "a", 2, fallback.Held)
	locked(b(4, "a", 1), "a", 5, fallback.Held) // no part of a's hold
	l.Unlock(l.now, b(3, "a", 1), id("a", 3), l.send)
	locked(b(2, "a", 2), "a", 2, fallback.Granted)
	locked(b(4, "a", 1), "a", 5, fallback.Held)
	locked(b(1, "c", 1), "c", 1, fallback.Held)
	want(t, "names", l.Names["k"], []string{"p1/8/a/1", "p5/8/b/1", "p2/8/a/2"})
}

// TestLock_AnotherSize checks that a request learns how many permits the others say there are.
func TestLock_AnotherSize(t *testing.T) {
	l := newLab(t)
	for _, x := range []struct {
		n, of uint32
		who   string
		size  uint32
	}{{1, 3, "a", 0}, {3, 3, "b", 0}, {1, 5, "c", 3}, {1, 2, "d", 3}} {
		a := l.Lock(l.now, fallback.LockRequest{Key: fallback.PermitsName("k", x.n, x.of, x.who), Me: id(x.who, 1), Block: 1}, l.send)
		if a.Size != x.size {
			t.Errorf("%+v: %+v", x, a)
		}
	}
}

// TestLock_Modes checks the order in which holds of several modes are granted.
func TestLock_Modes(t *testing.T) {
	l := newLab(t)
	s, p := fallback.SharedName, fallback.PermitsName
	locked := func(name, session string, want fallback.Verdict) {
		t.Helper()
		a := l.Lock(l.now, fallback.LockRequest{Key: name, Me: id(session, 1), Block: 1, Wait: true}, l.send)
		if a.Verdict != want {
			t.Errorf("%q for %s: %v, want %v", name, session, a.Verdict, want)
		}
	}
	unlocked := func(name, session string) { l.Unlock(l.now, name, id(session, 1), l.send) }
	locked(s("k", "a"), "a", fallback.Granted)
	locked(s("k", "b"), "b", fallback.Granted)
	locked("k", "writer", fallback.Held)
	locked(s("k", "c"), "c", fallback.Held) // behind the writer
	locked(s("k", "d"), "d", fallback.Held)
	unlocked(s("k", "a"), "a")
	locked("k", "writer", fallback.Held)
	unlocked(s("k", "b"), "b")
	locked(s("k", "c"), "c", fallback.Promised) // to the writer
	locked("k", "writer", fallback.Granted)
	unlocked("k", "writer")
	locked(s("k", "c"), "c", fallback.Granted)
	locked(s("k", "d"), "d", fallback.Granted) // together
	locked(p("m", 2, 3, "a"), "a", fallback.Granted)
	locked(p("m", 2, 3, "b"), "b", fallback.Held)
	locked(p("m", 1, 3, "c"), "c", fallback.Held) // behind the larger request, which is not starved
	unlocked(p("m", 2, 3, "a"), "a")
	locked(p("m", 2, 3, "b"), "b", fallback.Granted)
	locked(p("m", 1, 3, "c"), "c", fallback.Granted)
	want(t, "names", l.Names["m"], []string{"p2/3/b", "p1/3/c"})
}
