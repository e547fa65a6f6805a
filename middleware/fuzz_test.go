package middleware

import (
	"encoding/json"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

// lists makes two lists of texts and headers' values of a text, in which lines are texts.
func lists(s string) (texts, values []string) {
	one, two, _ := strings.Cut(s, "\n\n")
	return strings.Split(one, "\n"), strings.Split(two, "\n")
}

// FuzzDigest: two requests never have the same digest unless all that goes into it is the same.
func FuzzDigest(f *testing.F) {
	for _, x := range [][2]string{{"a\nb", "ab\n"}, {"a\n\nb", "a\nb"}, {"\n\n", "\n"}, {"\x01a", "a"}, {"a\n\nb\nc", "a\nb\n\nc"}, {"", "\x00"}} {
		f.Add(x[0], x[1])
	}
	input := func(s string) (string, [2][]string) {
		var d digest
		texts, values := lists(s)
		d.add(strconv.Itoa(len(texts))) // as many as the caller always adds
		for _, x := range texts {
			d.add(x)
		}
		d.addAll(values)
		return string(d.b), [2][]string{texts, values}
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		one, from := input(a)
		two, from2 := input(b)
		if same := slices.Equal(from[0], from2[0]) && slices.Equal(from[1], from2[1]); same != (one == two) {
			t.Errorf("%q and %q: the same is %t, the digests' input %q and %q", from, from2, same, one, two)
		}
	})
}

// FuzzProblem: whatever a problem says, its answer is one line of headers each, and JSON that says
// the same.
func FuzzProblem(f *testing.F) {
	f.Add("about:blank", "title", 423, "detail", int64(time.Second))
	f.Add("", "\r\nX: y", 999, "\x00\xff</script>", int64(-1))
	f.Add("a\"b", "\u2028", 100, "", int64(1<<63-1))
	f.Fuzz(func(t *testing.T, typ, title string, status int, detail string, after int64) {
		if status < 200 || status > 999 || after > 1<<62 { // net/http panics at others; and no client waits for 146 years
			return
		}
		want := Problem{Type: typ, Title: title, Status: status, Detail: detail}
		sent := want
		sent.RetryAfter = time.Duration(after)
		w := httptest.NewRecorder()
		WriteProblem(w, nil, sent)
		var got Problem
		if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil {
			t.Fatalf("%+v: %v", sent, err)
		}
		valid := utf8.ValidString(typ) && utf8.ValidString(title) && utf8.ValidString(detail) // others have no JSON
		if valid && got != want {
			t.Errorf("%+v became %+v", want, got)
		}
		if n := w.Header().Get("Content-Length"); n != strconv.Itoa(w.Body.Len()) || w.Code != status {
			t.Errorf("%d, of %s bytes; there are %d", w.Code, n, w.Body.Len())
		}
		seconds := w.Header().Get("Retry-After")
		if n, err := strconv.ParseInt(seconds, 10, 64); (after > 0) != (seconds != "") || after > 0 && (err != nil || n < 1 || n < after/int64(time.Second)) {
			t.Errorf("%v is sent as %q", sent.RetryAfter, seconds)
		}
	})
}
