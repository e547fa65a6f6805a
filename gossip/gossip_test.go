package gossip

import (
	"bytes"
	"errors"
	"io"
	"log"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/memberlist"
)

var discard = log.New(io.Discard, "", 0)

// babble is the delegate of a node whose metadata makes no sense.
type babble struct{ identity }

func (*babble) NodeMeta(int) []byte { return []byte("what is this?") }

func TestLogLines(t *testing.T) {
	for line, want := range map[string]string{
		"[DEBUG] memberlist: Stream connection from=1.2.3.4:5\n": "",
		"[INFO] memberlist: Marking x as failed\n":               "",
		"[WARN] memberlist: Refuting a dead message\n":           `level=INFO msg="holdfast: gossip complains" text="Refuting a dead message"`,
		"[ERR] memberlist: Failed\n":                             `level=INFO msg="holdfast: gossip complains" text=Failed`,
		"Err: no level":                                          "",
		"":                                                       "",
	} {
		var b bytes.Buffer
		w := newLogWriter(slog.New(slog.NewTextHandler(&b, &slog.HandlerOptions{Level: slog.LevelInfo})))
		log.New(w, "", 0).Print(line)
		if got := b.String(); got == "" != (want == "") || !strings.Contains(got, want) {
			t.Errorf("%q: %q", line, got)
		}
		b.Reset()
		w.stop()
		log.New(w, "", 0).Print(line)
		if b.Len() > 0 {
			t.Errorf("%q after the end: %q", line, b.String())
		}
	}
	var b bytes.Buffer
	w := newLogWriter(slog.New(slog.NewTextHandler(&b, &slog.HandlerOptions{Level: slog.LevelDebug})))
	w.Write([]byte("Err: no level"))
	if !strings.Contains(b.String(), `level=DEBUG msg="holdfast: gossip says" text="Err: no level"`) {
		t.Error(b.String())
	}
}

// memberlist decrypts with the slice that it got from GetKeys, without a lock: the race detector
// watches.
func TestAKeyIsRemovedBesideReaders(t *testing.T) {
	a, b, c, d := key(1, 16), key(2, 16), key(3, 16), key(4, 16)
	k, err := memberlist.NewKeyring([][]byte{a, b, c, d}, a)
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			for range 2000 {
				for _, x := range k.GetKeys() {
					if len(x) != 16 {
						t.Error("half a key")
					}
				}
			}
		})
	}
	for range 100 {
		for _, x := range [][]byte{b, c, d, b} {
			if err := remove(k, x); err != nil {
				t.Fatal(err)
			}
			if slices.ContainsFunc(k.GetKeys(), func(y []byte) bool { return bytes.Equal(x, y) }) {
				t.Fatal("it is still there")
			}
		}
		if len(k.GetKeys()) != 1 {
			t.Fatalf("%d keys are left", len(k.GetKeys()))
		}
		for _, x := range [][]byte{b, c, d} {
			k.AddKey(x)
		}
	}
	wg.Wait()
	if err := remove(k, b); err != nil || !slices.EqualFunc(k.GetKeys(), [][]byte{a, c, d}, bytes.Equal) {
		t.Errorf("%v, %v", k.GetKeys(), err)
	}
	if err := remove(k, a); err == nil {
		t.Error("the key that encrypts was removed")
	}
}

func TestKeysOfPlainGossip(t *testing.T) {
	r := begin(t, options("n"), hooks{})
	if err := r.SetKeys([][]byte{key(1, 16)}); err != errPlain {
		t.Error(err)
	}
}

func TestSilentStreamsEndWithTheRing(t *testing.T) {
	a := begin(t, options("a"), hooks{})
	var conns []net.Conn
	for range 5 {
		conn, err := net.Dial("tcp", a.Gossip())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		conn.Write([]byte{244}) // the beginning of a label
		conns = append(conns, conn)
	}
	a.Close()
	for _, conn := range conns {
		conn.SetReadDeadline(time.Now().Add(time.Second)) // memberlist itself gives up after 2 s
		if _, err := conn.Read(make([]byte, 1)); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Error("still open")
		}
	}
}

func TestNoMoreStreamsThanAllowed(t *testing.T) {
	tr := &transport{conns: map[*stream]struct{}{}, from: map[netip.Addr]int{}}
	var last net.Conn
	for range maxStreams {
		c, _ := net.Pipe()
		s, err := tr.own(c, true)
		if err != nil {
			t.Fatal(err)
		}
		last = s
	}
	c, _ := net.Pipe()
	if _, err := tr.own(c, true); err != errTransport {
		t.Errorf("one more: %v", err)
	}
	c, _ = net.Pipe()
	if _, err := tr.own(c, false); err != nil {
		t.Errorf("one that this node opens: %v", err)
	}
	last.Close()
	last.Close() // counts once
	c, _ = net.Pipe()
	if _, err := tr.own(c, true); err != nil {
		t.Errorf("after one was closed: %v", err)
	}
	c, _ = net.Pipe()
	if _, err := tr.own(c, true); err != errTransport {
		t.Errorf("one more again: %v", err)
	}
}
