package gossip

import (
	"bytes"
	"compress/lzw"
	"crypto/aes"
	"crypto/cipher"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/memberlist"
)

// Of streams that say nothing, a node keeps 16, of one address 12.
func TestSilentStreamsAtATime(t *testing.T) {
	t.Parallel()
	a := begin(t, options("a"), hooks{tune: func(c *memberlist.Config) {
		quick(c)
		c.TCPTimeout = 10 * time.Minute // memberlist ends none of them
	}})
	ended := make(chan struct{}, 100)
	refuses := func(from string, streams, want int) {
		t.Helper()
		dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
		for range streams {
			c, err := dialer.Dial("tcp", a.Gossip())
			if err != nil {
				t.Skip("the machine has one loopback address: ", err)
			}
			t.Cleanup(func() { _ = c.Close() })
			go func() {
				if _, err := c.Read(make([]byte, 1)); !errors.Is(err, net.ErrClosed) {
					ended <- struct{}{}
				}
			}()
		}
		for n := range want {
			select {
			case <-ended:
			case <-time.After(patience):
				t.Fatalf("%d of %d streams of %s were refused, want %d", n, streams, from, want)
			}
		}
		select {
		case <-ended:
			t.Errorf("more than %d of %d streams of %s were refused", want, streams, from)
		case <-time.After(50 * time.Millisecond):
		}
	}
	refuses("127.0.0.1", 15, 3)
	refuses("127.0.0.2", 3, 0)
	refuses("127.0.0.3", 6, 5) // 16 in all
}

// A node keeps 64 members that Options.Known does not confirm: a process with a copy of the secret
// can name any number. One that it confirms gets in beside them.
func TestUnlistedMembersAtATime(t *testing.T) {
	said := make(lines, 1000)
	opts := options("a")
	opts.Logger = slog.New(slog.NewTextHandler(said, nil))
	opts.Known = func(name string) bool { return name == "listed" }
	a := begin(t, opts, hooks{tune: func(c *memberlist.Config) { c.ProbeInterval, c.PushPullInterval = time.Hour, 0 }}) // none is missed
	u, err := net.Dial("udp", a.Gossip())
	if err != nil {
		t.Fatal(err)
	}
	defer u.Close()
	tell := func(name string) {
		_, _ = u.Write(packetOf(t, opts.Label, nil, alive(name, here, 7, 1, 5, 2, 0, 0, 0)))
	}
	late := time.After(patience)
	for n, full := 0, false; !full; n++ {
		tell(fmt.Sprint("x", n))
		select {
		case line := <-said:
			full = strings.Contains(line, "the arbiter has not listed 64 members")
		case <-time.After(time.Millisecond):
		case <-late:
			t.Fatalf("%d members of %d are taken in", len(a.Members())-1, n)
		}
	}
	tell("listed")
	await(t, a, "the node that is confirmed", sees("listed"))
	if n := len(a.Members()); n != 1+64+1 {
		t.Errorf("%d members, want itself, 64, and one that is confirmed", n)
	}
}

// compressed is a message of memberlist's that inflates to size bytes.
func compressed(t *testing.T, size int) []byte {
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
	const kind = 9 // of compressed messages
	p := []byte{kind, 0x82, 0xa4, 'A', 'l', 'g', 'o', 0, 0xa3, 'B', 'u', 'f', 0xda}
	p = binary.BigEndian.AppendUint16(p, uint16(b.Len()))
	return append(p, b.Bytes()...)
}

// seal encrypts as memberlist does.
func seal(t testing.TB, key, text, data []byte) []byte {
	t.Helper()
	block, err := aes.NewCipher(key)
	if err != nil {
		t.Fatal(err)
	}
	gcm, err := cipher.NewGCM(block)
	if err != nil {
		t.Fatal(err)
	}
	nonce := make([]byte, 12)
	return gcm.Seal(append([]byte{1}, nonce...), nonce, text, data)
}

// packetOf and streamOf return a message as a member sends it. key is nil where gossip is open.
func packetOf(t testing.TB, label string, key, message []byte) []byte {
	if key != nil {
		message = seal(t, key, message, []byte(label))
	}
	return append(append([]byte{labelMsg, byte(len(label))}, label...), message...)
}

func streamOf(t testing.TB, label string, key, message []byte) []byte {
	if key != nil {
		const overhead = 1 + 12 + 16
		head := binary.BigEndian.AppendUint32([]byte{encryptMsg}, uint32(len(message)+overhead))
		message = slices.Concat(head, seal(t, key, message, slices.Concat(head, []byte(label))))
	}
	return append(append([]byte{labelMsg, byte(len(label))}, label...), message...)
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

// Messages that name lengths take no memory, by packet and by stream. It is so for a stranger, for
// a member that has the key, and where there is no key.
func TestMessagesThatNameLengths(t *testing.T) {
	const size = 4 << 20
	for name, message := range map[string][]byte{
		"compressed":             compressed(t, size),
		"a time of 3.4 GB":       []byte("\x04\x86\xa4Ad\xc9\xc9\xc9\xc9\xc9d\xfd\xff\x1cTTTTTTTTTTTTTT\xa4No_e\xc1x"),
		"a field that is a time": []byte("\x04\x81\xa1x\xc9\x40\x00\x00\x00\xff"),
		"a million nodes":        []byte("\x06\x83\xa5Nodes\xce\x00\x0f\xff\xff\xacUserStateLen\x00\xa4Join\xc3"),
		"20 MB of a user":        []byte("\x06\x83\xa5Nodes\x00\xacUserStateLen\xce\x01\x30\x00\x00\xa4Join\xc3"),
		"a user's message":       []byte("\x08\x81\xaaUserMsgLen\xce\x01\x30\x00\x00"),
	} {
		for from, key := range map[string][]byte{"a member": key(1, 32), "a stranger": nil, "all": nil} {
			t.Run(name+" from "+from, func(t *testing.T) {
				opts := options("a")
				if from != "all" {
					opts.Keys = [][]byte{slices.Repeat([]byte{1}, 32)}
				}
				said := make(lines, 1000)
				opts.Logger = slog.New(slog.NewTextHandler(said, nil))
				a := begin(t, opts, hooks{})
				var before, after runtime.MemStats
				runtime.ReadMemStats(&before)
				u, err := net.Dial("udp", a.Gossip())
				if err != nil {
					t.Fatal(err)
				}
				defer u.Close()
				if _, err := u.Write(packetOf(t, opts.Label, key, message)); err != nil {
					t.Fatal(err)
				}
				for packet := false; !packet; { // before the stream, as complaints are limited
					select {
					case line := <-said:
						packet = strings.Contains(line, "a gossip packet is refused") && strings.Contains(line, u.LocalAddr().String())
					case <-time.After(patience):
						t.Fatal("nothing is said of the packet")
					}
				}
				c, err := net.Dial("tcp", a.Gossip())
				if err != nil {
					t.Fatal(err)
				}
				defer c.Close()
				if _, err := c.Write(streamOf(t, opts.Label, key, message)); err != nil {
					t.Fatal(err)
				}
				_ = c.SetReadDeadline(time.Now().Add(patience))
				if _, err := io.Copy(io.Discard, c); errors.Is(err, os.ErrDeadlineExceeded) {
					t.Error("the stream is open still")
				}
				runtime.ReadMemStats(&after)
				if n := after.TotalAlloc - before.TotalAlloc; n > size/2 {
					t.Errorf("%d bytes were allocated for %d bytes", n, 2*len(message))
				}
			})
		}
	}
}

// A packet that makes memberlist panic, or that it decodes in another way than it was written, does
// not come through.
func TestScreen(t *testing.T) {
	s := screen{label: "test"}
	alive := func(more string) []byte { return []byte("\xf4\x04test\x04" + more) }
	for name, c := range map[string]struct {
		packet []byte
		ok     bool
	}{
		"a node":               {alive("\x82\xa4Node\xa1x\xa4Port\xcd\x01\x00"), true},
		"with a sum":           {append([]byte("\xf4\x04test\x0c\x00\x00\x00\x00"), alive("\x80")[6:]...), true},
		"two":                  {[]byte("\xf4\x04test\x07\x02\x00\x02\x00\x02\x04\x80\x05\x80"), true},
		"nothing":              {nil, false},
		"only a label":         {[]byte("\xf4\x04test"), false},
		"another label":        {[]byte("\xf4\x04tesT\x04\x80"), false},
		"no label":             {[]byte("\x04\x80"), false},
		"half a value":         {alive("\x82\xa4Node"), false},
		"a long string":        {alive("\x81\xa4Node\xdb\xff\xff\xff\xffx"), false},
		"a long list":          {alive("\xdd\xff\xff\xff\xff"), false},
		"a long map":           {alive("\xdf\x7f\xff\xff\xff"), false},
		"a negative number":    {alive("\x81\xa4Port\xff"), false},
		"deep":                 {alive("\x91\x91\x91\x91\x91\x91\x00"), false},
		"a list within a list": {[]byte("\xf4\x04test\x07\x01\x00\x03\x07\x00\x00"), false},
		"compressed in a list": {[]byte("\xf4\x04test\x07\x01\x00\x02\x09\x80"), false},
		"a list that is cut":   {[]byte("\xf4\x04test\x07\x02\x00\x02\x00\x09\x04\x80"), false},
	} {
		if err := s.packet(c.packet); (err == nil) != c.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
	one := bytes.Repeat([]byte{1}, 32)
	s.keys, _ = memberlist.NewKeyring(nil, one)
	packet := packetOf(t, s.label, one, []byte("\x04\x80"))
	if err := s.packet(packet); err != nil {
		t.Error(err)
	}
	packet[len("\xf4\x04test")] = 0 // a version with padding: memberlist takes off as much as its last byte says
	if err := s.packet(packet); !errors.Is(err, errKey) {
		t.Errorf("padding: %v", err)
	}
}
