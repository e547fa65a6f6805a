package coord

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/await"
	"github.com/holdfast-go/holdfast/internal/takes"
	"github.com/holdfast-go/holdfast/peer"
)

// publish makes the arbiter keep an observer's card, as the process does that has the key.
func publish(t *testing.T, c *Coordinator, node string, k card, keep time.Duration) {
	t.Helper()
	if _, err := c.remote.ns.(fallback.ResultStore).SaveResult(t.Context(), 0, observerKey(node), []byte(k.encode()), 1, keep); err != nil {
		t.Fatal(err)
	}
}

// A process on the network is no observer unless the arbiter has its key: not with another one's
// name, not with another node's card, and not once the time is over.
func TestObserve_AStrangerIsNoObserver(t *testing.T) {
	c := enter(t, fallback.NewMemory(), small())
	known, late := newIdentity(t), newIdentity(t)
	publish(t, c, "observer op/1", card{Node: "observer op/1", Key: known.Fingerprint()}, time.Hour)
	publish(t, c, "observer op/2", card{Node: "observer op/1", Key: known.Fingerprint()}, time.Hour)
	publish(t, c, "observer op/3", card{Node: "observer op/3", Key: late.Fingerprint()}, time.Millisecond)
	await.Until(t, "the key is gone", func() bool {
		r, err := c.remote.ns.(fallback.ResultStore).LoadResult(t.Context(), 0, observerKey("observer op/3"))
		return err == nil && r.Fence == 0
	})
	strangers := []*outsider{
		intrude(t, c, "observer nobody/1", newIdentity(t)), intrude(t, c, "observer op/1", newIdentity(t)), intrude(t, c, "observer op/1", nil),
		intrude(t, c, "observer op/2", known), intrude(t, c, "observer op/3", late), intrude(t, c, "op/1", known),
	}
	friend := intrude(t, c, "observer op/1", known)
	select {
	case <-friend.ups:
	case <-time.After(20 * time.Second):
		t.Fatal("an observer gets no stream")
	}
	// Each has been refused by now, some several times.
	for i, node := range []string{"observer nobody/1", "observer op/2", "observer op/3"} {
		if err := c.members().verify(node, nil); !errors.Is(err, errNotPublished) {
			t.Errorf("%d: %v", i, err)
		}
	}
	for i, x := range strangers {
		if len(x.ups) > 0 {
			t.Errorf("stranger %d has got a stream", i)
		}
	}
	if _, err := c.Lock(t.Context(), observerKey("observer op/1")); !errors.Is(err, ErrInvalidKey) {
		t.Errorf("a key of Share can be that of an observer's card: %v", err)
	}
}

// A frame that an observer may not send ends its stream: it states nothing, asks for no key, and
// answers for none.
func TestObserve_AnObserverOnlyAsks(t *testing.T) {
	t.Parallel()
	c := enter(t, fallback.NewMemory(), small())
	known := newIdentity(t)
	publish(t, c, "observer op/1", card{Node: "observer op/1", Key: known.Fingerprint()}, time.Hour)
	x := intrude(t, c, "observer op/1", known)
	key := []byte("k")
	p := c.partitionOf("k").Number()
	for _, f := range []peer.Frame{
		{Kind: peer.Resume, Flags: flagBegin, Session: []byte(c.sessions.id())},
		{Kind: peer.Request, Partition: p, Key: key, Session: []byte("s"), Request: 1},
		{Kind: peer.Deny, Partition: p, Key: key, Session: []byte(c.sessions.id()), Request: 1},
		{Kind: peer.Grant, Partition: p, Key: key, Session: []byte("s"), Request: 1, Epoch: 1, Token: 1 << 32, Count: 1},
		{Kind: peer.Release, Partition: p, Key: key, Session: []byte("s"), Request: 1},
		{Kind: peer.Moved, Flags: 1, Partition: p},
		{Kind: peer.Guard},
		{Kind: peer.Ping, Ping: 1},
		{Kind: peer.Answer, Request: 1, Key: []byte("{}")},
	} {
		s := <-x.ups
		if err := s.Send(&f); err != nil {
			t.Fatalf("%v: %v", f.Kind, err)
		}
		select {
		case <-x.downs:
		case <-time.After(20 * time.Second):
			t.Fatalf("an observer may send %v", f.Kind)
		}
	}
	s := <-x.ups
	for len(x.frames) > 0 {
		if kind := <-x.frames; kind != peer.Answer {
			t.Errorf("an observer was sent %v", kind)
		}
	}
	if err := s.Send(&peer.Frame{Kind: peer.Query, Request: 1, Key: []byte(`{"about":"node"}`)}); err != nil {
		t.Fatal(err)
	}
	select {
	case kind := <-x.frames:
		if kind != peer.Answer {
			t.Errorf("it is answered by %v", kind)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("an observer gets no answer")
	}
	if n := len(c.cluster.all()); n != 0 {
		t.Errorf("%d observers are among the nodes", n)
	}
}

// A node has few observers, and each of them proves itself again after some time.
func TestObserve_ObserversAreFewAndProveThemselvesAgain(t *testing.T) {
	takes.Seconds(t)
	t.Parallel()
	c := enter(t, fallback.NewMemory(), small())
	x := c.cluster
	known := newIdentity(t)
	publish(t, c, "observer op/1", card{Node: "observer op/1", Key: known.Fingerprint()}, time.Hour)
	o := intrude(t, c, "observer op/1", known)
	<-o.ups
	await.Until(t, "it is counted", func() bool { return x.observers() == 1 })
	x.streams.mu.Lock()
	for l := range x.streams.watched {
		x.streams.watched[l] = x.c.now().Add(-observerFor - time.Second)
	}
	x.streams.mu.Unlock()
	select { // of the next round of pings
	case err := <-o.downs:
		if err == nil {
			t.Error("no reason")
		}
	case <-time.After(20 * time.Second):
		t.Fatal("its stream goes on")
	}
	<-o.ups // it has proved itself again
	await.Until(t, "it is counted again", func() bool { return x.observers() == 1 })
	x.streams.mu.Lock()
	for range maxObservers - 1 {
		x.streams.watched[new(link)] = x.c.now()
	}
	x.streams.mu.Unlock()
	if err := x.members.verify("observer op/1", nil); !errors.Is(err, errObservers) {
		t.Error(err)
	}
	x.streams.mu.Lock()
	for l := range x.streams.watched {
		if l.s == nil {
			delete(x.streams.watched, l)
		}
	}
	x.streams.mu.Unlock()
}

// An observer of another arbiter is told nothing, and tells nothing: not even that it is one.
func TestObserve_NodesOfAnotherArbiterAreNotBelieved(t *testing.T) {
	c := enter(t, fallback.NewMemory(), small())
	copied := fallback.NewMemory() // with the node's card, and another key in it
	enter(t, copied, &Options{SessionTTL: 3 * time.Second, Grace: 4 * time.Second, Partitions: 61})
	ns, err := copied.Attach(t.Context(), fallback.Settings{Namespace: "holdfast", Partitions: 61, Grace: 4 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	cards, err := c.list(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for session, text := range cards {
		if _, err := ns.Open(t.Context(), session, fallback.Registration{TTL: time.Hour, Info: text.encode()}); err != nil {
			t.Fatal(err)
		}
	}
	op := enter(t, copied, &Options{Name: "op", Observe: true})
	_, err = op.Report(t.Context(), c.cluster.self.name)
	if !errors.Is(err, errNoNode) || c.cluster.observers() != 0 {
		t.Errorf("an observer of a copy of the data: %v", err)
	}
	failing := op.cluster.net.Failing()
	if len(failing) != 1 || !strings.Contains(failing[0].Err.Error(), "not a member") {
		t.Errorf("%+v", failing)
	}
	if cards, err = op.list(t.Context()); err != nil {
		t.Fatal(err)
	}
	for session := range cards { // the card now has another key than the process at that address
		k := card{Node: c.cluster.self.name, Peer: c.cluster.self.told, Key: newIdentity(t).Fingerprint(), Answers: true}
		if _, err := ns.Open(t.Context(), session, fallback.Registration{TTL: time.Hour, Info: k.encode()}); err != nil {
			t.Fatal(err)
		}
	}
	spy := enter(t, copied, &Options{Name: "spy", Observe: true})
	failing = spy.cluster.net.Failing()
	if len(failing) != 1 || spy.cluster.linkNode(c.cluster.self.name) != nil {
		t.Errorf("an observer believes a node with another key: %+v", failing)
	}
}

// The card is gone when the observer closes, and published anew while it lives.
func TestObserve_TheKeyIsPublishedForAShortTime(t *testing.T) {
	a := fallback.NewMemory()
	c := enter(t, a, small())
	op, err := New(t.Context(), a, &Options{Name: strings.Repeat("n", maxProcessName), Observe: true, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	load := func() fallback.Result {
		r, err := c.remote.ns.(fallback.ResultStore).LoadResult(t.Context(), 0, op.cluster.self.observing.key)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	if r := load(); decodeCard(string(r.Value)).Key != op.cluster.self.identity.Fingerprint() {
		t.Errorf("%+v", r)
	}
	if r, err := op.Report(t.Context(), c.cluster.self.name); err != nil || r.ID != c.cluster.self.name {
		t.Errorf("%+v, %v", r, err)
	}
	if err := op.Close(context.Background()); err != nil {
		t.Error(err)
	}
	await.Until(t, "the key is gone", func() bool { return load().Fence == 0 })
}

// While a deployment changes SessionTTL, an observer keeps its streams to nodes of both Keepalives.
func TestObserve_NodesWithDifferentKeepalives(t *testing.T) {
	takes.Seconds(t)
	t.Parallel()
	a, o := fallback.NewMemory(), small()
	o.Cluster.Keepalive = 400 * time.Millisecond
	c := enter(t, a, o)
	register(t, c, "quick", card{Node: "quick", Keepalive: 100 * time.Millisecond})
	register(t, c, "none", card{Node: "none", Keepalive: time.Millisecond})
	register(t, c, "deaf", card{Node: "deaf", Keepalive: math.MaxInt64})
	op := enter(t, a, &Options{Name: "op", Observe: true})
	if shortest, longest := op.cluster.keepalives(); shortest != 100*time.Millisecond || longest != o.Cluster.Keepalive {
		t.Errorf("they are from %v to %v", shortest, longest)
	}
	l := op.cluster.linkNode(c.cluster.self.name)
	await.Throughout(t, 2*time.Second, "the stream lasts", func() bool { return !l.down.Load() })
}

// An observer forgets the sessions of a node that are not listed any more, and with a stream all of
// them.
func TestObserve_SessionsThatHaveEnded(t *testing.T) {
	a := fallback.NewMemory()
	c := enter(t, a, small())
	op := enter(t, a, &Options{Name: "op", Observe: true})
	x, node := op.cluster, c.cluster.self.name
	l := x.linkNode(node)
	sessions := func() (all []string) {
		x.streams.links.Range(func(session, other any) bool {
			if other == l {
				all = append(all, session.(string))
			}
			return true
		})
		return all
	}
	x.streams.links.Store("ended", l)
	l.introduced()
	if got, want := sessions(), []string{c.sessions.id()}; !slices.Equal(got, want) {
		t.Errorf("the stream is that of %q, want %q", got, want)
	}
	x.streams.links.Store("ended", l)
	l.s.Close(errAgain)
	await.Until(t, "it is forgotten", func() bool { return l.down.Load() && len(sessions()) == 0 })
	l.introduced()
	if got := sessions(); len(got) > 0 {
		t.Errorf("the stream has ended, and is that of %q", got)
	}
}

// listed counts the lists that an arbiter without results is asked for.
type listed struct {
	fallback.Arbiter
	lists *atomic.Int32
}

func (a listed) Attach(ctx context.Context, s fallback.Settings) (fallback.Namespace, error) {
	ns, err := a.Arbiter.Attach(ctx, s)
	return listedSpace{ns, a.lists}, err
}

type listedSpace struct {
	fallback.Namespace
	lists *atomic.Int32
}

func (n listedSpace) List(ctx context.Context) (fallback.Listing, error) {
	n.lists.Add(1)
	return n.Namespace.List(ctx)
}

// Where observers are sessions, strangers that call themselves observers share the lists that they
// make a node ask for.
func TestObserve_StrangersShareLists(t *testing.T) {
	var lists atomic.Int32
	c := enter(t, listed{fallback.NewMemory(), &lists}, small())
	known := newIdentity(t)
	const op = "observer op/1"
	k := card{Node: op, Key: known.Fingerprint()}
	for _, session := range []string{observerSession(op), "another"} { // a card counts under its own name
		if _, err := c.remote.ns.Open(t.Context(), session, fallback.Registration{TTL: time.Hour, Info: k.encode()}); err != nil {
			t.Fatal(err)
		}
		k.Node = "observer op/2"
	}
	before := lists.Load()
	const strangers = 120
	var work sync.WaitGroup
	for range strangers {
		work.Go(func() {
			if err := c.members().verify("observer op/2", nil); !errors.Is(err, errNotPublished) {
				t.Error(err)
			}
		})
	}
	work.Wait()
	if n := lists.Load() - before; n > strangers/4 {
		t.Errorf("%d strangers have the arbiter list its sessions %d times", strangers, n)
	}
	stranger, friend := intrude(t, c, op, newIdentity(t)), intrude(t, c, op, known)
	select {
	case <-friend.ups:
	case <-time.After(20 * time.Second):
		t.Fatal("an observer gets no stream")
	}
	if len(stranger.ups) > 0 {
		t.Error("a stranger has got a stream")
	}
}
