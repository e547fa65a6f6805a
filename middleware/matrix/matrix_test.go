package main

import (
	"maps"
	"os"
	"slices"
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

// kinds are ways of clients and handlers with each other; each has a scene in the short form.
var kinds = map[string]string{
	"plain": "plain-POST", "streamed": "streamed", "SSE": "SSE", "WebSocket": "WebSocket", "gRPC unary": "gRPC-unary",
	"gRPC stream": "gRPC-stream-head-first", "upload": "upload-with-100-continue", "early answer": "early-answer", "trailers": "trailers",
	"range": "range", "304": "304", "panic": "panic", "client gone": "client-gone",
	// and scenes that have failed once
	"no body": "empty", "at the same time": "two-at-a-time",
}

// clients are the commands, each with one scene.
var clients = map[string]string{"curl": "curl---http2-POST", "h2load": "h2load-POST-with-one-idempotency-key", "java": "Java-POST"}

// short are the routers of the short form. Echo 4 is in the whole matrix; its adapter has the tests
// of routertest as well.
var short = []string{"mux", "chi", "gin", "echo", "fiber"}

// The whole matrix takes a minute or two. Here each router, protocol, owner and stack is met with
// one scene of each kind. In front of the mux it is met with one of each command, too.
func TestMatrix(t *testing.T) {
	parts := []selection{
		{scenes: slices.Collect(maps.Values(kinds)), routers: short},
		{scenes: slices.Collect(maps.Values(clients)), routers: []string{"mux"}},
	}
	if os.Getenv("MATRIX") == "all" {
		parts = []selection{{}}
	}
	ran := map[string]bool{}
	for _, sel := range parts {
		for _, tool := range missing(sel) {
			t.Logf("SKIPPED: the scenes of %s, which is not installed", tool)
		}
		if err := each(t.Context(), sel, func(c cell, differences []string) {
			ran[c.String()] = true
			for _, d := range differences {
				t.Errorf("%v: %s", c, d)
			}
		}); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range wanted() {
		if !ran[c.String()] {
			t.Errorf("%v was left out", c)
		}
	}
}

// wanted are the cells that no run may leave out: every combination that the router and the
// protocol can do, and whose client is here.
func wanted() (all []cell) {
	for _, router := range short {
		names := maps.Clone(kinds)
		if router == "mux" {
			maps.Copy(names, clients)
		}
		for _, name := range names {
			s := &scenes[slices.IndexFunc(scenes, func(s scene) bool { return s.name == name })]
			for _, proto := range []string{"HTTP/1.1", "h2c", "h2"} {
				for _, stack := range []string{"Serialize", "Route", "Coalesce", "Idempotent"} {
					if s.runs(router, proto) {
						all = append(all, cell{router, proto, stack, s, false}, cell{router, proto, stack, s, true})
					}
				}
			}
		}
	}
	return all
}

// Only impossible cells are left out: Fiber's adaptor knows no streams, gRPC needs HTTP/2, and
// HTTP/1.1 lets a handler answer early only if it says so before.
func TestWanted_WhatIsLeftOut(t *testing.T) {
	can := map[string]int{}
	for _, c := range wanted() {
		can[c.scene.name]++
	}
	const cells = 4 * 2 // stacks and owners
	for kind, name := range kinds {
		want := 4 * 3 * cells // routers but Fiber
		switch kind {
		case "plain", "upload", "range", "304", "panic", "no body":
			want = 5 * 3 * cells
		case "gRPC unary", "gRPC stream", "early answer":
			want = 4 * 2 * cells
		}
		if can[name] != want {
			t.Errorf("%s: %d cells, want %d", kind, can[name], want)
		}
	}
	for tool, name := range clients {
		if want := 3 * cells; can[name] != want && installed[tool]() {
			t.Errorf("%s: %d cells, want %d", tool, can[name], want)
		}
	}
}

// A difference is seen: the compared values are not equal by themselves.
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

// The answer is the last head in the output of curl -D; trailers follow it.
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
