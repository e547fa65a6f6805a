package main

import (
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast/internal/leak"
)

func TestMain(m *testing.M) {
	if os.Getenv("GIN_MODE") == "" {
		os.Setenv("GIN_MODE", "release")
	}
	leak.Main(m, goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.updateServerDate.func1")) // keeps the time, for ever
}

// The whole matrix takes a minute or two. Here each router, protocol and stack is met with the scenes that have failed once.
func TestMatrix(t *testing.T) {
	sel := selection{scenes: []string{
		"plain-POST", "empty", "304", "trailers", "two-at-a-time", "streamed", "early-answer", "panic", "client-gone",
		"gRPC-unary", "gRPC-stream,-head-first", "WebSocket",
	}}
	if os.Getenv("MATRIX") == "all" {
		sel = selection{}
	}
	n := 0
	if err := each(t.Context(), sel, func(c cell, differences []string) {
		n++
		for _, d := range differences {
			t.Errorf("%v: %s", c, d)
		}
	}); err != nil {
		t.Fatal(err)
	}
	if n < 500 {
		t.Errorf("%d cells only", n)
	}
}

// A difference is seen: what is compared is not the same by itself.
func TestDiff(t *testing.T) {
	bare := &seen{Proto: "HTTP/1.1", Status: 200, Header: map[string][]string{"A": {"1"}}, Body: "x", Trailer: map[string][]string{"T": {"1"}}, Runs: 1}
	for _, change := range []func(*seen){
		func(s *seen) { s.Proto = "HTTP/2.0" }, func(s *seen) { s.Status = 500 }, func(s *seen) { s.Header.Set("A", "2") },
		func(s *seen) { s.Header.Set("B", "2") }, func(s *seen) { s.Body = "y" }, func(s *seen) { s.Trailer.Del("T") },
		func(s *seen) { s.Err = "broken" }, func(s *seen) { s.note("late") }, func(s *seen) { s.Runs = 2 },
	} {
		got := bare.clone()
		if len(diff(bare, got)) > 0 {
			t.Fatal("the same differs")
		}
		if change(got); len(diff(bare, got)) != 1 {
			t.Errorf("%+v is no difference", got)
		}
	}
}

// The answer is the last head of what curl -D writes; trailers follow it.
func TestDump(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		want *seen
	}{
		"HTTP/1.1": {
			"HTTP/1.1 100 Continue\r\nX-A: 1\r\n\r\nHTTP/1.1 202 Accepted\r\nDate: x\r\nA: 1\r\nA: 2\r\nTrailer: T\r\n\r\nT: 6\r\n",
			&seen{Proto: "HTTP/1.1", Status: 202, Header: map[string][]string{"A": {"1", "2"}}, Trailer: map[string][]string{"T": {"6"}}, Notes: []string{"100"}},
		},
		"HTTP/2": {
			"HTTP/2 304 \r\netag: \"a:b\"\r\n\r\n",
			&seen{Proto: "HTTP/2", Status: 304, Header: map[string][]string{"Etag": {`"a:b"`}}},
		},
		"nothing": {"", &seen{}},
	} {
		got := &seen{}
		got.dump(c.text)
		for _, d := range diff(c.want, got) {
			t.Errorf("%s: %s", name, d)
		}
	}
}
