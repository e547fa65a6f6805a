package middleware

import (
	"bytes"
	"errors"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/internal/once"
)

func TestParseIdempotencyKey(t *testing.T) {
	long := strings.Repeat("k", MaxIdempotencyKey)
	for _, x := range []struct{ value, key string }{
		{"8e03978e-40d5-43dd-bc93-6894a57f9324", "8e03978e-40d5-43dd-bc93-6894a57f9324"},
		{`"8e03978e-40d5-43dd-bc93-6894a57f9324"`, "8e03978e-40d5-43dd-bc93-6894a57f9324"},
		{"  a+b/c=:~'(!)", "a+b/c=:~'(!)"},
		{"\t\"a b\" ", "a b"},
		{`"a\"b\\c,;"`, `a"b\c,;`},
		{long, long},
		{`"` + long + `"`, long},
		{`"` + strings.Repeat(`\"`, MaxIdempotencyKey) + `"`, strings.Repeat(`"`, MaxIdempotencyKey)},

		{"", ""},
		{`""`, ""},
		{`"`, ""},
		{`"a`, ""},
		{`"a\"`, ""},
		{`"a\x"`, ""},
		{`"a"b`, ""},
		{`"a";p=1`, ""},
		{`"a", "b"`, ""},
		{"a,b", ""},
		{"a;p=1", ""},
		{"a b", ""},
		{`a"b`, ""},
		{`a\b`, ""},
		{"a\x00b", ""},
		{"\"a\x7fb\"", ""},
		{"\"a\nb\"", ""},
		{"schlüssel", ""},
		{`"schlüssel"`, ""},
		{"\xff", ""},
		{long + "k", ""},
		{`"` + long + `k"`, ""},
		{strings.Repeat("k", 1<<20), ""},
	} {
		key, err := parseIdempotencyKey("Idempotency-Key", []string{x.value})
		if key != x.key || (err == nil) != (x.key != "") {
			t.Errorf("%.40q: %.40q, %v; want %.40q", x.value, key, err, x.key)
		}
		if err != nil && len(x.value) > 4 && strings.Contains(err.Error(), x.value) {
			t.Errorf("the error tells the value: %v", err)
		}
	}
	if key, err := parseIdempotencyKey("Idempotency-Key", []string{"a", "a"}); err == nil {
		t.Errorf("two headers are %q", key)
	}
}

func FuzzParseIdempotencyKey(f *testing.F) {
	for _, s := range []string{"a", `"a"`, `"\"\\"`, `"`, "a,b", "\x00", "ü", ` "a b" `} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, value string) {
		key, err := parseIdempotencyKey("K", []string{value})
		if err != nil {
			if key != "" {
				t.Fatalf("%q with %v", key, err)
			}
			return
		}
		if key == "" || len(key) > MaxIdempotencyKey || strings.ContainsFunc(key, func(c rune) bool { return c < ' ' || c > '~' }) {
			t.Fatalf("%q is %q", value, key)
		}
		// The canonical form means the same.
		quoted := `"` + strings.NewReplacer(`"`, `\"`, `\`, `\\`).Replace(key) + `"`
		if again, err := parseIdempotencyKey("K", []string{quoted}); again != key || err != nil {
			t.Fatalf("%q is %q, but %q is %q, %v", value, key, quoted, again, err)
		}
	})
}

var records = []*record{
	{state: once.Started, print: fingerprint{1, 2, 3}},
	{state: failed},
	{state: notKept, status: 201},
	{state: answered, answer: &answer{status: 204}},
	{state: answered, print: fingerprint{31: 9}, answer: &answer{
		status: 999, header: http.Header{"A": {"1", ""}, "B": nil, "Long": {strings.Repeat("x", 300)}}, removed: []string{"C", "D"},
		body: []byte("\x00body\xff"), trailer: http.Header{"T": {"1"}},
	}},
}

// decodeRecord is the inverse of record.encode.
func decodeRecord(b []byte) (*record, error) {
	found, err := once.Decode(b)
	if err != nil {
		return nil, err
	}
	return decodePayload(found)
}

func TestRecordsSurvive(t *testing.T) {
	for _, r := range records {
		got, err := decodeRecord(r.encode())
		if err != nil {
			t.Fatal(r.state, err)
		}
		if !reflect.DeepEqual(got, r) {
			t.Errorf("%v became %v", r, got)
		}
	}
}

// A record that is cut short, goes on, or has another version is not taken for one.
func TestDamagedRecordsAreRefused(t *testing.T) {
	for _, r := range records {
		b := r.encode()
		for n := range b {
			if _, err := decodeRecord(b[:n]); !errors.Is(err, once.ErrRecord) {
				t.Errorf("%v, %d of %d bytes: %v", r.state, n, len(b), err)
			}
		}
		if _, err := decodeRecord(append(b, 0)); !errors.Is(err, once.ErrRecord) {
			t.Errorf("%v with a byte more: %v", r.state, err)
		}
		b[0]++
		if _, err := decodeRecord(b); !errors.Is(err, once.ErrRecord) {
			t.Errorf("%v of another version: %v", r.state, err)
		}
	}
	status := (&record{state: notKept, status: 5}).encode()
	if _, err := decodeRecord(status); err == nil {
		t.Error("status 5 was accepted: net/http panics at that")
	}
}

func FuzzDecodeRecord(f *testing.F) {
	for _, r := range records {
		f.Add(r.encode())
	}
	f.Add([]byte{1, byte(answered)})
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := decodeRecord(b)
		if err != nil {
			return
		}
		b = r.encode()
		again, err := decodeRecord(b)
		if err != nil || !bytes.Equal(again.encode(), b) {
			t.Fatalf("%v became %v, %v", r, again, err)
		}
	})
}

// A request that the owner has not answered may have been executed.
func TestWhatTheOwnerMayHaveDoneIsNotRefused(t *testing.T) {
	f := newRefusals(nil, nil, 0)
	for problem, want := range map[string]bool{TypeLocked: true, TypeKey: true, TypeOwner: false} {
		rec := newRecorder(httptest.NewRecorder(), 1000)
		f.refuse(rec, httptest.NewRequest(http.MethodPost, "/", nil), Problem{Type: problem, Status: http.StatusBadGateway})
		if rec.refused != want {
			t.Errorf("%s: %t", problem, rec.refused)
		}
	}
}
