package gossip

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/memberlist"

	watching "github.com/holdfast-go/holdfast/internal/await"
	"github.com/holdfast-go/holdfast/internal/reexec"
	"github.com/holdfast-go/holdfast/internal/takes"
	"github.com/holdfast-go/holdfast/ring"
)

func TestAnotherLabelIsRefused(t *testing.T) {
	a := begin(t, options("a"), hooks{})
	opts := options("b")
	opts.Label = "other"
	b := begin(t, opts, hooks{})
	if err := b.join(a.Gossip()); err == nil {
		t.Error("joined")
	}
	if err := a.join(b.Gossip()); err == nil {
		t.Error("joined")
	}
	alone(t, a, b)
}

func key(b byte, n int) []byte { return slices.Repeat([]byte{b}, n) }

func TestAnotherKeyIsRefused(t *testing.T) {
	var rings []*Ring
	for i, keys := range [][][]byte{nil, {key(1, 32)}, {key(2, 32)}, {key(3, 16), key(1, 32)}} {
		opts := options(fmt.Sprint(i))
		opts.Keys = keys
		rings = append(rings, begin(t, opts, hooks{}))
	}
	for i, a := range rings {
		for j, b := range rings {
			if i == j || i+j == 4 && i != 2 { // 3 understands 1, which does not understand the answer
				continue
			}
			err := a.join(b.Gossip())
			if err == nil || i > 0 && j > 0 && !errors.Is(err, ring.ErrOtherKeys) {
				t.Errorf("%d joins %d: %v", i, j, err)
			}
		}
	}
	alone(t, rings...)
}

func TestKeysChangeWithoutLosingAnybody(t *testing.T) {
	t.Parallel()
	old, next := key(1, 32), key(2, 16)
	var reg registry
	var rings []*Ring
	for i := range 3 {
		opts := options(fmt.Sprint("n", i))
		opts.Discover, opts.Keys = reg.discover, [][]byte{old}
		r := begin(t, opts, hooks{})
		reg.add(r.Gossip())
		r.SetState(ring.Active)
		rings = append(rings, r)
	}
	agree(t, rings...)
	settled := rings[0].View()
	for i, keys := range [][][]byte{{old, next}, {next, old}, {next}} {
		for _, r := range rings {
			if err := r.SetKeys(keys); err != nil {
				t.Fatal(err)
			}
		}
		// Gossip gets through after each step.
		session := fmt.Sprint("after-step-", i)
		rings[i].SetSession(session)
		for _, r := range rings {
			await(t, r, session, func(v *ring.View) bool { _, ok := v.BySession(session); return ok })
		}
	}
	if rings[0].View().Fingerprint() != settled.Fingerprint() {
		t.Error("somebody was lost")
	}
	if err := rings[0].SetKeys(nil); err == nil {
		t.Error("the last key was removed")
	}
	if err := rings[0].SetKeys([][]byte{next, []byte("short")}); err == nil {
		t.Error("a short key was added")
	}
	if n := len(rings[0].Keys()); n != 1 {
		t.Errorf("%d keys, want 1", n)
	}
	opts := options("late")
	opts.Keys, opts.Seeds = [][]byte{next}, []string{rings[0].Gossip()}
	late := begin(t, opts, hooks{})
	late.SetState(ring.Active)
	agree(t, append(rings, late)...)
}

// alive is memberlist's message of a node that is alive: a type, and a msgpack map.
func alive(name string, addr []byte, port byte, versions ...byte) []byte {
	return aliveAs(name, addr, uint16(port), 1, versions...)
}

// aliveAs is the same with a number of its own.
func aliveAs(name string, addr []byte, port uint16, incarnation uint32, versions ...byte) []byte {
	b := []byte{aliveMsg, 0x85}
	field := func(name string, value ...byte) {
		b = append(append(append(b, 0xa0|byte(len(name))), name...), value...)
	}
	blob := func(v []byte) []byte {
		return append(binary.BigEndian.AppendUint32([]byte{0xc6}, uint32(len(v))), v...)
	}
	field("Node", append(binary.BigEndian.AppendUint32([]byte{0xdb}, uint32(len(name))), name...)...)
	field("Addr", blob(addr)...)
	field("Port", binary.BigEndian.AppendUint16([]byte{0xcd}, port)...)
	field("Incarnation", binary.BigEndian.AppendUint32([]byte{0xce}, incarnation)...)
	field("Vsn", blob(versions)...)
	return b
}

var here = []byte{127, 0, 0, 1}

// One message of a stranger must not keep others out.
func TestWhatIsNoNodeIsNoMember(t *testing.T) {
	for name, message := range map[string][]byte{
		"nothing":                    {4, 0x80},
		"a number":                   {4, 0x91, 7},
		"no name":                    alive("", here, 7, 1, 5, 2, 0, 0, 0),
		"no address":                 alive("x", nil, 7, 1, 5, 2, 0, 0, 0),
		"half an address":            alive("x", here[:2], 7, 1, 5, 2, 0, 0, 0),
		"no version":                 alive("x", here, 7),
		"half a version":             alive("x", here, 7, 1, 5, 2),
		"a later version":            alive("x", here, 7, 5, 5, 5, 0, 0, 0),
		"an earlier version":         alive("x", here, 7, 1, 1, 1, 0, 0, 0),
		"a version of nobody":        alive("x", here, 7, 1, 9, 9, 0, 0, 0),
		"not what it understands":    alive("x", here, 7, 1, 2, 3, 0, 0, 0),
		"another delegate's version": alive("x", here, 7, 1, 5, 2, 1, 1, 1),
		"speaks another delegate's":  alive("x", here, 7, 1, 5, 2, 0, 1, 1),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := begin(t, options("a"), hooks{})
			u, err := net.Dial("udp", a.Gossip())
			if err != nil {
				t.Fatal(err)
			}
			defer u.Close()
			label := append([]byte{244, byte(len(a.opts.Label))}, a.opts.Label...)
			for range 3 {
				u.Write(append(slices.Clone(label), message...))
			}
			// When this one is a member the others have been read, and are handled now if they were
			// not before it: memberlist begins with the last one. So it is looked again in the end.
			u.Write(append(slices.Clone(label), alive("y", here, 7, 1, 5, 2, 0, 0, 0)...))
			await(t, a, "y", sees("y"))
			known := []string{a.Name(), "y"}
			look := func() {
				for _, m := range a.Members() {
					if !slices.Contains(known, m.Name) {
						t.Errorf("a member: %+v", m)
					}
				}
			}
			look()
			opts := options("b")
			opts.Seeds = []string{a.Gossip()}
			b := begin(t, opts, hooks{})
			known = append(known, b.Name())
			a.SetState(ring.Active)
			b.SetState(ring.Active)
			agree(t, a, b)
			look()
		})
	}
}

// accuse sends a node a statement about another one with this number.
func accuse(t *testing.T, at, of *Ring, incarnation uint32, as string) {
	t.Helper()
	addr := netip.MustParseAddrPort(of.Gossip())
	state(t, at, aliveAs(of.Name(), addr.Addr().AsSlice(), addr.Port(), incarnation, 1, 5, 2, 0, 0, 0), as)
}

// state sends a node a statement of aliveAs, in a packet, or in a stream like that of a node that
// joins. It waits until the statement has been read.
func state(t *testing.T, at *Ring, says []byte, as string) {
	t.Helper()
	if as == "state" {
		says[1]++ // of its fields
		says = append(bytes.Replace(says[1:], []byte("\xa4Node"), []byte("\xa4Name"), 1), "\xa5State\x00"...)
		c, err := net.Dial("tcp", at.Gossip())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		head := []byte("\x06\x83\xa5Nodes\x01\xacUserStateLen\x00\xa4Join\xc2")
		_, _ = c.Write(streamOf(t, at.opts.Label, nil, append(head, says...)))
		_ = c.SetReadDeadline(time.Now().Add(patience))
		if _, err := io.Copy(io.Discard, c); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatal("the state is not read")
		}
		return
	}
	u, err := net.Dial("udp", at.Gossip())
	if err != nil {
		t.Fatal(err)
	}
	defer u.Close()
	_, _ = u.Write(packetOf(t, at.opts.Label, nil, says))
	mark := "mark-" + as
	_, _ = u.Write(packetOf(t, at.opts.Label, nil, alive(mark, here, 7, 1, 5, 2, 0, 0, 0)))
	await(t, at, mark, sees(mark))
}

// joined returns two nodes. b sees a.
func joined(t *testing.T) (a, b *Ring) {
	t.Helper()
	a, b = begin(t, options("a"), hooks{}), begin(t, options("b"), hooks{})
	if err := b.join(a.Gossip()); err != nil {
		t.Fatal(err)
	}
	await(t, b, "a", sees(a.Name()))
	return a, b
}

// A node whose number memberlist could not raise any more would not be heard again.
func TestNoNodeIsGivenANumberThatItCannotAnswer(t *testing.T) {
	t.Parallel()
	for _, as := range []string{"packet", "state"} {
		a, b := joined(t)
		accuse(t, b, a, math.MaxUint32, as)
		if err := a.SetSession("later"); err != nil {
			t.Fatal(err)
		}
		await(t, b, "what a says later", func(v *ring.View) bool { _, ok := v.BySession("later"); return ok })
	}
}

// The highest number that is let through is answered, and the answer is let through.
func TestANodeAnswersTheHighestNumber(t *testing.T) {
	t.Parallel()
	for _, as := range []string{"packet", "state"} {
		a, b := joined(t)
		accuse(t, b, a, uint32(highest(time.Now())), as) // without metadata
		if err := a.SetSession("later"); err != nil {
			t.Fatal(err)
		}
		await(t, b, "the answer", func(v *ring.View) bool { n, ok := v.BySession("later"); return ok && !n.Incompatible })
	}
}

func TestHighest(t *testing.T) {
	for at, want := range map[string]uint64{
		"1970-01-01T00:00:00Z": 1 << 20, "2026-01-01T00:00:00Z": 1 << 20, "2026-01-01T00:00:10Z": 1<<20 + 40, "2027-01-01T00:00:00Z": 1<<20 + 4*365*86400,
	} {
		now, err := time.Parse(time.RFC3339, at)
		if err != nil {
			t.Fatal(err)
		}
		if n := highest(now); n != want {
			t.Errorf("%s: %d, want %d", at, n, want)
		}
	}
	s := screen{label: "test"}
	for kind, before := range map[byte]time.Duration{suspectMsg: answered, aliveMsg: 0, deadMsg: answered} {
		most := uint32(highest(time.Now().Add(-before)))
		for more, ok := range map[uint32]bool{0: true, 100: false, math.MaxUint32 - most: false} {
			for form, head := range map[string]string{"map": "\x81\xabIncarnation\xce", "list": "\x91\xce"} { // memberlist reads both
				says := binary.BigEndian.AppendUint32(append([]byte{kind}, head...), most+more)
				if err := s.packet(packetOf(t, s.label, nil, says)); (err == nil) != ok {
					t.Errorf("message %d, a %s with %d: %v", kind, form, most+more, err)
				}
			}
		}
	}
	ping := []byte("\x00\x81\xa5SeqNo\xce\xff\xff\xff\xff") // of another kind
	if err := s.packet(packetOf(t, s.label, nil, ping)); err != nil {
		t.Error(err)
	}
}

// A member's words about others must not grow in memory, nor beyond a node's answer to one that
// joins.
func TestNamesAndMetadataHaveALength(t *testing.T) {
	t.Parallel()
	long := func(n int) string { return strings.Repeat("x", n) }
	version := []byte{1, 5, 2, 0, 0, 0}
	with := func(meta int, says []byte) []byte {
		says[1]++
		return append(binary.BigEndian.AppendUint32(append(says, "\xa4Meta\xc6"...), uint32(meta)), long(meta)...)
	}
	for name, c := range map[string]struct {
		says []byte
		as   string
		ok   bool
	}{
		"a name of the longest":        {aliveAs(long(maxName), here, 7, 1, version...), "packet", true},
		"metadata of the longest":      {with(memberlist.MetaMaxSize, aliveAs("y", here, 7, 1, version...)), "state", true},
		"a name of one more":           {aliveAs(long(maxName+1), here, 7, 1, version...), "packet", false},
		"a name of one more, a state":  {aliveAs(long(maxName+1), here, 7, 1, version...), "state", false},
		"metadata of one more":         {with(memberlist.MetaMaxSize+1, aliveAs("y", here, 7, 1, version...)), "packet", false},
		"a name of almost 4 MiB":       {aliveAs(long(maxState-200), here, 7, 1, version...), "state", false},
		"versions of almost 4 MiB":     {aliveAs("y", here, 7, 1, append(version, make([]byte, maxState-300)...)...), "state", false},
		"a version as a list of 1,000": {aliveList("y", 1000), "packet", false},
	} {
		t.Run(name, func(t *testing.T) {
			a := begin(t, options("a"), hooks{})
			state(t, a, c.says, c.as)
			b := begin(t, options("b"), hooks{})
			if err := b.join(a.Gossip()); err != nil {
				t.Error(err)
			}
			await(t, a, "b", sees(b.Name()))
			got := slices.ContainsFunc(a.Members(), func(n ring.Node) bool { return n.Name[0] == 'x' || n.Name[0] == 'y' })
			if got != c.ok {
				t.Errorf("it is a member: %v", got)
			}
		})
	}
}

// aliveList is a message of a node with so many versions, as a list, which memberlist reads as
// well.
func aliveList(name string, versions uint16) []byte {
	b := alive(name, here, 7)
	b = append(b[:len(b)-len("\xc6\x00\x00\x00\x00")], 0xdc)
	b = append(binary.BigEndian.AppendUint16(b, versions), 1, 5, 2)
	return append(b, make([]byte, versions-3)...)
}

func TestGarbageDoesNoHarm(t *testing.T) {
	takes.Seconds(t)
	for name, keys := range map[string][][]byte{"plain": nil, "encrypted": {key(1, 32)}} {
		t.Run(name, func(t *testing.T) {
			opts := options("a")
			opts.Keys = keys
			a := begin(t, opts, hooks{})
			label := append([]byte{244, byte(len(opts.Label))}, opts.Label...) // so that some of it gets further
			for i := range 300 {
				b := make([]byte, 1+i*i%1300)
				rand.Read(b)
				b[0] = byte(i % 16) // a message type
				if i%2 == 0 {
					b = append(slices.Clone(label), b...)
				}
				u, err := net.Dial("udp", a.Gossip())
				if err != nil {
					t.Fatal(err)
				}
				u.Write(b)
				u.Close()
				if i%10 < 2 {
					c, err := net.Dial("tcp", a.Gossip())
					if err != nil {
						t.Fatal(err)
					}
					c.Write(b)
					if i%20 < 2 {
						defer c.Close() // says no more, and stays
					} else {
						c.Close()
					}
				}
			}
			opts = options("b")
			opts.Keys, opts.Seeds = keys, []string{a.Gossip()}
			b := begin(t, opts, hooks{})
			a.SetState(ring.Active)
			b.SetState(ring.Active)
			agree(t, a, b)
			if len(a.Members()) != 2 {
				t.Errorf("members: %v", a.Members())
			}
		})
	}
}

func TestOtherNodesAreShownAndNeverPlaced(t *testing.T) {
	t.Parallel()
	a := begin(t, options("a"), hooks{})
	opts := options("b")
	opts.Partitions, opts.Seeds = 272, []string{a.Gossip()}
	b := begin(t, opts, hooks{})
	stranger := memberlist.DefaultLANConfig()
	stranger.Name, stranger.Label, stranger.BindAddr, stranger.BindPort = "stranger", "test", "127.0.0.1", 0
	quick(stranger)
	stranger.Logger = discard
	stranger.EnableCompression = false // no node takes that
	stranger.Delegate = &babble{}
	list, err := memberlist.Create(stranger)
	if err != nil {
		t.Fatal(err)
	}
	defer list.Shutdown()
	if _, err := list.Join([]string{a.Gossip()}); err != nil {
		t.Fatal(err)
	}
	a.SetState(ring.Active)
	b.SetState(ring.Active)
	agree(t, a)
	for _, name := range []string{b.Name(), "stranger"} {
		v := await(t, a, name, sees(name))
		if n, _ := v.Node(name); !n.Incompatible || n.Session != "" || n.Gossip == "" {
			t.Errorf("%+v", n)
		}
	}
	agree(t, a)
}

// A node with keys that no other has yet joins none, so no node complains; and it complains of
// none. With their keys it does.
func TestNothingIsSaidBeforeKeysAreKnown(t *testing.T) {
	var logs [2]reexec.Buffer
	said := func(i int) string { return logs[i].String() }
	opts := options("old")
	opts.Keys = [][]byte{key(1, 32)}
	opts.Logger = slog.New(slog.NewTextHandler(&logs[0], nil))
	old := begin(t, opts, hooks{})
	opts = options("new")
	opts.Keys, opts.Provisional, opts.Seeds = [][]byte{key(2, 32)}, true, []string{old.Gossip()}
	opts.Logger = slog.New(slog.NewTextHandler(&logs[1], nil))
	searches := make(chan struct{}, 100)
	opts.Discover = func(context.Context) ([]string, error) { searches <- struct{}{}; return nil, nil }
	r := begin(t, opts, hooks{})
	for range 4 { // the first three are over
		<-searches
	}
	if err := old.join(r.Gossip()); !errors.Is(err, ring.ErrOtherKeys) {
		t.Errorf("the old node joins: %v", err)
	}
	for i := range logs {
		if said(i) != "" {
			t.Errorf("node %d says %s", i, said(i))
		}
	}
	if n := len(r.Failing()); n != 0 {
		t.Errorf("%d nodes count as failing", n)
	}
	if err := r.SetKeys(opts.Keys); err != nil { // it is known now that nobody else has them
		t.Fatal(err)
	}
	watching.Until(t, "the old node complains", func() bool { return strings.Contains(said(0), "gossip complains") })
	if err := r.SetKeys([][]byte{key(1, 32)}); err != nil {
		t.Fatal(err)
	}
	await(t, r, "the old node", sees(old.Name()))
}
