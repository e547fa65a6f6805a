package coord

import (
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/await"
	"github.com/holdfast-go/holdfast/peer"
)

// guest is a process that c takes for a node with that session. It speaks frames up to a version.
func guest(t *testing.T, c *Coordinator, session string, newest uint16) (*outsider, *peer.Stream) {
	t.Helper()
	identity := newIdentity(t)
	register(t, c, session, card{Node: session, Key: identity.Fingerprint()})
	x := intrudeAt(t, c, session, identity, peer.Versions{Oldest: 1, Newest: newest})
	s := <-x.ups
	for _, flag := range []uint8{flagBegin, flagEnd} {
		f := peer.Frame{Kind: peer.Resume, Flags: flag}
		if flag == flagBegin {
			f.Session = []byte(session)
		}
		if err := s.Send(&f); err != nil {
			t.Fatal(err)
		}
	}
	await.Until(t, "it is known", func() bool { return c.cluster.linkTo(session) != nil })
	return x, s
}

// hinted reports whether a Hint came before the answer to a ping.
func (x *outsider) hinted(t *testing.T, s *peer.Stream) (hinted bool) {
	t.Helper()
	for len(x.frames) > 0 {
		hinted = <-x.frames == peer.Hint || hinted
	}
	if err := s.Send(&peer.Frame{Kind: peer.Ping, Ping: 1}); err != nil {
		t.Fatal(err)
	}
	for {
		select {
		case kind := <-x.frames:
			if kind == peer.Pong {
				return hinted
			}
			hinted = kind == peer.Hint || hinted
		case <-time.After(20 * time.Second):
			t.Fatal("a ping is not answered")
		}
	}
}

// A node of the version before closes a stream when it gets an unknown frame.
func TestCarry_OlderNodesGetNoHint(t *testing.T) {
	c := enter(t, fallback.NewMemory(), small())
	for session, newest := range map[string]uint16{"older": framesHint - 1, "same": framesHint} {
		x, s := guest(t, c, session, newest)
		c.carry(session, fallback.Message{Kind: fallback.Wake, Key: "k", Request: 1})
		if got, want := x.hinted(t, s), newest >= framesHint; got != want {
			t.Errorf("frames %d: got a hint: %v", newest, got)
		}
		if newest >= framesHint {
			continue
		}
		if err := s.Send(c.hint(c.sessions.id(), fallback.Message{Kind: fallback.Wake, Key: "k", Request: 1})); err != nil {
			t.Fatal(err)
		}
		select {
		case <-x.downs:
		case <-time.After(20 * time.Second):
			t.Error("it may send hints though the stream is of a version without")
		}
	}
}

// A hint that nodes do not send ends the stream. A hint for a session that has ended does nothing.
func TestCarry_HintsAreChecked(t *testing.T) {
	c := enter(t, fallback.NewMemory(), small())
	x, s := guest(t, c, "guest", framesHint)
	p := c.partitionOf("k").Number()
	hint := func(kind fallback.MessageKind, key, session string) *peer.Frame {
		return &peer.Frame{Kind: peer.Hint, Flags: uint8(kind), Partition: p, Key: []byte(key), Session: []byte(session), Request: 1}
	}
	for _, f := range []*peer.Frame{
		hint(fallback.Wake, "k", "ended"), hint(fallback.Ask, "k", "ended"), hint(fallback.Ask, "k", c.sessions.id()), hint(fallback.Freed, "k", "guest"),
		hint(fallback.Revoked, "", ""),
	} {
		if err := s.Send(f); err != nil {
			t.Fatal(err)
		}
		_ = x.hinted(t, s)
	}
	for i, f := range []*peer.Frame{
		hint(fallback.Changed, "k", c.sessions.id()), hint(fallback.Gap, "", ""), hint(0, "k", c.sessions.id()), hint(fallback.Wake, "", c.sessions.id()),
		hint(fallback.Freed, "k", "a b"), {Kind: peer.Hint, Flags: uint8(fallback.Ask), Partition: p + 1, Key: []byte("k"), Session: []byte("guest")},
	} {
		if err := s.Send(f); err != nil {
			t.Fatal(err)
		}
		select {
		case <-x.downs:
		case <-time.After(20 * time.Second):
			t.Fatalf("frame %d: the stream goes on", i)
		}
		s = <-x.ups
	}
}
