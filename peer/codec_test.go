package peer

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
)

func full() *Frame {
	return &Frame{
		Kind: Deny, Flags: 255, Request: math.MaxUint64, Partition: math.MaxUint32, Epoch: math.MaxUint32, Token: math.MaxUint64,
		Count: math.MaxUint32, Left: math.MaxUint32, Ping: math.MaxUint32,
		Session: bytes.Repeat([]byte("s"), MaxSession), Key: bytes.Repeat([]byte("k"), MaxKey),
	}
}

// Each field alone, all, and none survive the trip.
func TestCodecRoundTrip(t *testing.T) {
	frames := []*Frame{full(), {Kind: Ping}}
	for i := range reflect.TypeFor[Frame]().NumField() {
		f := &Frame{Kind: Request}
		reflect.ValueOf(f).Elem().Field(i).Set(reflect.ValueOf(full()).Elem().Field(i))
		frames = append(frames, f)
	}
	for _, f := range frames {
		b := AppendFrame([]byte("before"), f)[len("before"):]
		if len(b) > lengthSize+MaxFrame {
			t.Errorf("%d bytes", len(b))
		}
		var g Frame
		if err := g.Decode(b); err != nil {
			t.Errorf("%+v: %v", f, err)
		} else if !reflect.DeepEqual(f, &g) {
			t.Errorf("%+v became %+v", f, g)
		}
		for n := range b { // cut off anywhere
			if err := g.Decode(b[:n]); !errors.Is(err, ErrProtocol) {
				t.Errorf("%d of %d bytes: %v", n, len(b), err)
			}
			c := bytes.Clone(b[:n])
			if n >= lengthSize { // with a length that is right
				c[0], c[1] = byte((n-lengthSize)>>8), byte(n-lengthSize)
			}
			if err := g.Decode(c); !errors.Is(err, ErrProtocol) {
				t.Errorf("%d of %d bytes with their length: %v", n, len(b), err)
			}
		}
	}
}

func TestDecodeStrict(t *testing.T) {
	long := strings.Repeat("x", 2000)
	for name, body := range map[string]string{
		"nothing":              "",
		"kind zero":            "\x00\x00\x00",
		"unknown kind":         string([]byte{byte(kinds), 0, 0}),
		"unknown field":        "\x01\x04\x00",
		"left over":            "\x01\x00\x00x",
		"flags zero":           "\x01\x00\x01\x00",
		"flags missing":        "\x01\x00\x01",
		"number zero":          "\x01\x00\x02\x00",
		"number too long":      "\x01\x00\x02\x81\x00",
		"number cut off":       "\x01\x00\x02\x81",
		"above 32 bits":        "\x01\x00\x04\x80\x80\x80\x80\x10",
		"above 64 bits":        "\x01\x00\x02\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02",
		"eleven bytes":         "\x01\x00\x02\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01",
		"session too long":     "\x01\x01\x00\x41" + long[:65],
		"session beyond":       "\x01\x01\x00\x03ab",
		"session empty":        "\x01\x01\x00\x00",
		"key too long":         "\x01\x02\x00\xc1\x08" + strings.Repeat("k", MaxKey+1),
		"key of a huge length": "\x01\x02\x00\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
		"frame too long":       "\x01\x00\x00" + long + long,
	} {
		b := append([]byte{byte(len(body) >> 8), byte(len(body))}, body...)
		var f Frame
		if err := f.Decode(b); !errors.Is(err, ErrProtocol) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestCheck(t *testing.T) {
	for _, f := range []*Frame{
		{}, {Kind: kinds}, {Kind: Ask, Session: make([]byte, MaxSession+1)}, {Kind: Ask, Key: make([]byte, MaxKey+1)},
	} {
		if err := f.Check(); !errors.Is(err, ErrFrame) {
			t.Errorf("%+v: %v", f, err)
		}
	}
	defer func() {
		if recover() == nil {
			t.Error("AppendFrame accepted a frame that is not valid")
		}
	}()
	AppendFrame(nil, &Frame{})
}

func TestKindString(t *testing.T) {
	for k := Kind(1); k < kinds; k++ {
		if s := k.String(); s == "" || strings.Contains(s, "(") {
			t.Errorf("kind %d has no name", uint8(k))
		}
	}
	if s := Kind(200).String(); s != "Kind(200)" {
		t.Error(s)
	}
}

func TestCodecAllocates(t *testing.T) {
	f, g := full(), new(Frame)
	b := AppendFrame(nil, f)
	if n := testing.AllocsPerRun(100, func() {
		b = AppendFrame(b[:0], f)
		if g.Decode(b) != nil {
			t.Fatal("does not decode")
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// A decoded frame encodes to the same bytes: there is one encoding of each frame.
func FuzzDecode(f *testing.F) {
	f.Add(AppendFrame(nil, full()))
	f.Add(AppendFrame(nil, request(3)))
	f.Add(AppendFrame(nil, &Frame{Kind: Pong, Ping: 300, Left: 1}))
	f.Add([]byte("\x00\x05\x01\x00\x02\x81\x00"))
	f.Add([]byte{0, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		var g Frame
		if err := g.Decode(b); err != nil {
			if !errors.Is(err, ErrProtocol) {
				t.Fatal(err)
			}
			return
		}
		if c := AppendFrame(nil, &g); !bytes.Equal(b, c) {
			t.Fatalf("% x became % x", b, c)
		}
	})
}

// Numbers of each length come back, whatever follows them; one that is cut off, or longer than
// needed, does not.
func TestVarints(t *testing.T) {
	for shift := range 64 {
		for _, v := range []uint64{1 << shift, 1<<shift | 1, 1<<shift - 1, math.MaxUint64 >> shift} {
			if v == 0 {
				continue
			}
			b := binary.AppendUvarint(nil, v)
			if got := appendUvarint(nil, v); !bytes.Equal(got, b) {
				t.Fatalf("%d became % x instead of % x", v, got, b)
			}
			for rest := range 10 {
				d := decoder{b: append(slices.Clone(b), bytes.Repeat([]byte{0xff}, rest)...)}
				if got := d.uint64(); got != v || d.bad != "" || d.at != len(b) {
					t.Fatalf("%d became %d, %q, of % x", v, got, d.bad, d.b)
				}
				for _, wrong := range [][]byte{b[:len(b)-1], append(orMore(b), 0)} {
					d = decoder{b: wrong}
					if len(wrong) > 0 && wrong[len(wrong)-1] == 0 {
						d.b = append(slices.Clone(wrong), bytes.Repeat([]byte{1}, rest)...)
					}
					if got := d.uint64(); d.bad == "" {
						t.Fatalf("% x is %d", d.b, got)
					}
				}
			}
		}
	}
}

// orMore returns b with the last byte saying that another one follows.
func orMore(b []byte) []byte {
	b = slices.Clone(b)
	b[len(b)-1] |= 0x80
	return b
}
