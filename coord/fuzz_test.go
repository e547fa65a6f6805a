package coord

import (
	"context"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/gossip"
	"github.com/holdfast-go/holdfast/internal/await"
	"github.com/holdfast-go/holdfast/peer"
)

// hostile is a node of the cluster that knows nothing of manners.
type hostile struct {
	ups   chan *peer.Stream
	pongs chan uint32
}

// Up keeps the newest stream. It must not wait: the process that only watches takes none.
func (x *hostile) Up(s *peer.Stream) {
	select {
	case <-x.ups:
	default:
	}
	x.ups <- s
}

func (x *hostile) Frame(_ *peer.Stream, f *peer.Frame) {
	if f.Kind == peer.Pong && f.Ping >= firstPing {
		x.pongs <- f.Ping
	}
}

// firstPing is the first one that is waited for.
const firstPing = 10

func (x *hostile) Down(*peer.Stream, error) {}

// frames makes frames of bytes: six each. They are as a node would send them in some situation,
// mostly not in this one.
func frames(c *Coordinator, b []byte) (all []peer.Frame) {
	keys := []string{"k", "l", "", "k\x00", strings.Repeat("k", MaxKey)}
	texts := []string{"", `{"about":"keys","keys":["aw==",""]}`, `{"about":"top","most":9,"by":1}`, `{"about":"held","most":1}`, `{"about":`, "{}",
		strings.Repeat("[", MaxKey)}
	sessions := []string{"stranger", c.sessions.current().ID, "other", "", "a b", "a\n", "\xff", strings.Repeat("s", peer.MaxSession)}
	for ; len(b) >= 6; b = b[6:] {
		key := keys[int(b[1])%len(keys)]
		p := c.partitionOf(key)
		f := peer.Frame{
			Kind: peer.Kind(1 + b[0]%12), Flags: b[0] >> 4 & 3, Key: []byte(key), Partition: p.Number(),
			Session: []byte(sessions[int(b[2])%len(sessions)]), Request: uint64(b[3] & 7), Ping: uint32(b[5] & 3), Left: uint32(b[5]) << 8,
		}
		if b[0] >= 0xe0 {
			f.Kind, f.Key = peer.Query+peer.Kind(b[0]&1), []byte(texts[int(b[1])%len(texts)])
		} else if b[0] >= 0xd0 {
			f.Kind, f.Flags = peer.Hint, "wafrcg\x00\xff"[b[0]&7]
		}
		if b[1]>>4 == 15 { // of another partition
			f.Partition += uint32(b[4])
		}
		p.mu.Lock()
		if epoch, _ := p.Serving(); epoch > 0 {
			f.Epoch = epoch + uint32(b[4]&3) - 1
			f.Token = uint64(fallback.MakeToken(f.Epoch, p.LastSeq()+uint32(b[4]>>2&7)-3))
		}
		p.mu.Unlock()
		if b[3]&64 != 0 {
			f.Count = uint32(b[3] >> 3)
		}
		all = append(all, f)
	}
	return all
}

// FuzzFrames: whatever another node sends, this one goes on, and grants nothing that could not be
// told the arbiter.
func FuzzFrames(f *testing.F) {
	c, err := New(context.Background(), fallback.NewMemory(), &Options{
		SessionTTL: time.Hour, RenewEvery: 15 * time.Minute, Grace: 2 * time.Hour, Partitions: 7,
		Cluster: &Cluster{Membership: gossip.Start, Gossip: "127.0.0.1:0", Debounce: 10 * time.Millisecond, Keepalive: time.Minute},
	})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second) // the stranger gives nothing back
		defer cancel()
		_ = c.Close(ctx)
	})
	await.Until(f, "it owns all", func() bool { return c.Stats().Owned == 7 })
	x := &hostile{make(chan *peer.Stream, 1), make(chan uint32, 64)}
	identity, err := peer.NewIdentity()
	if err != nil {
		f.Fatal(err)
	}
	for _, session := range []string{"stranger", "other"} {
		r := fallback.Registration{TTL: time.Hour, Info: card{Node: "hostile", Key: identity.Fingerprint()}.encode()}
		if _, err := c.remote.ns.Open(f.Context(), session, r); err != nil {
			f.Fatal(err)
		}
	}
	tr, err := peer.Start(peer.Options{
		Node: "hostile", Namespace: short(c.opts.Namespace), Version: c.opts.version(), Frames: frameVersions, TLS: identity.TLS(), Handler: x, Retry: time.Millisecond,
	})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { _ = tr.Close() })
	tr.SetPeers(map[string]string{c.cluster.self.name: c.cluster.net.Addr()})
	var s *peer.Stream
	ping := uint32(firstPing)
	for kind := range byte(12) {
		f.Add([]byte{kind, 0, 0, 1, 1, 1})
		f.Add([]byte{0, 0, 0, 1, 1, 1, kind | 16, 0, 0, 1, 1, 1, kind, 0, 4, 1, 1, 1, 3, 0, 0, 1, 1, 1})
		f.Add([]byte{8 | 16, 2, 4, 0, 0, 0, kind, 1, 4, 65, 2, 1, kind, 240, 5, 2, 1, 1})
	}
	f.Add([]byte{0xe0, 1, 0, 1, 0, 0, 0xe0, 2, 0, 2, 0, 0, 0xe0, 3, 0, 3, 0, 0, 0xe1, 1, 0, 1, 0, 0, 0xf0, 4, 0, 4, 0, 0, 0xe0, 2, 0, 4, 0, 0})
	f.Add([]byte{0xe0, 4, 0, 1, 0, 0})
	for hint := range byte(8) {
		f.Add([]byte{0xd0 | hint, 0, 1, 1, 1, 1, 0xd0 | hint, 3, 0, 2, 1, 1})
		f.Add([]byte{0, 0, 0, 1, 1, 1, 0xd0 | hint, 0, 0, 1, 1, 1, 0xd0 | hint, 0, 1, 1, 1, 1, 0xd0 | hint, 2, 4, 1, 1, 1})
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		late := time.After(8 * time.Second) // a fuzz test's process dies after 10 s
		for s == nil || s.Send(&peer.Frame{Kind: peer.Ping, Ping: 1}) != nil {
			select {
			case s = <-x.ups:
			case <-late:
				t.Fatal("no stream")
			}
		}
		for _, f := range frames(c, b[:min(len(b), 600)]) {
			if s.Send(&f) != nil {
				break // it was thrown out
			}
		}
		ping++
		_ = s.Send(&peer.Frame{Kind: peer.Ping, Ping: ping})
		for answered := false; !answered && s.Send(&peer.Frame{Kind: peer.Ping, Ping: 2}) == nil; {
			select {
			case n := <-x.pongs:
				answered = n == ping
			case <-time.After(time.Millisecond): // is it down?
			case <-late:
				t.Fatal("no answer")
			}
		}
		for i := range c.parts {
			p := &c.parts[i]
			p.mu.Lock()
			p.Others(func(key string, id fallback.Identity) {
				if key == "" || !storable([]byte(id.Session)) {
					t.Errorf("%.20q is %+v's", key, id)
				}
			})
			p.mu.Unlock()
		}
		c.cluster.streams.links.Range(func(session, _ any) bool {
			if !storable([]byte(session.(string))) {
				t.Errorf("a node's session is %q", session)
			}
			return true
		})
		l, err := c.TryLock(t.Context(), "another key")
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Unlock(); err != nil {
			t.Error(err)
		}
	})
}

// FuzzMessages: any process may send messages. They are hints, and none of them takes a lock away.
func FuzzMessages(f *testing.F) {
	c, err := New(context.Background(), fallback.NewMemory(), nil)
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { _ = c.Close(context.Background()) })
	for _, kind := range []fallback.MessageKind{fallback.Wake, fallback.Ask, fallback.Freed, fallback.Revoked, fallback.Gap, 0} {
		for _, request := range []uint64{0, 1, 2, 1 << 63} {
			f.Add(byte(kind), "k", request, uint32(0), uint32(0), true)
			f.Add(byte(kind), strings.Repeat("x", MaxKey+1), request, uint32(1<<31), uint32(1), false)
		}
	}
	f.Fuzz(func(t *testing.T, kind byte, key string, request uint64, number, epoch uint32, mine bool) {
		l, err := c.Lock(t.Context(), "k")
		if err != nil {
			t.Fatal(err)
		}
		s := c.sessions.current()
		session := "somebody"
		if mine {
			session = s.ID
		}
		c.handle(s, fallback.Message{Kind: fallback.MessageKind(kind), Partition: number, Epoch: epoch, Key: key, Request: request, Session: session})
		if err := l.Context().Err(); err != nil {
			t.Errorf("lost: %v", context.Cause(l.Context()))
		}
		if err := l.Unlock(); err != nil {
			t.Error(err)
		}
		if key = key[:min(len(key), MaxKey)]; key != "" { // the one that it was about
			if l, err = c.Lock(t.Context(), key); err != nil {
				t.Fatal(err)
			}
			if err := l.Unlock(); err != nil {
				t.Error(err)
			}
		}
	})
}

// FuzzPartition: the partition of a key is one of those that there are, and the same one as in the
// check of frames. All nodes of a cluster and all versions have to see it alike: the key's row is
// in it.
func FuzzPartition(f *testing.F) {
	for _, key := range []string{"", "k", "order-1", "\x00", "\xff\xfe", strings.Repeat("k", MaxKey)} {
		f.Add(key, uint16(1021))
		f.Add(key, uint16(1))
	}
	f.Fuzz(func(t *testing.T, key string, parts uint16) {
		if parts == 0 {
			return
		}
		c := new(Coordinator)
		c.divide(int(parts))
		for i := range c.parts {
			c.parts[i].Init(nil, uint32(i))
		}
		if p, want := c.partitionOf(key).Number(), uint32(xxhash.Sum64([]byte(key))%uint64(parts)); p != want {
			t.Errorf("%q is in partition %d of %d, a frame with it in %d", key, p, parts, want)
		}
	})
}

func TestRemainder(t *testing.T) {
	for range 1_000_000 {
		n := uint64(rand.Uint32()>>rand.IntN(32)) + 1
		h := rand.Uint64() >> rand.IntN(64)
		for _, h := range []uint64{h, math.MaxUint64 - h, h / n * n, h/n*n - 1} {
			if got := remainder(h, n, math.MaxUint64/n); got != h%n {
				t.Fatalf("%d %% %d is %d, not %d", h, n, h%n, got)
			}
		}
	}
}

// Another hash would put a key into another partition, and two versions of a program would both
// grant it.
func TestPartitionsOfKeysStay(t *testing.T) {
	c := new(Coordinator)
	c.divide(1021)
	for i := range c.parts {
		c.parts[i].Init(nil, uint32(i))
	}
	for key, want := range map[string]uint32{"order-1": 268, "sku:4711": 256, "\x00": 44, "tenant/\u00e9": 646, strings.Repeat("k", MaxKey): 880} {
		if p := c.partitionOf(key).Number(); p != want {
			t.Errorf("%.20q is in partition %d, was in %d", key, p, want)
		}
	}
}
