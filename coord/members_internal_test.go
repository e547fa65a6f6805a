package coord

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/ring"
)

// A session that the arbiter lists no more may be dead. Its node is known for as long as it may
// take to renew, however long ago it was listed.
func TestMembers_ASessionThatIsListedNoMore(t *testing.T) {
	now := time.Now()
	m := newMembers(&cluster{c: &Coordinator{opts: Options{SessionTTL: 10 * time.Second}}})
	both := map[string]string{"a": card{Node: "one"}.encode(), "b": card{Node: "two"}.encode()}
	one := map[string]string{"a": both["a"]}
	list := func(all map[string]string, at time.Time, want ...string) {
		t.Helper()
		if _, _, missed, _ := m.list(all, at); !slices.Equal(missed, want) {
			t.Errorf("it misses %q, not %q", missed, want)
		}
	}
	list(both, now)
	now = now.Add(time.Minute)
	list(one, now, "b")
	list(one, now.Add(10*time.Second))
	if !m.lists("b") {
		t.Error("it was forgotten when it was missed")
	}
	list(both, now.Add(11*time.Second))
	now = now.Add(time.Minute)
	list(one, now, "b")
	list(one, now.Add(11*time.Second))
	if m.lists("b") || !m.lists("a") {
		t.Error("it is known for longer")
	}
}

// A server that was deposed does not list a session that was opened at the new one: it is not asked
// whether it is dead.
func TestMembers_ASessionThatWasJustOpened(t *testing.T) {
	now := time.Now()
	m := newMembers(&cluster{c: &Coordinator{opts: Options{SessionTTL: 10 * time.Second, Margin: time.Second, Grace: 12 * time.Second}}})
	all := map[string]string{"a": card{Node: "one"}.encode()}
	m.list(all, now)
	if _, _, missed, _ := m.list(nil, now.Add(900*time.Millisecond)); len(missed) > 0 || !m.lists("a") {
		t.Errorf("it misses %q", missed)
	}
	if _, _, missed, _ := m.list(nil, now.Add(1200*time.Millisecond)); len(missed) != 1 {
		t.Errorf("then it misses %q", missed)
	}
}

// A list that was asked for before the arbiter said that a session is dead, or by a clock with long
// ticks at the same time, does not bring its node back.
func TestMembers_AListOfBefore(t *testing.T) {
	c := &Coordinator{opts: Options{SessionTTL: 10 * time.Second}}
	m := newMembers(&cluster{c: c})
	both := map[string]string{"a": card{Node: "one"}.encode(), "b": card{Node: "two"}.encode()}
	asked := c.now().Add(-time.Second)
	m.list(both, asked)
	m.forget("b")
	for _, at := range []time.Time{asked, m.dead["two"]} {
		m.list(both, at)
		if m.has("two") || !m.gone("two") || !m.has("one") {
			t.Error("the node is back")
		}
	}
	m.list(both, c.now().Add(time.Second)) // the server has lost that it is dead, or it was another session
	if !m.has("two") || m.gone("two") {
		t.Error("the node is not back")
	}
}

// A node that has left is dialled no more. So it is where as many sessions are registered again as
// nodes are here, before any search has found one missing.
func TestDiscover_ANodeThatHasLeft(t *testing.T) {
	c := enter(t, fallback.NewMemory(), &Options{})
	views, err := ring.NewViews(c.opts.Partitions)
	if err != nil {
		t.Fatal(err)
	}
	x := &cluster{c: c, ring: &observing{views: views}}
	x.members = newMembers(x)
	a, b := ring.Node{Name: "a", Gossip: "10.0.0.1:7946"}, ring.Node{Name: "b", Gossip: "10.0.0.2:7946"}
	for _, n := range []ring.Node{a, b} {
		register(t, c, n.Name, card{Node: n.Name, Gossip: n.Gossip})
	}
	finds := func(want ...string) {
		t.Helper()
		got, err := x.discover(t.Context())
		if slices.Sort(got); err != nil || !slices.Equal(got, want) {
			t.Errorf("it finds %v, %v, want %v", got, err, want)
		}
	}
	finds(a.Gossip, b.Gossip)
	views.Publish([]ring.Node{a, b}, views.Now().Placement(), time.Now())
	x.heard.registered.Store(2)
	if err := c.remote.ns.CloseSession(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	finds(a.Gossip, b.Gossip) // all are here: the arbiter is not asked
	views.Publish([]ring.Node{b}, views.Now().Placement(), time.Now())
	x.heard.registered.Store(1)
	finds(b.Gossip)
}

// A node is killed, and another one starts at its address before its session is over. It is missed
// until the arbiter is asked again, also where as many sessions are registered as nodes are here.
func TestDiscover_ANodeAtTheAddressOfAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := enter(t, fallback.NewMemory(), &Options{})
		views, err := ring.NewViews(c.opts.Partitions)
		if err != nil {
			t.Fatal(err)
		}
		x := &cluster{c: c, ring: &observing{views: views}}
		x.members = newMembers(x)
		a, b, next := ring.Node{Name: "a", Gossip: "10.0.0.1:7946"}, ring.Node{Name: "b", Gossip: "10.0.0.2:7946"}, ring.Node{Name: "next", Gossip: "10.0.0.2:7946"}
		joins := func(n ring.Node) { register(t, c, n.Name, card{Node: n.Name, Gossip: n.Gossip}) }
		search := func(want int) {
			t.Helper()
			if _, err := x.discover(t.Context()); err != nil {
				t.Fatal(err)
			}
			if n := x.missing(); n != want {
				t.Errorf("%d nodes are missed, want %d", n, want)
			}
		}
		joins(a)
		joins(b)
		search(2)
		time.Sleep(c.silenced()) // a server that was deposed may not know of b before
		views.Publish([]ring.Node{a, next}, views.Now().Placement(), time.Now())
		joins(next)
		x.heard.registered.Store(3)
		search(1)
		if err := c.remote.ns.CloseSession(t.Context(), "b"); err != nil {
			t.Fatal(err)
		}
		x.heard.registered.Store(2)
		search(0)
	})
}
