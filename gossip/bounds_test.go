package gossip

import (
	"bytes"
	"compress/lzw"
	"encoding/binary"
	"errors"
	"io"
	"log"
	"net"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/memberlist"
)

// Of streams that say nothing, a node keeps 16.
func TestSilentStreamsAtATime(t *testing.T) {
	const more = 8
	a := begin(t, options("a"), hooks{tune: func(c *memberlist.Config) {
		quick(c)
		c.TCPTimeout = 10 * time.Minute // memberlist ends none of them
	}})
	ended := make(chan struct{}, 16+more)
	for range 16 + more {
		c, err := net.Dial("tcp", a.Gossip())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		go func() {
			if _, err := c.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) && !errors.Is(err, net.ErrClosed) {
				ended <- struct{}{}
			}
		}()
	}
	for n := range more {
		select {
		case <-ended:
		case <-time.After(patience):
			t.Fatalf("%d of %d streams were refused, want %d", n, 16+more, more)
		}
	}
	select {
	case <-ended:
		t.Errorf("fewer than 16 streams are kept")
	case <-time.After(100 * time.Millisecond):
	}
}

// bomb is a packet of memberlist's that inflates to size bytes.
func bomb(t *testing.T, label string, size int) []byte {
	t.Helper()
	var b bytes.Buffer
	w := lzw.NewWriter(&b, lzw.LSB, 8)
	zeros := make([]byte, 1<<16)
	for n := 0; n < size; n += len(zeros) {
		if _, err := w.Write(zeros); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	const compressed = 9 // memberlist's type of message
	p := append([]byte{244, byte(len(label))}, label...)
	p = append(p, compressed, 0x82, 0xa4, 'A', 'l', 'g', 'o', 0, 0xa3, 'B', 'u', 'f', 0xda)
	p = binary.BigEndian.AppendUint16(p, uint16(b.Len()))
	return append(p, b.Bytes()...)
}

// lines is a log's lines.
type lines chan string

func (l lines) Write(b []byte) (int, error) {
	select {
	case l <- string(b):
	default: // of a node that no test listens to any more
	}
	return len(b), nil
}

// A stranger's compressed messages are not inflated, neither packets nor streams. Without keys they are.
func TestAStrangersMessagesAreNotInflated(t *testing.T) {
	const size = 4 << 20
	p := bomb(t, options("").Label, size)
	if len(p) > 60_000 {
		t.Fatalf("%d bytes do not fit into a packet", len(p))
	}
	// inflate returns what the process allocates while the node gets the message in both ways.
	inflate := func(keys [][]byte) uint64 {
		said := make(lines, 1000)
		opts := options("a")
		opts.Keys = keys
		a := begin(t, opts, hooks{tune: func(c *memberlist.Config) {
			quick(c)
			c.Logger = log.New(said, "", 0)
		}})
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		u, err := net.Dial("udp", a.Gossip())
		if err != nil {
			t.Fatal(err)
		}
		defer u.Close()
		if _, err := u.Write(p); err != nil {
			t.Fatal(err)
		}
		c, err := net.Dial("tcp", a.Gossip())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := c.Write(p); err != nil {
			t.Fatal(err)
		}
		_ = c.SetReadDeadline(time.Now().Add(patience))
		if _, err := io.Copy(io.Discard, c); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Error("the stream is open still")
		}
		// Each message ends with a complaint: of its key, or of a type that what it inflates to begins with.
		for packet := false; !packet; {
			select {
			case line := <-said:
				packet = strings.Contains(line, u.LocalAddr().String())
				t.Log(strings.TrimSpace(line))
			case <-time.After(patience):
				t.Fatal("nothing is said of the packet")
			}
		}
		runtime.ReadMemStats(&after)
		return after.TotalAlloc - before.TotalAlloc
	}
	if n := inflate([][]byte{key(1, 32)}); n > size/2 {
		t.Errorf("%d bytes were allocated for %d bytes of a stranger", n, 2*len(p))
	}
	if n := inflate(nil); n < 2*size {
		t.Errorf("%d bytes were allocated where there is no key: the messages do not inflate", n)
	}
}
