package middleware

import (
	"context"
	"errors"
	"net/url"
	"testing"

	"github.com/holdfast-go/holdfast/coord"
)

// The death of a node ends the requests that are on their way to it, and no other.
func TestTarget(t *testing.T) {
	t.Parallel()
	var to target
	var hops [4]hop
	for i := range hops {
		h := &hops[i]
		h.Context, h.end = context.WithCancelCause(t.Context())
		if !to.begin(h) {
			t.Fatal("it is dead")
		}
	}
	for _, i := range []int{1, 0, 3} { // from the middle, the end and the beginning of the list
		hops[i].leave()
	}
	for i := range hops[:2] {
		if !to.begin(&hops[i]) {
			t.Fatal("it is dead")
		}
	}
	to.die()
	for i := range hops {
		if dead := errors.Is(context.Cause(hops[i].Context), coord.ErrNodeDead); dead != (i < 3) {
			t.Errorf("request %d: %v", i, context.Cause(hops[i].Context))
		}
	}
	for i := range hops[:3] {
		hops[i].leave()
	}
	if to.first != nil || to.begin(&hops[3]) {
		t.Error("the list is not empty, or a request begins")
	}
}

// A URL that is taken for what a request URI is parsed to is that.
func TestUnchanged(t *testing.T) {
	t.Parallel()
	all := []string{
		"/", "/a", "/a/b", "//a", "/a?", "/a?b", "/a?b?c", "/a%2Fb", "/a%20b", `/a"b`, "/a b", "/ä", "/%C3%A4", "/a?b=%2F", "/a#b", "/a?b#c",
		"*", "", "a", "http://h/a", "http://h", "/a;b", "/[", "/{}", "/a:b", "?",
	}
	found := 0
	for _, text := range all {
		u, err := url.ParseRequestURI(text)
		if err != nil {
			continue
		}
		for _, uri := range all {
			if !unchanged(u, uri) {
				continue
			}
			found++
			if got, err := url.ParseRequestURI(uri); err != nil || *got != *u {
				t.Errorf("%q is not %#v", uri, u)
			}
		}
	}
	if found < 8 {
		t.Errorf("%d pairs", found)
	}
}
