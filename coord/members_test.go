package coord

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/gossip"
	"github.com/holdfast-go/holdfast/internal/await"
	"github.com/holdfast-go/holdfast/internal/takes"
	"github.com/holdfast-go/holdfast/peer"
	"github.com/holdfast-go/holdfast/ring"
)

func TestCard(t *testing.T) {
	full := card{Name: "a b&", Node: "N", Gossip: "[fd00::1]:7946", Peer: "10.0.0.1:1&p=2", Service: "http://x/?a=b&c=%20", Key: "k-_", Keepalive: 1500 * time.Millisecond}
	for _, c := range []card{{}, {Gossip: "10.0.0.1:7946"}, full} {
		if got := decodeCard(c.encode()); got != c {
			t.Errorf("%+v became %+v", c, got)
		}
	}
	if got := decodeCard(full.encode() + "&new=1"); got != full {
		t.Errorf("with a field of a later version: %+v", got)
	}
	if got := decodeCard("%zz"); got != (card{}) {
		t.Errorf("garbage: %+v", got)
	}
}

func FuzzCard(f *testing.F) {
	f.Add(card{Node: "N", Gossip: "10.0.0.1:7946", Peer: "10.0.0.1:1", Service: "http://x", Key: "k"}.encode())
	f.Fuzz(func(t *testing.T, text string) {
		c := decodeCard(text)
		if got := decodeCard(c.encode()); got != c {
			t.Errorf("%q: %+v became %+v", text, c, got)
		}
	})
}

// outsider is a process on the network of a cluster.
type outsider struct {
	ups    chan *peer.Stream
	downs  chan error
	frames chan peer.Kind
}

func (x *outsider) Up(s *peer.Stream)              { x.ups <- s }
func (x *outsider) Down(_ *peer.Stream, err error) { x.downs <- err }
func (x *outsider) Frame(_ *peer.Stream, f *peer.Frame) {
	select {
	case x.frames <- f.Kind:
	default:
	}
}

// intrude starts a process that dials c as a node of that name. identity may be nil.
func intrude(t *testing.T, c *Coordinator, node string, identity *peer.Identity) *outsider {
	t.Helper()
	return intrudeAt(t, c, node, identity, frameVersions)
}

// intrudeAt is intrude of a process that speaks those versions.
func intrudeAt(t *testing.T, c *Coordinator, node string, identity *peer.Identity, frames peer.Versions) *outsider {
	t.Helper()
	x := &outsider{make(chan *peer.Stream, 64), make(chan error, 64), make(chan peer.Kind, 64)}
	o := peer.Options{
		Node: node, Namespace: short(c.opts.Namespace), Version: c.opts.version(), Frames: frames, Handler: x, Retry: 2 * time.Millisecond,
		Keepalive: c.opts.Cluster.Keepalive, // or the stream ends in any case
	}
	if identity != nil {
		o.TLS = identity.TLS()
	}
	tr, err := peer.Start(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tr.Close() })
	tr.SetPeers(map[string]string{c.cluster.self.name: c.cluster.net.Addr()})
	return x
}

func newIdentity(t *testing.T) *peer.Identity {
	t.Helper()
	i, err := peer.NewIdentity()
	if err != nil {
		t.Fatal(err)
	}
	return i
}

// register lists a node with a session at the arbiter.
func register(t *testing.T, c *Coordinator, session string, k card) {
	t.Helper()
	if _, err := c.remote.ns.Open(t.Context(), session, fallback.Registration{TTL: time.Hour, Info: k.encode()}); err != nil {
		t.Fatal(err)
	}
}

// small are options of clusters in tests, with a server in the place of the embedded one. A delay
// of a busy machine is not taken for a fault.
func small(seeds ...string) *Options {
	return &Options{
		SessionTTL: time.Minute, RenewEvery: 750 * time.Millisecond, Grace: 80 * time.Second, Partitions: 61,
		Cluster: &Cluster{
			Membership: gossip.Start, Gossip: "127.0.0.1:0", Debounce: 200 * time.Millisecond, Keepalive: 4 * time.Second, Takeover: -1, Seeds: seeds,
		},
	}
}

func enter(t *testing.T, a fallback.Arbiter, o *Options) *Coordinator {
	t.Helper()
	c, err := New(t.Context(), a, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_ = c.Close(ctx)
	})
	return c
}

// A process on the network that has no session at the arbiter is not believed, whatever it says
// that it is: with keys of its own, without TLS, and under the name of a node that exists.
func TestAStrangerGetsNoStream(t *testing.T) {
	c := enter(t, fallback.NewMemory(), small())
	known := newIdentity(t)
	register(t, c, "known", card{Node: "known", Key: known.Fingerprint()})
	strangers := []*outsider{
		intrude(t, c, "nobody", newIdentity(t)), intrude(t, c, "known", newIdentity(t)), intrude(t, c, "plain", nil),
	}
	friend := intrude(t, c, "known", known)
	select {
	case <-friend.ups:
	case <-time.After(20 * time.Second):
		t.Fatal("a node that the arbiter lists gets no stream")
	}
	if err := c.members().verify("nobody", nil); !errors.Is(err, errUnlisted) {
		t.Errorf("nobody: %v", err)
	}
	for i, x := range strangers {
		if len(x.ups) > 0 {
			t.Errorf("stranger %d has got a stream", i)
		}
	}
}

func (c *Coordinator) members() *members { return c.cluster.members }

// A node that is a member speaks for its own sessions only.
func TestAMemberSpeaksForItselfOnly(t *testing.T) {
	c := enter(t, fallback.NewMemory(), small())
	id := newIdentity(t)
	register(t, c, "mine", card{Node: "member", Key: id.Fingerprint()})
	register(t, c, "other", card{Node: "other", Key: newIdentity(t).Fingerprint()})
	x := intrude(t, c, "member", id)
	for _, session := range []string{"other", c.sessions.id(), "no one's"} {
		s := <-x.ups
		if err := s.Send(&peer.Frame{Kind: peer.Resume, Flags: flagBegin, Session: []byte(session)}); err != nil {
			t.Fatal(err)
		}
		select {
		case <-x.downs:
		case <-time.After(20 * time.Second):
			t.Fatalf("the node may speak for the session %q", session)
		}
	}
	s := <-x.ups
	for len(x.frames) > 0 {
		<-x.frames
	}
	_ = s.Send(&peer.Frame{Kind: peer.Resume, Flags: flagBegin, Session: []byte("mine")})
	_ = s.Send(&peer.Frame{Kind: peer.Ping, Ping: 1})
	for {
		select {
		case kind := <-x.frames:
			if kind == peer.Pong {
				return
			}
		case <-time.After(20 * time.Second):
			t.Fatal("the node may not speak for its own session")
		}
	}
}

// A member cannot end another node's hold, though it knows the session and guesses the number of
// the request: neither by Deny, nor by Release, nor by a statement of its holds.
func TestAMemberFreesNoOtherNodesHold(t *testing.T) {
	t.Parallel()
	m := fallback.NewMemory()
	a, b := enter(t, m, small()), enter(t, m, small())
	if err := a.Settled(t.Context(), 2); err != nil {
		t.Fatal(err)
	}
	l := lockOf(t, a, b, "held")
	hold, _ := holderOf(a, l.Key())
	id := newIdentity(t)
	register(t, a, "mine", card{Node: "member", Key: id.Fingerprint()})
	x := intrude(t, a, "member", id)
	s := <-x.ups
	p := a.partitionOf(l.Key())
	about := func(kind peer.Kind, request uint64) *peer.Frame {
		return &peer.Frame{Kind: kind, Partition: p.Number(), Key: []byte(l.Key()), Session: []byte(hold.Session), Request: request}
	}
	var frames []*peer.Frame
	for request := hold.Request - 1; request <= hold.Request+1; request++ {
		frames = append(frames, about(peer.Deny, request), about(peer.Release, request), about(peer.Cancel, request), about(peer.Resume, request))
	}
	frames = append(frames, &peer.Frame{Kind: peer.Resume, Flags: flagBegin, Session: []byte("mine")}, &peer.Frame{Kind: peer.Resume, Flags: flagEnd})
	frames = append(frames, frames...) // the second statement of the session ends the stream
	for _, f := range frames {
		_ = s.Send(f)
	}
	select {
	case <-x.downs:
	case <-time.After(20 * time.Second):
		t.Fatal("the stream is up still: not all has been read")
	}
	if !refusedAt(t, a, l)() {
		t.Error("the key is free")
	}
	if now, _ := holderOf(a, l.Key()); now != hold {
		t.Errorf("the holder is %+v, was %+v", now, hold)
	}
}

// A member is cut off for a frame that no node sends: a block of tokens of another epoch or that
// wraps, an answer for a hold of a later epoch, or a repeated statement (rule 12).
func TestAMemberThatIsHostileIsCutOff(t *testing.T) {
	c := enter(t, fallback.NewMemory(), small())
	id := newIdentity(t)
	register(t, c, "mine", card{Node: "member", Key: id.Fingerprint()})
	x := intrude(t, c, "member", id)
	p := c.partitionOf("k")
	grant := func(epoch uint32, token fallback.Token, count uint32) []peer.Frame {
		return []peer.Frame{{Kind: peer.Grant, Partition: p.Number(), Key: []byte("k"), Request: 1, Session: []byte("mine"),
			Epoch: epoch, Token: uint64(token), Count: count}}
	}
	begin := peer.Frame{Kind: peer.Resume, Flags: flagBegin, Session: []byte("mine")}
	none, end := peer.Frame{Kind: peer.Resume, Flags: flagBegin}, peer.Frame{Kind: peer.Resume, Flags: flagEnd}
	for name, frames := range map[string][]peer.Frame{
		"another epoch":  grant(7, fallback.MakeToken(8, 1), 1),
		"later hold":     grant(7, fallback.MakeToken(8, 1), 0), // no tokens: an answer for a hold
		"tokens wrap":    grant(7, fallback.MakeToken(7, 1<<32-1), 2),
		"stated again":   {begin, end, begin},
		"stated later":   {begin, end, none, end, begin},
		"none twice":     {none, end, none},
		"ended again":    {begin, end, end},
		"never begun":    {end},
		"far epoch":      grant(1<<32-1, fallback.MakeToken(1<<32-1, 1), 1),
		"wrong key":      {{Kind: peer.Request, Partition: p.Number() ^ 1, Key: []byte("k"), Request: 1, Session: []byte("mine")}},
		"no partition":   {{Kind: peer.Request, Partition: 61, Key: []byte("k"), Request: 1, Session: []byte("mine")}},
		"no session":     {{Kind: peer.Request, Partition: p.Number(), Key: []byte("k"), Request: 1}},
		"session of two": {{Kind: peer.Resume, Flags: flagBegin, Session: []byte("mine mine")}},
	} {
		s := <-x.ups
		for _, f := range frames {
			if err := s.Send(&f); err != nil && !errors.Is(err, peer.ErrClosed) && !errors.Is(err, peer.ErrFrame) {
				t.Fatal(name, err)
			}
		}
		if f := frames[0]; f.Check() != nil {
			s.Close(nil) // this end does not send it
		}
		select {
		case <-x.downs:
		case <-time.After(20 * time.Second):
			t.Fatalf("%s: the stream is up still", name)
		}
	}
}

// Nodes of two arbiters that hear each other's gossip stay apart. Both are new servers, or the
// second was started from a copy of the first one's data, which lists the sessions of the first.
func TestNodesOfAnotherArbiterStayApart(t *testing.T) {
	takes.Seconds(t)
	for _, copied := range []bool{false, true} {
		t.Run(fmt.Sprint("copied=", copied), func(t *testing.T) {
			one, two := fallback.NewMemory(), fallback.NewMemory()
			options := func(seeds ...string) *Options {
				o := small(seeds...)
				if !copied { // else the copy has the secret
					o.Cluster.GossipKeys = [][]byte{[]byte("16 bytes of keys")}
				}
				return o
			}
			a, b := enter(t, one, options()), enter(t, one, options())
			await.Until(t, "a and b own all", func() bool { return a.Stats().Owned+b.Stats().Owned == 61 && b.Stats().Owned > 0 })
			if copied {
				o := small()
				if _, err := two.Attach(t.Context(), o.filledSettings()); err != nil {
					t.Fatal(err)
				}
				two.Restore(one.Snapshot())
			}
			c := enter(t, two, options(a.cluster.ring.Gossip(), b.cluster.ring.Gossip()))
			for _, x := range []*Coordinator{a, b} {
				await.Until(t, "the other cluster's node is seen as unlisted", func() bool {
					n := 0
					for _, y := range x.Nodes() {
						if y.ID == c.cluster.self.name && y.State == "unlisted" {
							n++
						}
					}
					return n == 1
				})
			}
			// Longer than it takes to place a node and to give it partitions.
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			defer cancel()
			if err := c.Settled(ctx, 3); err == nil {
				t.Error("the nodes of two arbiters are one cluster")
			}
			short, stop := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer stop()
			want := "node " + c.cluster.self.name + " at " + c.cluster.ring.Gossip() + " has no session at this node's arbiter: " +
				"it has just started, or uses another server or a copy of the data"
			if err := a.Settled(short, 3); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("a has not settled with c: %v, want %q", err, want)
			}
			if n := a.Stats().Owned + b.Stats().Owned; n != 61 {
				t.Errorf("a and b own %d of 61 partitions", n)
			}
			for _, y := range c.Nodes() {
				if y.Linked {
					t.Errorf("a stream to %+v", y)
				}
			}
		})
	}
}

func (o *Options) filledSettings() fallback.Settings {
	f := o.filled()
	return f.settings()
}

// A node that was killed is shown as dead, and not as one of another arbiter, until the gossip has
// given up on it.
func TestNodes_AKilledNodeIsDead(t *testing.T) {
	c := enter(t, fallback.NewMemory(), small())
	other := ring.Node{Name: "killed/1", Session: "theirs", Unlisted: true, State: ring.Active}
	if got := c.cluster.info(&other).State; got != "unlisted" {
		t.Errorf("a node that never had a session is %s", got)
	}
	register(t, c, "theirs", card{Node: other.Name})
	if _, err := c.members().ask(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.members().forget("theirs")
	if got := c.cluster.info(&other).State; got != "dead" {
		t.Errorf("a node whose last session has died is %s", got)
	}
}
