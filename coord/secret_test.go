package coord

import (
	"bytes"
	"crypto/tls"
	"net"
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

// secretsOf makes secrets of these ages, newest first.
func secretsOf(ages ...time.Duration) (all fallback.Secrets) {
	for i, age := range ages {
		all[i] = fallback.Secret{Key: [32]byte{1, byte(len(ages) - i)}, Age: age}
	}
	return all
}

// One node has been told of a new secret, and another one has not. They understand each other at
// any moment, as long as both renew.
func TestGossipKeysWhileASecretIsRotated(t *testing.T) {
	o := (&Options{}).filled()
	key := func(ages ...time.Duration) []byte { return gossipKeys(secretsOf(ages...), &o)[0] }
	first := key(1000 * time.Hour)
	for _, c := range []struct {
		name string
		ages []time.Duration
		n    int
		old  bool // the one before encrypts
	}{
		{"before", []time.Duration{1000 * time.Hour}, 1, true},
		{"new", []time.Duration{0, 1000 * time.Hour}, 2, true},
		{"known to all", []time.Duration{2*o.RenewEvery + o.CallTimeout, 1000 * time.Hour}, 2, false},
		{"used by all", []time.Duration{time.Minute, 1000 * time.Hour}, 1, false},
	} {
		keys := gossipKeys(secretsOf(c.ages...), &o)
		if len(keys) != c.n || bytes.Equal(keys[0], first) != c.old {
			t.Errorf("%s: %d keys, the old one encrypts: %t", c.name, len(keys), bytes.Equal(keys[0], first))
		}
	}
	if keys := gossipKeys(fallback.Secrets{}, &o); keys != nil {
		t.Error("keys of no secret")
	}
	o.Namespace = "another"
	if bytes.Equal(key(1000*time.Hour), first) {
		t.Error("two namespaces with one secret have the same key")
	}
}

// The gossip of a cluster whose options say nothing is encrypted, and stays so through a rotation,
// on all nodes.
func TestSecretIsRotatedWhileTheClusterRuns(t *testing.T) {
	takes.Seconds(t)
	arbiter := fallback.NewMemory()
	o := func() *Options {
		o := small()
		o.RenewEvery = 100 * time.Millisecond
		o.SessionTTL, o.Grace, o.Cluster.Keepalive = 3*time.Second, 4*time.Second, 200*time.Millisecond // the old secret is forgotten a SessionTTL later
		return o
	}
	a, b := enter(t, arbiter, o()), enter(t, arbiter, o())
	await.Until(t, "a and b own all", func() bool { return a.Stats().Owned+b.Stats().Owned == 61 && b.Stats().Owned > 0 })
	encrypts := func(c *Coordinator) []byte { return c.cluster.ring.(*gossip.Ring).Keys()[0] }
	before := encrypts(a)
	if !bytes.Equal(before, encrypts(b)) {
		t.Fatal("the nodes have different keys")
	}
	if err := a.RotateSecret(t.Context()); err != nil {
		t.Fatal(err)
	}
	await.Until(t, "both use the new secret, and have forgotten the old one", func() bool {
		return !bytes.Equal(encrypts(a), before) && bytes.Equal(encrypts(a), encrypts(b)) &&
			len(a.cluster.ring.(*gossip.Ring).Keys()) == 1 && len(b.cluster.ring.(*gossip.Ring).Keys()) == 1
	})
	c := enter(t, arbiter, o())
	await.Until(t, "a new node gets its share", func() bool { return c.Stats().Owned > 0 && len(a.Nodes()) == 3 })
}

// A process can gossip, as it has a copy of the secret or the keys. It says under a member's name
// that the member is elsewhere. The node is dialled, and requests are sent, where the arbiter says
// that it is.
func TestAddressesComeFromTheArbiter(t *testing.T) {
	t.Parallel()
	o := small()
	o.Cluster.GossipKeys = [][]byte{[]byte("16 bytes of keys")}
	c := enter(t, fallback.NewMemory(), o)
	listen := func() (addr string, dialled chan struct{}) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close() })
		dialled = make(chan struct{}, 1)
		go func() {
			if conn, err := l.Accept(); err == nil {
				_ = conn.Close()
				dialled <- struct{}{}
			}
		}()
		return l.Addr().String(), dialled
	}
	right, dialled := listen()
	wrong, elsewhere := listen()
	victim := card{Node: "victim", Peer: right, Service: "http://right", Key: newIdentity(t).Fingerprint()}
	register(t, c, "its-session", victim)
	liar, err := gossip.Start(ring.Options{
		Name: victim.Node, Session: "its-session", Peer: wrong, Partitions: 61, Label: c.opts.Namespace, Bind: "127.0.0.1:0",
		Keys: o.Cluster.GossipKeys, Seeds: []string{c.cluster.ring.Gossip()},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = liar.(*gossip.Ring).Close() }()
	if err := liar.SetState(ring.Active); err != nil {
		t.Fatal(err)
	}
	await.Until(t, "the arbiter's address is dialled", func() bool { return len(dialled) > 0 })
	for _, n := range c.Nodes() {
		if n.ID == victim.Node && (n.Peer != right || n.Service != victim.Service) {
			t.Errorf("%+v", n)
		}
	}
	if len(elsewhere) > 0 {
		t.Error("the address of the gossip is dialled")
	}
}

// keyed is a membership with keys.
type keyed struct{ ring.Membership }

func (keyed) Keys() [][]byte { return [][]byte{{1}} }

// The log names the protection that the transport gives the streams, not the one that the options
// ask for.
func TestProtectionOfStreams(t *testing.T) {
	identity := newIdentity(t)
	verify := func(string, *tls.ConnectionState) error { return nil }
	for name, test := range map[string]struct {
		o        peer.Options
		identity *peer.Identity
		want     string
	}{
		"no TLS":         {peer.Options{}, nil, "STREAMS OPEN TO ALL"},
		"no look at it":  {peer.Options{TLS: identity.TLS()}, identity, "STREAMS OPEN TO ALL"},
		"keys":           {peer.Options{TLS: identity.TLS(), Verify: verify}, identity, "streams by keys that the arbiter lists"},
		"an authority's": {peer.Options{TLS: identity.TLS(), Verify: verify}, nil, "streams by PeerTLS, of nodes that the arbiter lists"},
	} {
		test.o.Node, test.o.Handler = "a", &outsider{}
		tr, err := peer.Start(test.o)
		if err != nil {
			t.Fatal(err)
		}
		x := &cluster{c: &Coordinator{opts: Options{Cluster: &Cluster{}}}, ring: keyed{}, net: tr, self: selfNode{identity: test.identity}}
		if got, want := x.protection(), "gossip by GossipKeys, "+test.want; got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
		_ = tr.Close()
	}
}

// Where the gossip has keys of its own the secret protects nothing, and its rotation returns an
// error.
func TestRotateSecret_BesideGossipKeys(t *testing.T) {
	t.Parallel()
	o := small()
	o.Cluster.GossipKeys = [][]byte{[]byte("16 bytes of keys")}
	a := fallback.NewMemory()
	c := enter(t, a, o)
	if err := c.RotateSecret(t.Context()); err == nil || !strings.Contains(err.Error(), "Options.Cluster.GossipKeys") {
		t.Errorf("got %v", err)
	}
	if r, err := c.Report(t.Context(), ""); err != nil || r.Gossip != OwnGossipKeys {
		t.Errorf("it reports %q, %v", r.Gossip, err)
	}
	plain := small()
	plain.Cluster = nil
	if err := enter(t, a, plain).RotateSecret(t.Context()); err != nil { // it cannot know
		t.Error(err)
	}
}
