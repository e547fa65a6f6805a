package fallback

import (
	"fmt"
	"reflect"
	"testing"
)

// fill sets every field, so that a text which leaves one out is noticed.
func fill(v reflect.Value, n *int) {
	*n++
	switch v.Kind() {
	case reflect.String:
		v.SetString(fmt.Sprintf("\x00\xff\u00e9<&\"\\ %d", *n))
	case reflect.Uint32, reflect.Uint64, reflect.Uint8, reflect.Uint, reflect.Uint16:
		v.SetUint(uint64(*n))
	case reflect.Int64, reflect.Int, reflect.Int32:
		v.SetInt(int64(*n))
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Struct:
		for i := range v.NumField() {
			fill(v.Field(i), n)
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		for i := range 2 {
			fill(v.Index(i), n)
		}
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		for range 2 {
			key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
			fill(key, n)
			fill(value, n)
			v.SetMapIndex(key, value)
		}
	default:
		panic("a field of a kind that this test does not know: " + v.Kind().String())
	}
}

func filled[T any]() *T {
	x, n := new(T), 0
	fill(reflect.ValueOf(x).Elem(), &n)
	return x
}

func checkText[T any](t *testing.T, encode func(*T) []byte, decode func([]byte) (*T, error)) {
	t.Helper()
	x := withoutRounds(filled[T]())
	text := encode(x)
	for _, b := range text {
		if b < ' ' || b > '~' {
			t.Fatalf("%q is not printable ASCII", text)
		}
	}
	y, err := decode(text)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(x, y) {
		t.Errorf("it does not keep all fields (see recordstext.go): %+v became %+v", x, y)
	}
	if again := encode(y); string(again) != string(text) {
		t.Errorf("it is not the same text twice: %s, %s", text, again)
	}
	zero, err := decode(encode(new(T)))
	if err != nil || !reflect.DeepEqual(zero, new(T)) {
		t.Errorf("the lost one became %+v, %v", zero, err)
	}
	if _, err := decode([]byte(`{"epoch": "x"`)); err == nil {
		t.Error("a malformed text was decoded")
	}
}

var someGrace = storedGrace{3, 4}

func encodeP(p *Partition) []byte { return encodePartition(p, someGrace) }
func encodeS(s *Sessions) []byte  { return encodeSessions(s, someGrace) }

// withoutRounds leaves out the fields of rounds, which stores of records have none of, and those of
// one process.
func withoutRounds[T any](x *T) *T {
	switch x := any(x).(type) {
	case *Partition:
		x.Changed = 0
	case *Sessions:
		x.Round, x.Changed = SpokenRound{}, 0
		for id, m := range x.Members {
			m.Older = false
			x.Members[id] = m
		}
	}
	return x
}

func decodeP(text []byte) (*Partition, error) {
	p, g, err := decodePartition(text)
	if err == nil && len(text) > 0 && g != someGrace {
		return nil, fmt.Errorf("its Grace is %+v", g)
	}
	return p, err
}

func decodeS(text []byte) (*Sessions, error) {
	s, g, err := decodeSessions(text)
	if err == nil && len(text) > 0 && g != someGrace {
		return nil, fmt.Errorf("its Grace is %+v", g)
	}
	return s, err
}

func TestRecordsText_KeepsAllFields(t *testing.T) {
	t.Run("partition", func(t *testing.T) { checkText(t, encodeP, decodeP) })
	t.Run("sessions", func(t *testing.T) { checkText(t, encodeS, decodeS) })
}

func TestRecordsText_Messages(t *testing.T) {
	for _, kind := range []MessageKind{Wake, Ask, Revoked, Freed, Changed} {
		m := *filled[Message]()
		m.Kind = kind
		if got, ok := decodeMessage(encodeMessage(m)); !ok || got != m {
			t.Errorf("%+v became %+v, %t", m, got, ok)
		}
	}
	for _, text := range []string{"", "{}", "x", `{"kind":"g"}`, `{"kind":"ww"}`, `{"kind":"w","request":-1}`} {
		if m, ok := decodeMessage(text); ok {
			t.Errorf("%q became %+v", text, m)
		}
	}
}

// checkKept checks that the kept members of a text change no known one, and stay the same.
func checkKept(t *testing.T, x *shape, was, text []byte, again func([]byte) []byte) {
	t.Helper()
	kept := x.keepUnknown(was, text)
	if len(text) > 0 && (string(again(kept)) != string(text) || string(x.keepUnknown(kept, text)) != string(kept)) {
		t.Errorf("of %q is kept\n%q, and then\n%q\nbeside\n%q", was, kept, x.keepUnknown(kept, text), text)
	}
}

func must[T any](x T, err error) func(*testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return x
	}
}

func FuzzRecordsText(f *testing.F) {
	f.Add(encodeP(filled[Partition]()))
	f.Add(encodeS(filled[Sessions]()))
	f.Add([]byte(`{"server":"s","later":[{"x":"]}"},1],"rows":{"k":{"session":"a","later":{}},"l":null},"queues":{"k":[{"later":1},null]}}`))
	f.Add([]byte(` {"format" : "f", "Later": 1 , "members":{"a":{"expiry":1 ,"later":"\\u0041"}}} `))
	f.Fuzz(func(t *testing.T, text []byte) {
		if p, _, err := decodePartition(text); err == nil {
			again, err := decodeP(encodeP(p))
			if err != nil || string(encodeP(again)) != string(encodeP(p)) {
				t.Errorf("%q: %+v, %v", text, again, err)
			}
			checkKept(t, partitionShape, text, encodeP(p), func(text []byte) []byte { return encodeP(must(decodeP(text))(t)) })
		}
		if s, _, err := decodeSessions(text); err == nil {
			again, err := decodeS(encodeS(s))
			if err != nil || string(encodeS(again)) != string(encodeS(s)) {
				t.Errorf("%q: %+v, %v", text, again, err)
			}
			checkKept(t, sessionsShape, text, encodeS(s), func(text []byte) []byte { return encodeS(must(decodeS(text))(t)) })
		}
		decodeMessage(string(text))
	})
}
