package coord

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/await"
	"github.com/holdfast-go/holdfast/internal/presence"
	"github.com/holdfast-go/holdfast/peer"
)

// The book of ended nodes (G10).
func TestEnds(t *testing.T) {
	now := time.Now()
	signaled := func(n *nodeEnd) bool {
		select {
		case <-n.signal:
			return true
		default:
			return false
		}
	}
	t.Run("seen", func(t *testing.T) {
		var e ends
		if e.has("a") || e.nodes["a"] != nil {
			t.Error("it has what it was never told")
		}
		e.look()
		n := e.sees("a", now)
		if n == nil || !e.has("a") || e.has("b") {
			t.Fatal("it has not noted what was seen")
		}
		if e.sees("a", now) != nil {
			t.Error("the same end is news again")
		}
		if signaled(n) {
			t.Error("something has changed")
		}
		if e.look(); !signaled(n) {
			t.Error("nothing has changed")
		}
		if e.witnesses("b"); e.has("b") || e.tells(n) {
			t.Error("it has seen another node's end")
		}
		if e.witnesses("a"); !e.tells(n) || !signaled(n) {
			t.Error("it was told before it has seen the end, and does not tell the others")
		}
		if e.forget("a"); e.has("a") || e.sees("a", now) == nil {
			t.Error("a node without a session is remembered: it may have another one, if it lives after all")
		}
	})
	t.Run("asked", func(t *testing.T) {
		var e ends
		one, two, three := new(link), new(link), new(link)
		for range 2 {
			if e.asked("a", one, now) || e.has("a") {
				t.Error("a question is no proof, and no answer")
			}
		}
		n := e.sees("a", now)
		if e.asked("a", two, now) {
			t.Error("nothing is clear yet")
		}
		gone := new(link)
		e.asked("a", gone, now)
		e.cut(gone) // its stream has ended
		if asking := e.clears(n); len(asking) != 2 || !slices.Contains(asking, one) || !slices.Contains(asking, two) {
			t.Errorf("%d are told: not each that has asked, before it was seen and since", len(asking))
		}
		if asking := e.clears(n); len(asking) > 0 {
			t.Error("they are told again")
		}
		if !e.asked("a", three, now) {
			t.Error("it is clear")
		}
		if asking := e.clears(n); len(asking) > 0 {
			t.Error("one that was answered at once is told again")
		}
		if e.asked("b", one, now) {
			t.Error("it is clear of another node")
		}
		if delete(e.nodes, "a"); len(e.nodes["b"].asking) != 1 {
			t.Error("it has lost who asks about the other node")
		}
	})
	t.Run("awaited", func(t *testing.T) {
		var e ends
		e.answered("a", "b", now) // before it is seen here
		n := e.sees("a", now)
		if !signaled(n) {
			t.Error("the answer has changed nothing")
		}
		e.asked("c", new(link), now) // said by one that is perhaps not believed
		e.answered("c", "d", now)
		e.answered("e", "a", now)
		e.sees("f", now)
		want := func(names ...string) {
			t.Helper()
			if all := e.awaited(n, []string{"b", "c", "d", "e", "f", "g"}); !slices.Equal(all, names) {
				t.Errorf("awaited are %q, not %q", all, names)
			}
		}
		want("c", "d", "e", "g")
		if e.answered("a", "g", now); !signaled(n) {
			t.Error("the answer has changed nothing")
		}
		want("c", "d", "e")
		e.sees("c", now) // now its end was seen, too
		want("d", "e")
		e.answered("a", "d", now)
		e.answered("a", "e", now)
		want()
	})
}

// No more than maxEnded nodes are remembered. One that was seen to end always is, while it has a
// session.
func TestEnds_Eviction(t *testing.T) {
	var e ends
	now := time.Now()
	at := func(i int) time.Time { return now.Add(time.Duration(i) * time.Second) }
	name := func(i int) string { return fmt.Sprint("n", i) }
	all := make([]*nodeEnd, maxEnded)
	for i := range all {
		if i%4 == 1 {
			e.asked(name(i), new(link), at(i))
		} else {
			all[i] = e.sees(name(i), at(i))
		}
	}
	// 1, 5, 9 and so on may go: in this order.
	before := slices.Collect(maps.Keys(e.nodes))
	next := maxEnded
	for i := range maxEnded {
		if i%4 != 1 {
			continue
		}
		if e.nodes[name(i)] == nil {
			t.Fatalf("%s has gone too soon", name(i))
		}
		if e.sees(name(next), at(next)) == nil || !e.has(name(next)) {
			t.Fatalf("there is no room for %s", name(next))
		}
		next++
		if e.nodes[name(i)] != nil || len(e.nodes) != maxEnded {
			t.Fatalf("%s has not gone for it; there are %d", name(i), len(e.nodes))
		}
	}
	for _, was := range before {
		if n := e.nodes[was]; n != nil && !n.seen {
			t.Errorf("%s is there still", was)
		}
	}
	// Now there are such only that may not go.
	if e.sees("more", at(next)) != nil || e.has("more") || e.asked("more", new(link), at(next)) {
		t.Error("there is room for one more")
	}
	e.answered("more", "b", at(next))
	if e.sees(name(0), at(next)) != nil || !e.has(name(0)) || len(e.nodes) != maxEnded {
		t.Error("one that may not go has gone")
	}
	if e.forget(name(4)); e.sees("more", at(next)) == nil || e.has(name(4)) || !e.has(name(3)) {
		t.Error("the one whose sessions are over has not gone for it")
	}
}

// A node is believed about the end of another one's process only if their cards name the same
// place. A card that is not known is looked up.
func TestEnds_Believes(t *testing.T) {
	cards := map[string]string{
		"1": card{Node: "here", Place: "p"}.encode(), "2": card{Node: "here too", Place: "p"}.encode(), "3": card{Node: "there", Place: "q"}.encode(),
		"4": card{Node: "nowhere"}.encode(), "5": card{Node: "nowhere too"}.encode(),
	}
	for _, x := range []struct {
		witness, about  string
		believed, looks bool
	}{
		{"here", "here too", true, false}, {"here too", "here", true, false},
		{"here", "there", false, false}, {"there", "here", false, false},
		{"nowhere", "nowhere too", false, false}, {"nowhere", "here", false, false}, {"here", "nowhere", false, false},
		{"here", "unknown", false, true}, {"unknown", "here", false, true}, {"unknown", "unknown too", false, true},
	} {
		c := &cluster{c: &Coordinator{opts: Options{SessionTTL: 10 * time.Second}}}
		c.members = newMembers(c)
		c.members.list(cards, time.Now())
		if believed, looks := c.believes(x.witness, x.about), len(c.members.poke) > 0; believed != x.believed || looks != x.looks {
			t.Errorf("%q about %q: believed %t, looks it up %t", x.witness, x.about, believed, looks)
		}
	}
}

// What nodes say of the end of others is believed if they can have seen it (G9). It is not of
// themselves, or of the node that hears it.
func TestEnds_IsBelieved(t *testing.T) {
	t.Parallel()
	o := small()
	o.Cluster.Takeover = 20 * time.Second
	c := enter(t, fallback.NewMemory(), o)
	place := c.cluster.self.near.place
	if place == "" { // not on this system: this node is in no place
		place = "p"
	}
	witness := newIdentity(t)
	register(t, c, "s1", card{Node: "witness", Key: witness.Fingerprint(), Place: place})
	register(t, c, "s2", card{Node: "near", Place: place})
	register(t, c, "s3", card{Node: "far", Place: place + " not"})
	register(t, c, "s4", card{Node: "answered", Place: place})
	x := intrude(t, c, "witness", witness)
	s := <-x.ups
	if _, err := c.members().ask(t.Context()); err != nil {
		t.Fatal(err)
	}
	// heard has c hear these frames, and what came before.
	heard := func(frames ...*peer.Frame) {
		t.Helper()
		for len(x.frames) > 0 {
			<-x.frames
		}
		for _, f := range append(frames, &peer.Frame{Kind: peer.Ping, Ping: 1}) {
			if err := s.Send(f); err != nil {
				t.Fatal(err)
			}
		}
		for limit := time.After(20 * time.Second); ; {
			select {
			case kind := <-x.frames:
				if kind == peer.Pong {
					return
				}
			case err := <-x.downs:
				t.Fatal("the stream has ended: ", err)
			case <-limit:
				t.Fatal("no answer")
			}
		}
	}
	book := &c.cluster.streams.ended
	of := func(node string) nodeEnd {
		book.mu.Lock()
		defer book.mu.Unlock()
		if n := book.nodes[node]; n != nil {
			return nodeEnd{seen: n.seen, asking: maps.Clone(n.asking), answers: maps.Clone(n.answers)}
		}
		return nodeEnd{}
	}
	heard(endFrame(guardEnded, "far"), endFrame(guardEnded, "witness"), endFrame(guardEnded, c.cluster.self.name), endFrame(guardClear, "answered"),
		endFrame(guardClear, c.cluster.self.name), endFrame(guardClear, "witness"), endFrame(guardEnded, "unheard of"))
	for _, name := range []string{"far", "witness", c.cluster.self.name, "answered", "unheard of"} {
		if book.has(name) {
			t.Errorf("it believes that the process of %q has ended", name)
		}
	}
	for _, name := range []string{"witness", c.cluster.self.name} {
		if n := of(name); len(n.asking)+len(n.answers) > 0 {
			t.Errorf("of %q it has noted %+v", name, n)
		}
	}
	if n := of("answered"); !n.answers["witness"] || len(n.asking) > 0 {
		t.Errorf("an answer was noted as %+v", n)
	}
	if n := of("far"); len(n.asking) != 1 {
		t.Errorf("%d ask about a node that another one may see end", len(n.asking))
	}
	before := c.cluster.live()
	heard(endFrame(guardEnded, "near"))
	if !book.has("near") {
		t.Error("it does not believe the witness")
	}
	// Those that live are no votes against one that has ended, this node's session among them.
	for _, session := range c.members().sessionsOf("near") {
		if !before[session] {
			t.Errorf("session %q was none that lives", session)
		}
		delete(before, session)
	}
	if now := c.cluster.live(); !before[c.sessions.current().ID] || !maps.Equal(now, before) {
		t.Errorf("the sessions %v live, not %v", now, before)
	}

	register(t, c, "s5", card{Node: "late", Place: place})
	await.Until(t, "it believes what it has looked up", func() bool {
		heard(endFrame(guardEnded, "late"))
		return book.has("late")
	})
}

// A node that others do not watch says of no place that it is there, and shows no sign, and
// one without Takeover neither. The sign of another goes with Close.
func TestOptions_Unwatched(t *testing.T) {
	for name, x := range map[string]struct {
		takeover time.Duration
		off      bool
		watched  bool
	}{
		"watched":          {20 * time.Second, false, true},
		"unwatched":        {20 * time.Second, true, false},
		"without Takeover": {-1, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := small()
			o.Cluster.Takeover, o.Cluster.Unwatched = x.takeover, x.off
			m := fallback.NewMemory()
			c := enter(t, m, o)
			here := ""
			if x.watched {
				here = presence.Place() // "" except on Linux
			}
			all, err := c.remote.ns.List(t.Context())
			if err != nil || len(all.Sessions) != 1 {
				t.Fatal(all, err)
			}
			if k := decodeCard(all.Sessions[c.sessions.id()]); k.Place != here || k.Node != c.cluster.self.name {
				t.Errorf("its card is %+v, with the place %q", k, k.Place)
			}
			w, err := presence.Watch(c.cluster.self.name)
			if shown := err == nil; shown != (here != "") {
				t.Fatalf("its sign can be seen %t: %v", shown, err)
			}
			if err != nil {
				return
			}
			defer w.Close()
			short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			if err := w.Ended(short); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("it was seen to end: %v", err)
			}
			if err := c.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
			long, cancel := context.WithTimeout(t.Context(), await.Limit)
			defer cancel()
			if err := w.Ended(long); err != nil {
				t.Errorf("it has left, and its sign has not gone: %v", err)
			}
		})
	}
}

// A long name in a frame is nonsense, and takes no room.
func TestEnds_LongNames(t *testing.T) {
	x := &cluster{}
	x.c = new(Coordinator)
	x.aboutEnd(nil, endFrame(guardEnded, strings.Repeat("x", peer.MaxKey+1)))
	if len(x.streams.ended.nodes) > 0 {
		t.Error("it was noted")
	}
}
