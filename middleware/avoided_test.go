package middleware

import (
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

func TestAvoided(t *testing.T) {
	var a avoided
	const wait = time.Second
	now := time.Now()
	try := func(name string, at time.Duration, want bool) {
		t.Helper()
		if got := a.try(name, wait, now.Add(at)); got != want {
			t.Errorf("%s after %v: %v", name, at, got)
		}
	}
	try("a", 0, true)
	if !a.add("a", wait, now) || a.add("a", wait, now) {
		t.Error("it is news once")
	}
	try("a", 0, false)
	try("b", 0, true)
	try("a", wait-1, false)
	try("a", wait, true) // one tries
	try("a", wait, false)
	try("a", 2*wait-1, false)
	try("a", 2*wait, true)
	a.remove("a")
	try("a", 2*wait, true)
	try("a", 2*wait, true)
	for range 2 {
		if !a.add("a", -1, now) {
			t.Error("it is not avoided, so it is news each time")
		}
	}
	try("a", 0, true)
	for i := range 1000 { // nodes come and go
		a.add(fmt.Sprint(i), wait, now.Add(time.Duration(i)*time.Minute))
	}
	if n := len(a.until); n > 100 {
		t.Errorf("%d nodes are remembered", n)
	}
}

func TestTokens(t *testing.T) {
	for s, want := range map[string]bool{"X-Order": true, "a.b_c~1": true, "": false, "a b": false, "a:": false, "ä": false, "a\n": false} {
		if isToken(s) != want {
			t.Errorf("%q", s)
		}
	}
}

func TestRetryAfterIsRoundedUp(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-1: "", 0: "", 1: "1", time.Second: "1", time.Second + 1: "2", math.MaxInt64: "9223372037", math.MaxInt64 - time.Hour: "9223368437",
	} {
		w := httptest.NewRecorder()
		WriteProblem(w, nil, Problem{Status: http.StatusServiceUnavailable, RetryAfter: d})
		if got := w.Header().Get("Retry-After"); got != want {
			t.Errorf("%v: %q, want %q", d, got, want)
		}
	}
}
